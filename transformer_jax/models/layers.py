"""One layer (paper 3.1): a mixer, cross-attention where there is a memory, feed-forward."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.arrays import Array, Bool, Float
from transformer_jax.choices import pick
from transformer_jax.config import ModelConfig
from transformer_jax.nn.cache import KeysValues, Slots
from transformer_jax.nn.convolutions import ConvolutionModule
from transformer_jax.nn.feedforward import FeedForward
from transformer_jax.nn.mixers.attention import Attention
from transformer_jax.nn.mixers.kinds import MIXERS
from transformer_jax.nn.norm import make_norm
from transformer_jax.nn.residual import RESIDUALS
from transformer_jax.nn.view import View


def make_residual(config: ModelConfig, cross: bool) -> nn.Module:
    """Return the residual connection that the config names, for a stack with cross-attention."""
    return pick(RESIDUALS, config.residual, "config.model.residual")(config, cross)


def new_feed_forward(config: ModelConfig, dtype: jnp.dtype) -> FeedForward:
    """Return the feed-forward layer that the config says."""
    c = config
    return FeedForward(
        c.d_model, c.d_ff, c.activation, c.activation_dropout_rate, dtype,
        "feed_forward" in c.biases, c.feed_forward_chunks,
    )  # fmt: skip


class Layer(nn.Module):
    """Residual parts in an order. `kind` names the mixer; with `cross` it looks at a memory too."""

    config: ModelConfig
    dtype: jnp.dtype
    kind: str
    cross: bool

    def setup(self) -> None:
        c = self.config
        mixer = pick(MIXERS, self.kind, "config.model.encoder_pattern or decoder_pattern")
        self.self_attention = mixer(c, self.dtype)
        self.self_attention_residual = make_residual(c, self.cross)
        if self.cross:
            self.cross_attention = Attention(c, self.dtype)
            self.cross_attention_residual = make_residual(c, self.cross)
        self.feed_forward = new_feed_forward(c, self.dtype)
        self.feed_forward_residual = make_residual(c, self.cross)

    def __call__(
        self,
        x: Float[Array, "B T E"],
        view: View,
        train: bool,
        memory: Float[Array, "B S D"] | None = None,
        cross_view: View | None = None,
    ) -> Float[Array, "B T E"]:
        """Return what becomes of whole sequences, beside the other sequence's hidden states."""
        keys_values = None if memory is None else self.remember(memory)
        y, _ = self.self_attention.mix(self.self_attention_residual.read(x), view, train)
        x = self.self_attention_residual.write(x, y, train)
        return self._after_mixing(x, keys_values, cross_view, train)[0]

    def undo(
        self,
        x: Float[Array, "B T E"],
        view: View,
        train: bool,
        memory: Float[Array, "B S D"] | None = None,
        cross_view: View | None = None,
    ) -> Float[Array, "B T E"]:
        """Return what the layer has made x of, where residual parts can be undone."""
        residual = self.feed_forward_residual
        x = residual.unwrite(x, self.feed_forward(residual.read_again(x), train), train)
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
        """Return what cross-attention looks at: once a sentence, whatever is decoded from it."""
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
        """Return what becomes of new tokens, the new cache, and cross-attention."""
        y, _, cache = self.self_attention.extend(
            self.self_attention_residual.read(x), cache, slots, active
        )
        x = self.self_attention_residual.write(x, y, False)
        x, weights = self._after_mixing(x, memory, cross_view, False)
        return x, cache, weights

    def _after_mixing(
        self, x: Array, memory: KeysValues | None, cross_view: View | None, train: bool
    ) -> tuple[Array, Array | None]:
        assert self.cross == (memory is not None), "a layer with cross-attention wants a memory"
        weights = None
        if memory is not None and cross_view is not None:
            y = self.cross_attention_residual.read(x)
            y, weights = self.cross_attention.recall(y, memory, cross_view, train)
            x = self.cross_attention_residual.write(x, y, train)
        y = self.feed_forward(self.feed_forward_residual.read(x), train)
        return self.feed_forward_residual.write(x, y, train), weights


class CrossLayer(nn.Module):
    """Residual parts that look at another sequence, and at nothing of their own: what is read is
    queries, and beside them feed-forward alone follows (Perceiver: Jaegle et al. 2021,
    arXiv:2103.03206).
    """

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        self.cross_attention = Attention(c, self.dtype)
        self.cross_attention_residual = make_residual(c, cross=False)
        self.feed_forward = new_feed_forward(c, self.dtype)
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
    """Four parts and a norm: half of what a feed-forward layer says, attention, a convolution, and
    half of another feed-forward layer (Gulati et al. 2020, arXiv:2005.08100, section 2). Each reads
    a norm of the stream; it stands in encoders alone.
    """

    def setup(self) -> None:
        super().setup()
        self.first_feed_forward = new_feed_forward(self.config, self.dtype)
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
    ) -> Float[Array, "B T E"]:
        """See Layer."""
        residual = self.first_feed_forward_residual
        x = residual.write(x, self.first_feed_forward(residual.read(x), train) / 2, train)
        y, _ = self.self_attention.mix(self.self_attention_residual.read(x), view, train)
        x = self.self_attention_residual.write(x, y, train)
        y = self.convolution(self.convolution_residual.read(x), view)
        x = self.convolution_residual.write(x, y, train)
        y = self.feed_forward(self.feed_forward_residual.read(x), train) / 2
        return self.final_norm(self.feed_forward_residual.write(x, y, train))


# Words of a pattern that are no layers of the usual parts.
LAYERS: dict[str, type[Layer]] = {"conformer": Conformer}
