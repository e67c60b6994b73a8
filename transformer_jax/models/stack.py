"""A stack of layers, and the loop over them. Parameters are stored per layer, however it runs."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Bool, Float
from transformer_jax.choices import pick
from transformer_jax.config import ModelConfig
from transformer_jax.models.layers import Layer, make_norm
from transformer_jax.nn.cache import KeysValues, Lanes, Slots
from transformer_jax.nn.linear import PRODUCT
from transformer_jax.nn.relative_positions import scheme_of
from transformer_jax.nn.residual import RESIDUALS
from transformer_jax.nn.view import View

Body = Callable[[Array, Any], Array]  # (x, a layer's parameters and key) -> x


def unrolled(bodies: Sequence[Body], x: Array, layers: Sequence[Any]) -> Array:
    """Apply one layer after another, each compiled by itself; the bodies take turns."""
    for layer, body in zip(layers, itertools.cycle(bodies), strict=False):
        x = body(x, layer)
    return x


def scan(bodies: Sequence[Body], x: Array, layers: Sequence[Any]) -> Array:
    """Apply the layers in a loop of which one period is compiled; parameters are copied into it.

    Layers beyond the last whole period follow, each compiled by itself.
    """
    period = len(bodies)
    whole = len(layers) // period * period
    stacked = [
        jax.tree.map(lambda *leaves: jnp.stack(leaves), *layers[place:whole:period])
        for place in range(period)
    ]
    x = jax.lax.scan(lambda x, group: (unrolled(bodies, x, group), None), x, stacked)[0]
    return unrolled(bodies, x, layers[whole:])


LOOPS = {"unrolled": unrolled, "scan": scan}

# What of a layer is kept for the way back; the rest is computed again.
REMATS: dict[str, Callable[[Body], Body]] = {
    "none": lambda body: body,
    "dots": lambda body: jax.checkpoint(
        body, policy=jax.checkpoint_policies.save_only_these_names(PRODUCT)
    ),
    "full": jax.checkpoint,
}


def run(
    stack: nn.Module,
    config: ModelConfig,
    layers: Sequence[Any],
    period: int,
    call: Callable,
    x: Array,
) -> Array:
    """Return x after every layer; `call(layer, x)` applies one. Kinds repeat with the period.

    The layers run as pure functions of their parameters, so that loop and rematerialisation are
    JAX's own, and their names and dropout masks do not depend on either.
    """
    if stack.is_initializing():
        for layer in layers:
            x = call(layer, x)
        return x

    def body_of(alone: nn.Module) -> Body:
        def body(x: Array, layer: Any) -> Array:
            params, *keys = layer
            rngs = dict(zip(("dropout",), keys, strict=False))
            x = alone.apply({"params": params}, x, method=call, rngs=rngs)  # type: ignore[assignment]
            return nn.with_logical_constraint(x, ("batch", "length", "act_embed"))

        return pick(REMATS, config.remat, "config.model.remat")(body)

    parts: list[Any] = [(layer.variables["params"],) for layer in layers]
    if stack.has_rng("dropout"):
        keys = jax.random.split(stack.make_rng("dropout"), len(layers))
        parts = [(*part, key) for part, key in zip(parts, keys, strict=True)]
    loop = pick(LOOPS, config.layer_loop, "config.model.layer_loop")
    return loop([body_of(layer.clone(parent=None)) for layer in layers[:period]], x, parts)


class Stack(nn.Module):
    """Layers of the kinds that `pattern` names in turn; with `cross` they look at a memory too."""

    config: ModelConfig
    dtype: jnp.dtype
    num_layers: int
    pattern: Sequence[str]
    cross: bool

    def setup(self) -> None:
        c = self.config
        kinds = itertools.islice(itertools.cycle(self.pattern), self.num_layers)
        self.layer = [Layer(c, self.dtype, kind, self.cross) for kind in kinds]
        residual = pick(RESIDUALS, c.residual, "config.model.residual")
        self.final_norm = make_norm(c) if residual.needs_final_norm else None
        self.relative_positions = scheme_of("stack", c)

    def __call__(
        self,
        x: Float[Array, "B T D"],
        view: View,
        train: bool,
        memory: Float[Array, "B S D"] | None = None,
        cross_view: View | None = None,
    ) -> Float[Array, "B T D"]:
        """Return what becomes of whole sequences: encoding, or teacher forcing."""
        view = self.relative_positions.look(view)

        def call(layer: Layer, x: Array) -> Array:
            return layer(x, view, train, memory, cross_view)

        x = run(self, self.config, self.layer, len(self.pattern), call, x)
        return x if self.final_norm is None else self.final_norm(x)

    def remember(self, memory: Float[Array, "B S D"]) -> list[KeysValues]:
        """Return what each layer's cross-attention looks at."""
        return [layer.remember(memory) for layer in self.layer]

    def empty(self, lanes: Lanes) -> list[Any]:
        """Return each layer's cache of nothing."""
        return [layer.self_attention.empty(lanes) for layer in self.layer]

    def extend(
        self,
        x: Float[Array, "B Q D"],
        caches: Sequence[Any],
        slots: Slots,
        active: Bool[Array, "B"],
        memories: Sequence[KeysValues | None],
        cross_view: View | None,
    ) -> tuple[Float[Array, "B Q D"], list[Any], list[Float[Array, "B N Q S"] | None]]:
        """Return what becomes of new tokens, the new caches and cross-attention, by layer."""
        slots = slots._replace(view=self.relative_positions.look(slots.view))
        new, weights = [], []
        for layer, cache, memory in zip(self.layer, caches, memories, strict=True):
            x, cache, weight = layer.extend(x, cache, slots, active, memory, cross_view)
            new.append(cache)
            weights.append(weight)
        return x if self.final_norm is None else self.final_norm(x), new, weights
