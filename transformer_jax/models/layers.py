"""One encoder layer and one decoder layer (paper 3.1)."""

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.arrays import Array, Float, Int
from transformer_jax.choices import pick
from transformer_jax.config import ModelConfig
from transformer_jax.nn.attention.heads import Attention
from transformer_jax.nn.cache import KeysValues
from transformer_jax.nn.feedforward import FeedForward
from transformer_jax.nn.norm import NORMS
from transformer_jax.nn.residual import RESIDUALS
from transformer_jax.nn.view import View


def make_norm(config: ModelConfig) -> nn.Module:
    """Return the norm that the config names."""
    return pick(NORMS, config.norm, "config.model.norm")(config.norm_epsilon)


def make_residual(config: ModelConfig) -> nn.Module:
    """Return the residual connection that the config names."""
    residual = pick(RESIDUALS, config.residual, "config.model.residual")
    return residual(make_norm(config), config.dropout_rate)


def make_feed_forward(config: ModelConfig, dtype: jnp.dtype) -> FeedForward:
    """Return the feed-forward sub-layer that the config describes."""
    return FeedForward(
        config.d_model, config.d_ff, config.activation, config.activation_dropout_rate, dtype
    )


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        self.self_attention = Attention(self.config, self.dtype)
        self.self_attention_residual = make_residual(self.config)
        self.feed_forward = make_feed_forward(self.config, self.dtype)
        self.feed_forward_residual = make_residual(self.config)

    def __call__(self, x: Float[Array, "B S D"], view: View, train: bool) -> Float[Array, "B S D"]:
        y = self.self_attention_residual.read(x)
        y, _ = self.self_attention(*self.self_attention.queries_keys_values(y), view, train)
        x = self.self_attention_residual.write(x, y, train)
        y = self.feed_forward(self.feed_forward_residual.read(x), train)
        return self.feed_forward_residual.write(x, y, train)


class DecoderLayer(nn.Module):
    """Self-attention, attention on the encoder's output, then feed-forward."""

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        self.self_attention = Attention(self.config, self.dtype)
        self.self_attention_residual = make_residual(self.config)
        self.cross_attention = Attention(self.config, self.dtype)
        self.cross_attention_residual = make_residual(self.config)
        self.feed_forward = make_feed_forward(self.config, self.dtype)
        self.feed_forward_residual = make_residual(self.config)

    def memory_keys_values(self, memory: Float[Array, "B S D"]) -> KeysValues:
        """Return what cross-attention looks at: once per sentence, whatever is decoded from it."""
        return self.cross_attention.keys_values(memory)

    def __call__(
        self,
        x: Float[Array, "B T D"],
        memory: KeysValues,
        self_view: View,
        cross_view: View,
        train: bool,
        cache: KeysValues | None = None,
        slots: Int[Array, "B T"] | None = None,
    ) -> tuple[Float[Array, "B T D"], KeysValues | None, Float[Array, "B N T S"]]:
        """Return the output, the cache with the new keys and values, and cross-attention."""
        y = self.self_attention_residual.read(x)
        queries, past = self.self_attention.queries_keys_values(y)
        if cache is not None and slots is not None:
            past = cache = cache.write(slots, past)
        y, _ = self.self_attention(queries, past, self_view, train)
        x = self.self_attention_residual.write(x, y, train)
        queries = self.cross_attention.queries(self.cross_attention_residual.read(x))
        y, weights = self.cross_attention(queries, memory, cross_view, train)
        x = self.cross_attention_residual.write(x, y, train)
        y = self.feed_forward(self.feed_forward_residual.read(x), train)
        return self.feed_forward_residual.write(x, y, train), cache, weights
