"""Attention along some axes of a clip, whose tubelets stand in a row by time, row and column."""

import math
from collections.abc import Sequence

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, Int, at_least_float32
from transformer_jax.base.errors import UserError
from transformer_jax.nn.linear import Project
from transformer_jax.nn.mixers.attention import Attention
from transformer_jax.nn.roles import OWN_MAP
from transformer_jax.nn.view import View, self_view


def tubelets(grid: Sequence[int], x: Array, before: int) -> Array:
    """Return what follows the first positions of [B L ...], laid out as the clip: [B T S ...], S
    places of a frame.

    Raises:
      UserError: if there are fewer than the grid has.
    """
    times, places = grid[0], math.prod(grid[1:])
    last = before + times * places
    if x.shape[1] < last:
        raise UserError(
            f"config.model.grid={(*grid,)}: the source side has {x.shape[1] - before} vectors; set "
            "it to the times, rows and columns of tubelets in a clip"
        )
    return x[:, before:last].reshape(x.shape[0], times, places, *x.shape[2:])


def frames(grid: Sequence[int], x: Array, before: int) -> Array:
    """Return the frames of clips [B L ...] as rows, [B*T before+S ...], each with its own copy of
    the positions before them.
    """
    clip = tubelets(grid, x, before)
    first = jnp.broadcast_to(x[:, None, :before], (*clip.shape[:2], before, *x.shape[2:]))
    each = jnp.concatenate([first, clip], axis=2)
    return each.reshape(-1, *each.shape[2:])


class _PartsAttention(Attention):
    """Attention within parts of rows."""

    gates = False

    def _within(
        self, rows: Float[Array, "R T D"], seg: Int[Array, "R T"], view: View, train: bool
    ) -> Float[Array, "R T D"]:
        """Return what each position gathers from its part, a row; `view` is that of whole rows."""
        pos = jnp.broadcast_to(jnp.arange(seg.shape[1])[None], seg.shape)
        view = self._view(self_view(pos, seg, "all", single=view.single))
        q, own = self._queries_keys_values(rows, view)
        return self._gather(q, own, view, train)[0]


class SpaceAttention(_PartsAttention):
    """Attention among the tubelets of a time. What stands before them, a class token, takes part in
    every frame, and gathers the mean of what its copies do (TimeSformer: Bertasius et al. 2021,
    arXiv:2102.05095, section 3, and its code).
    """

    def mix(
        self, x: Float[Array, "B L D"], view: View, train: bool
    ) -> tuple[Float[Array, "B L D"], None]:
        """See Mixer; without weights, as those of a frame are not of pairs of all positions."""
        grid, before, (batch, length, width) = self.config.grid, view.before, x.shape
        rows, seg = (frames(grid, each, before) for each in (x, view.q_seg))
        mixed = self._within(rows, seg, view, train)
        each = mixed.reshape(batch, grid[0], -1, width)
        first = at_least_float32(each[:, :, :before]).mean(1).astype(each.dtype)
        clip = each[:, :, before:].reshape(batch, -1, width)
        return _whole([first, clip], length), None


class TimeAttention(_PartsAttention):
    """Attention among the tubelets at a place of all times. What stands before them gathers nothing
    and is not seen (TimeSformer, see above).
    """

    def mix(
        self, x: Float[Array, "B L D"], view: View, train: bool
    ) -> tuple[Float[Array, "B L D"], None]:
        """See Mixer; without weights."""
        grid, before, (batch, length, width) = self.config.grid, view.before, x.shape
        each = (tubelets(grid, y, before).swapaxes(1, 2) for y in (x, view.q_seg))
        rows, seg = (y.reshape(-1, *y.shape[2:]) for y in each)
        mixed = self._within(rows, seg, view, train)
        clip = mixed.reshape(batch, -1, grid[0], width).swapaxes(1, 2).reshape(batch, -1, width)
        return _whole([jnp.zeros((batch, before, width), clip.dtype), clip], length), None


class MappedTimeAttention(TimeAttention):
    """The same with one more linear map, which starts at zero, so that a model of pictures reads
    clips from the start as it read their frames.
    """

    def setup(self) -> None:
        super().setup()
        width, zeros = self.config.d_model, nn.initializers.zeros
        self.map = Project(
            (width,), (width,), ("features", "embed"), self.dtype, role=OWN_MAP, start=zeros
        )

    def _joined(self, mixed: Float[Array, "B N T Hv"]) -> Float[Array, "B T D"]:
        return self.map(super()._joined(mixed))


def _whole(parts: list[Array], length: int) -> Float[Array, "B L D"]:
    """Return parts of rows in their order, with zeros behind."""
    x = jnp.concatenate(parts, axis=1)
    return jnp.pad(x, ((0, 0), (0, length - x.shape[1]), (0, 0)))


WORDS = {
    "space": SpaceAttention,
    "time": TimeAttention,
    "divided": SpaceAttention,
}  # before it, a divided layer has another: see `models.divided`
