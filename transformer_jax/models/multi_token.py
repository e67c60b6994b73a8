"""Multi-token prediction: parts of a decoder that predict the pieces after the next one."""

import dataclasses
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from flax import struct

from transformer_jax.base.arrays import Array, Float, Int
from transformer_jax.config import ModelConfig
from transformer_jax.models.stack import Stack
from transformer_jax.nn.cache import Lanes
from transformer_jax.nn.linear import Project
from transformer_jax.nn.norm import make_norm
from transformer_jax.nn.roles import HEAD


class Parallel(nn.Module):
    """One more layer on the input of the decoder's last one (Gloeckle et al. 2024,
    arXiv:2404.19737), of the same kind, and a norm, if layers do not end with one. The map to
    logits is the decoder's.
    """

    config: ModelConfig
    dtype: jnp.dtype

    chained = False  # whether it reads the output of the part before it

    def setup(self) -> None:
        self.stack = _one_layer(self.config, self.dtype)

    def enter(self, x: Float[Array, "B T D"], piece: Float[Array, "B T D"]) -> Array:
        """Return the layer's input."""
        return x


class Sequential(nn.Module):
    """One more layer, which reads M [norm(x); norm(e)], of what the decoder or the part before made
    of a position, after its last norm, and the embedding of the next piece that x does not know
    (DeepSeek-V3: arXiv:2412.19437, equations 21 to 23). The table and the map to logits are the
    decoder's.

    A map of both is stored as two matrices, that of e first, as in the published checkpoints.
    """

    config: ModelConfig
    dtype: jnp.dtype

    chained = True

    def setup(self) -> None:
        c = self.config
        self.piece_norm, self.hidden_norm = make_norm(c), make_norm(c)
        names = ("gates", "embed", "features")
        self.join = Project((2, c.d_model), (c.d_model,), names, self.dtype, False, HEAD)
        self.stack = _one_layer(c, self.dtype)

    def enter(self, x: Float[Array, "B T D"], piece: Float[Array, "B T D"]) -> Array:
        """Return the layer's input."""
        return self.join(jnp.stack([self.piece_norm(piece), self.hidden_norm(x)], axis=2))


def _one_layer(config: ModelConfig, dtype: jnp.dtype) -> Stack:
    """Return a layer of the kinds of the decoder's last one."""
    last, kinds = config.num_decoder_layers - 1, config.feed_forward_pattern
    mixer = config.decoder_pattern[last % len(config.decoder_pattern)]
    alike = dataclasses.replace(config, feed_forward_pattern=(kinds[last % len(kinds)],))
    return Stack(alike, dtype, 1, (mixer,), cross=False)


@struct.dataclass
class Further:
    """What a search keeps to predict further pieces: what each layer beside the decoder's keeps,
    and what the first of them read at the positions of the last step.
    """

    caches: Any
    hidden: Float[Array, "B W T D"]
    first: Int[Array, "B"]  # the first of these positions

    def reorder(self, parents: Int[Array, "B W"]) -> "Further":
        """Let hypothesis w continue hypothesis parents[w]."""
        caches = [cache.reorder(parents) for cache in self.caches]
        hidden = jnp.take_along_axis(self.hidden, parents[:, :, None, None], axis=1)
        return self.replace(caches=caches, hidden=hidden)  # type: ignore[attr-defined]

    def grow(self, before: Lanes, after: Lanes) -> "Further":
        """Return the same with the room of other lanes."""
        caches = [cache.grow(before, after) for cache in self.caches]
        return self.replace(caches=caches)  # type: ignore[attr-defined]


# By the words of `model.multi_token`.
MULTI_TOKENS: dict[str, type[Parallel] | type[Sequential] | None] = {
    "none": None, "sequential": Sequential, "parallel": Parallel,
}  # fmt: skip


def name_of(depth: int) -> str:
    """Return the name of a prediction: of the piece `depth` after the next one, from 1."""
    return f"future_{depth}"


def later(x: Int[Array, "B T"] | Any, depth: int) -> Any:
    """Return what stands `depth` positions later in each row; zeros beyond its end."""
    return jnp.pad(x[:, depth:], ((0, 0), (0, min(depth, x.shape[1]))))
