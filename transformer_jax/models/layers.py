"""One layer (paper 3.1): a mixer, cross-attention if there is a memory, feed-forward."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Bool, Float
from transformer_jax.config import ModelConfig
from transformer_jax.config.registry import pick
from transformer_jax.nn.cache import KeysValues, Slots
from transformer_jax.nn.convolutions import ConvolutionModule
from transformer_jax.nn.experts import Experts
from transformer_jax.nn.feedforward import FeedForward
from transformer_jax.nn.mixers.attention import Attention
from transformer_jax.nn.mixers.kinds import MIXERS
from transformer_jax.nn.norm import make_norm
from transformer_jax.nn.residual import RESIDUALS, under
from transformer_jax.nn.view import View


def make_residual(config: ModelConfig, cross: bool) -> nn.Module:
    """Return the config's residual connection; `cross`: for a stack with cross-attention."""
    return pick(RESIDUALS, config.residual, "config.model.residual")(config, cross)


def new_feed_forward(config: ModelConfig, dtype: jnp.dtype, kind: str) -> nn.Module | None:
    """Return a feed-forward layer of this kind, if there is to be one."""
    return pick(FEED_FORWARDS, kind, "config.model.feed_forward_pattern")(config, dtype)


def dense(config: ModelConfig, dtype: jnp.dtype) -> FeedForward:
    """Return a feed-forward layer with the same parameters for all positions."""
    c = config
    return FeedForward(
        c.d_model, c.d_ff, c.activation, c.activation_dropout_rate, dtype,
        "feed_forward" in c.biases, c.feed_forward_chunks,
    )  # fmt: skip


FEED_FORWARDS: dict[str, Callable[[ModelConfig, jnp.dtype], nn.Module | None]] = {
    "dense": dense,
    "experts": Experts,
    "none": lambda config, dtype: None,
}


class Layer(nn.Module):
    """A sequence of residual parts. `kind` names the mixer, and `feed_forward_kind` the last part,
    if there is one; `cross` adds attention to a memory.
    """

    config: ModelConfig
    dtype: jnp.dtype
    kind: str
    feed_forward_kind: str
    cross: bool

    def setup(self) -> None:
        c = self.config
        mixer = pick(MIXERS, self.kind, "config.model.encoder_pattern or decoder_pattern")
        self.self_attention = mixer(c, self.dtype)
        self.self_attention_residual = make_residual(c, self.cross)
        if self.cross:
            self.cross_attention = Attention(c, self.dtype)
            self.cross_attention_residual = make_residual(c, self.cross)
        self.feed_forward: Any = new_feed_forward(c, self.dtype, self.feed_forward_kind)
        self.feed_forward_residual = make_residual(c, self.cross)

    def __call__(
        self,
        x: Float[Array, "B T E"],
        view: View,
        train: bool,
        memory: Float[Array, "B S D"] | None = None,
        cross_view: View | None = None,
        condition: Float[Array, "B D"] | None = None,
    ) -> Float[Array, "B T E"]:
        """Return the output for whole sequences, given the other sequence's hidden states, and the
        condition, a vector for each row, that leads residual connections which read one.
        """
        keys_values = None if memory is None else self.remember(memory)
        residual = under(self.self_attention_residual, condition)
        y, _ = self.self_attention.mix(residual.read(x), view, train)
        x = residual.write(x, y, train)
        return self._after_mixing(x, view, keys_values, cross_view, train, condition)[0]

    def undo(
        self,
        x: Float[Array, "B T E"],
        view: View,
        train: bool,
        memory: Float[Array, "B S D"] | None = None,
        cross_view: View | None = None,
    ) -> Float[Array, "B T E"]:
        """Return the layer's input, given its output x, if residual parts can be undone."""
        if self.feed_forward is not None:
            residual = self.feed_forward_residual
            y = self.feed_forward(residual.read_again(x), train, view.q_seg > 0)
            x = residual.unwrite(x, y, train)
        if memory is not None and cross_view is not None:
            residual, keys_values = self.cross_attention_residual, self.remember(memory)
            y, _ = self.cross_attention.recall(
                residual.read_again(x), keys_values, cross_view, train
            )
            x = residual.unwrite(x, y, train)
        residual = self.self_attention_residual
        y, _ = self.self_attention.mix(residual.read_again(x), view, train)
        return residual.unwrite(x, y, train)

    def remember(self, memory: Float[Array, "B S D"]) -> KeysValues:
        """Return cross-attention's keys and values: once per sentence, whatever is decoded."""
        return self.cross_attention.remember(memory)

    def extend(
        self,
        x: Float[Array, "B Q E"],
        cache: Any,
        slots: Slots,
        active: Bool[Array, "B"],
        memory: KeysValues | None,
        cross_view: View | None,
    ) -> tuple[Float[Array, "B Q E"], Any, Float[Array, "B N Q S"] | None]:
        """Return the output for new tokens, the new cache, and cross-attention weights."""
        y, _, cache = self.self_attention.extend(
            self.self_attention_residual.read(x), cache, slots, active
        )
        x = self.self_attention_residual.write(x, y, False)
        x, weights = self._after_mixing(x, slots.view, memory, cross_view, False)
        return x, cache, weights

    def _after_mixing(
        self,
        x: Array,
        view: View,
        memory: KeysValues | None,
        cross_view: View | None,
        train: bool,
        condition: Array | None = None,
    ) -> tuple[Array, Array | None]:
        assert self.cross == (memory is not None), "a layer with cross-attention needs a memory"
        weights = None
        if memory is not None and cross_view is not None:
            residual = under(self.cross_attention_residual, condition)
            y, weights = self.cross_attention.recall(residual.read(x), memory, cross_view, train)
            x = residual.write(x, y, train)
        if self.feed_forward is None:
            return x, weights
        residual = under(self.feed_forward_residual, condition)
        y = self.feed_forward(residual.read(x), train, view.q_seg > 0)
        return residual.write(x, y, train), weights


class ParallelLayer(Layer):
    """A mixer and a feed-forward part that both read the layer's input: see `residual.Parallel`."""

    def __call__(
        self,
        x: Float[Array, "B T E"],
        view: View,
        train: bool,
        memory: Float[Array, "B S D"] | None = None,
        cross_view: View | None = None,
        condition: Float[Array, "B D"] | None = None,
    ) -> Float[Array, "B T E"]:
        """See Layer."""
        read = self.self_attention_residual.read(x)
        y, _ = self.self_attention.mix(read, view, train)
        return self._joined(x, read, y, view, train)

    def extend(
        self,
        x: Float[Array, "B Q E"],
        cache: Any,
        slots: Slots,
        active: Bool[Array, "B"],
        memory: KeysValues | None,
        cross_view: View | None,
    ) -> tuple[Float[Array, "B Q E"], Any, Float[Array, "B N Q S"] | None]:
        """See Layer."""
        read = self.self_attention_residual.read(x)
        y, _, cache = self.self_attention.extend(read, cache, slots, active)
        return self._joined(x, read, y, slots.view, False), cache, None

    def _joined(self, x: Array, read: Array, y: Array, view: View, train: bool) -> Array:
        """Return the output, given what the mixer read and returned."""
        before, x = x, self.self_attention_residual.write(x, y, train)
        if self.feed_forward is None:
            return x
        residual = self.feed_forward_residual
        read = read if residual.one_norm else residual.read(before)
        return residual.write(x, self.feed_forward(read, train, view.q_seg > 0), train)


class CrossLayer(nn.Module):
    """Cross-attention to another sequence and feed-forward, without self-attention: the input
    provides the queries (Perceiver: Jaegle et al. 2021, arXiv:2103.03206).
    """

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        self.cross_attention = Attention(c, self.dtype)
        self.cross_attention_residual = make_residual(c, cross=False)
        self.feed_forward = dense(c, self.dtype)
        self.feed_forward_residual = make_residual(c, cross=False)

    def __call__(
        self, x: Float[Array, "B T D"], memory: Float[Array, "B S D"], view: View, train: bool
    ) -> Float[Array, "B T D"]:
        residual = self.cross_attention_residual
        x = residual.begin(x)
        seen = self.cross_attention.remember(memory)
        y, _ = self.cross_attention.recall(residual.read(x), seen, view, train)
        x = residual.write(x, y, train)
        residual = self.feed_forward_residual
        return residual.end(residual.write(x, self.feed_forward(residual.read(x), train), train))


class Conformer(Layer):
    """Four parts and a norm: half the output of a feed-forward layer, attention, a convolution, and
    half the output of another feed-forward layer (Gulati et al. 2020, arXiv:2005.08100, section 2).
    Each reads a norm of the stream; for encoders only.
    """

    def setup(self) -> None:
        super().setup()
        kind = self.feed_forward_kind
        self.first_feed_forward: Any = new_feed_forward(self.config, self.dtype, kind)
        self.first_feed_forward_residual = make_residual(self.config, self.cross)
        self.convolution = ConvolutionModule(self.config, self.dtype)
        self.convolution_residual = make_residual(self.config, self.cross)
        self.final_norm = make_norm(self.config)

    def __call__(
        self,
        x: Float[Array, "B T E"],
        view: View,
        train: bool,
        memory: Float[Array, "B S D"] | None = None,
        cross_view: View | None = None,
        condition: Float[Array, "B D"] | None = None,
    ) -> Float[Array, "B T E"]:
        """See Layer."""
        residual = self.first_feed_forward_residual
        y = self.first_feed_forward(residual.read(x), train, view.q_seg > 0)
        x = residual.write(x, y / 2, train)
        y, _ = self.self_attention.mix(self.self_attention_residual.read(x), view, train)
        x = self.self_attention_residual.write(x, y, train)
        y = self.convolution(self.convolution_residual.read(x), view)
        x = self.convolution_residual.write(x, y, train)
        y = self.feed_forward(self.feed_forward_residual.read(x), train, view.q_seg > 0)
        return self.final_norm(self.feed_forward_residual.write(x, y / 2, train))
