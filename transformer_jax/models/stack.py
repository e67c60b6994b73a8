"""The loop over layers. Parameters are stored per layer, however the loop runs."""

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.arrays import Array, Float, Int
from transformer_jax.choices import pick
from transformer_jax.config import ModelConfig
from transformer_jax.models.layers import DecoderLayer, EncoderLayer, make_norm
from transformer_jax.nn.cache import KeysValues
from transformer_jax.nn.residual import RESIDUALS
from transformer_jax.nn.view import View


def needs_final_norm(config: ModelConfig) -> bool:
    """Say whether the residual form leaves the stack's output unnormalised."""
    return pick(RESIDUALS, config.residual, "config.model.residual").needs_final_norm


class Encoder(nn.Module):
    """The encoder's layers."""

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        self.layer = [EncoderLayer(c, self.dtype) for _ in range(c.num_encoder_layers)]
        self.final_norm = make_norm(c) if needs_final_norm(c) else None

    def __call__(self, x: Float[Array, "B S D"], view: View, train: bool) -> Float[Array, "B S D"]:
        for layer in self.layer:
            x = layer(x, view, train)
        return x if self.final_norm is None else self.final_norm(x)


class Decoder(nn.Module):
    """The decoder's layers."""

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        self.layer = [DecoderLayer(c, self.dtype) for _ in range(c.num_decoder_layers)]
        self.final_norm = make_norm(c) if needs_final_norm(c) else None

    def memory_keys_values(self, memory: Float[Array, "B S D"]) -> list[KeysValues]:
        """Return what each layer's cross-attention looks at."""
        return [layer.memory_keys_values(memory) for layer in self.layer]

    def __call__(
        self,
        x: Float[Array, "B T D"],
        memory: list[KeysValues],
        self_view: View,
        cross_view: View,
        train: bool,
        caches: list[KeysValues] | None = None,
        slots: Int[Array, "B T"] | None = None,
    ) -> tuple[Float[Array, "B T D"], list[KeysValues], list[Float[Array, "B N T S"]]]:
        """Return the output, the new caches and the cross-attention weights, layer by layer."""
        old: list[KeysValues | None] = list(caches) if caches else [None] * len(self.layer)
        new, weights = [], []
        for layer, past, keys_values in zip(self.layer, old, memory, strict=True):
            x, cache, weight = layer(x, keys_values, self_view, cross_view, train, past, slots)
            if cache is not None:
                new.append(cache)
            weights.append(weight)
        return x if self.final_norm is None else self.final_norm(x), new, weights
