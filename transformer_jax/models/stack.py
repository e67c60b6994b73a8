"""The loop over layers. Parameters are stored per layer, however the loop runs."""

from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Float, Int
from transformer_jax.choices import pick
from transformer_jax.config import ModelConfig
from transformer_jax.models.layers import DecoderLayer, EncoderLayer, make_norm
from transformer_jax.nn.cache import KeysValues
from transformer_jax.nn.linear import PRODUCT
from transformer_jax.nn.residual import RESIDUALS
from transformer_jax.nn.view import View

Body = Callable[[Array, Any], Array]  # (x, a layer's parameters and key) -> x


def unrolled(body: Body, x: Array, layers: Sequence[Any]) -> Array:
    """Apply one layer after another, each compiled by itself."""
    for layer in layers:
        x = body(x, layer)
    return x


def scan(body: Body, x: Array, layers: Sequence[Any]) -> Array:
    """Apply the layers in a loop that is compiled once; their parameters are copied into it."""
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers)
    return jax.lax.scan(lambda x, layer: (body(x, layer), None), x, stacked)[0]


LOOPS = {"unrolled": unrolled, "scan": scan}

# What of a layer is kept for the way back; the rest is computed again.
REMATS: dict[str, Callable[[Body], Body]] = {
    "none": lambda body: body,
    "dots": lambda body: jax.checkpoint(
        body, policy=jax.checkpoint_policies.save_only_these_names(PRODUCT)
    ),
    "full": jax.checkpoint,
}


def needs_final_norm(config: ModelConfig) -> bool:
    """Say whether the residual form leaves the stack's output unnormalised."""
    return pick(RESIDUALS, config.residual, "config.model.residual").needs_final_norm


def run(
    stack: nn.Module, config: ModelConfig, layers: Sequence[Any], call: Callable, x: Array
) -> Array:
    """Return x after every layer; `call(layer, x)` applies one.

    The layers run as pure functions of their parameters, so that loop and rematerialisation are
    JAX's own, and their names and dropout masks do not depend on either.
    """
    if stack.is_initializing():
        for layer in layers:
            x = call(layer, x)
        return x
    alone = layers[0].clone(parent=None)

    def body(x: Array, layer: Any) -> Array:
        params, *keys = layer
        rngs = dict(zip(("dropout",), keys, strict=False))
        x = alone.apply({"params": params}, x, method=call, rngs=rngs)
        return nn.with_logical_constraint(x, ("batch", "length", "act_embed"))

    parts: list[Any] = [(layer.variables["params"],) for layer in layers]
    if stack.has_rng("dropout"):
        keys = jax.random.split(stack.make_rng("dropout"), len(layers))
        parts = [(*part, key) for part, key in zip(parts, keys, strict=True)]
    loop = pick(LOOPS, config.layer_loop, "config.model.layer_loop")
    return loop(pick(REMATS, config.remat, "config.model.remat")(body), x, parts)


class Encoder(nn.Module):
    """The encoder's layers."""

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        self.layer = [EncoderLayer(c, self.dtype) for _ in range(c.num_encoder_layers)]
        self.final_norm = make_norm(c) if needs_final_norm(c) else None

    def __call__(self, x: Float[Array, "B S D"], view: View, train: bool) -> Float[Array, "B S D"]:
        x = run(self, self.config, self.layer, lambda layer, x: layer(x, view, train), x)
        return x if self.final_norm is None else self.final_norm(x)


class Decoder(nn.Module):
    """The decoder's layers."""

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        self.layer = [DecoderLayer(c, self.dtype) for _ in range(c.num_decoder_layers)]
        self.final_norm = make_norm(c) if needs_final_norm(c) else None

    def __call__(
        self,
        x: Float[Array, "B T D"],
        memory: Float[Array, "B S D"],
        self_view: View,
        cross_view: View,
        train: bool,
    ) -> Float[Array, "B T D"]:
        """Return the output for whole targets: teacher forcing."""

        def call(layer: DecoderLayer, x: Array) -> Array:
            keys_values = layer.memory_keys_values(memory)
            return layer(x, keys_values, self_view, cross_view, train)[0]

        x = run(self, self.config, self.layer, call, x)
        return x if self.final_norm is None else self.final_norm(x)

    def memory_keys_values(self, memory: Float[Array, "B S D"]) -> list[KeysValues]:
        """Return what each layer's cross-attention looks at."""
        return [layer.memory_keys_values(memory) for layer in self.layer]

    def step(
        self,
        x: Float[Array, "B T D"],
        memory: list[KeysValues],
        self_view: View,
        cross_view: View,
        caches: list[KeysValues],
        slots: Int[Array, "B T"],
    ) -> tuple[Float[Array, "B T D"], list[KeysValues], list[Float[Array, "B N T S"]]]:
        """Return the output for new tokens, the new caches and cross-attention, by layer."""
        new: list[Any] = []
        weights = []
        for layer, past, keys_values in zip(self.layer, caches, memory, strict=True):
            x, cache, weight = layer(x, keys_values, self_view, cross_view, False, past, slots)
            new.append(cache)
            weights.append(weight)
        return x if self.final_norm is None else self.final_norm(x), new, weights
