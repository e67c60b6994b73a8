"""Attention within a window, at a cost linear rather than quadratic in the length."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from transformer_jax.base.arrays import Array, Bool, Float, Size
from transformer_jax.base.shares import numbered, numbers_of, parts_of, row_parts, rows, taken
from transformer_jax.nn.cache import KeysValues, Lanes, Slots
from transformer_jax.nn.mixers import fused
from transformer_jax.nn.mixers.attention import Attention
from transformer_jax.nn.relative_positions import scheme_of
from transformer_jax.nn.ring import Ring
from transformer_jax.nn.view import View

_POSITIONS = ("context",)  # the mesh axes that divide positions within attention


class LocalAttention(Attention):
    """Attention to positions less than `config.window` away (Beltagy et al. 2020,
    arXiv:2004.05150).

    Long texts are cut into blocks as long as the window, whose queries attend to their own block,
    the one before it and, if they may look ahead, the one after it. A search keeps the window.
    """

    in_slots = False

    def setup(self) -> None:
        super().setup()
        c = self.config
        own = replace(c, rope_theta=c.local_rope_theta or c.rope_theta, rope_scaling="none")
        self.own_rotation = None if c.local_rope_theta is None else scheme_of("stack", own)

    @property
    def _dilation(self) -> int:
        return 1

    def _view(self, view: View) -> View:
        window = self.config.window
        assert window is not None
        view = super()._view(view)
        view = view if self.own_rotation is None else self.own_rotation(view)
        return view.within(window * self._dilation, self._dilation)

    def empty(self, lanes: Lanes) -> Ring:
        """See Mixer."""
        c = self.config
        assert c.window is not None
        reach = (c.window - 1) * self._dilation + 1
        return Ring.empty(lanes, reach, c.kv_heads, c.key_size, c.value_size, self.dtype)

    def extend(
        self, x: Float[Array, "B Q D"], cache: Ring, slots: Slots, active: Bool[Array, "B"]
    ) -> tuple[Float[Array, "B Q D"], Float[Array, "B N Q C"] | None, Ring]:
        """See Mixer: a prompt shared by all hypotheses, or new tokens of each."""
        view = self._view(slots.view)
        q, new = self._queries_keys_values(x, view)
        if view.visible is None:
            mixed, weights = self._gather_gated(x, q, new, view.on_itself(), False)
            return mixed, weights, cache.prompted(new, view.q_seg)
        batch, width, _ = cache.seen.shape
        pos = view.q_pos.reshape(batch, width, -1)
        cache = cache.write(pos[:, 0], new, active)
        visible = jnp.repeat(cache.seen, pos.shape[2], axis=1)
        view = view.on_slots(visible, cache.k_pos())
        return *self._gather_gated(x, q, cache.memory, view, False), cache

    def _heads(
        self, q: Float[Array, "B N T H"], memory: KeysValues, view: View, train: bool
    ) -> tuple[Float[Array, "B N T Hv"], Float[Array, "B N T S"] | None]:
        size, length = self.config.window, q.shape[2]
        assert size is not None
        by_lengths = (
            self.config.attention == "fused"
            and self.config.attention_softcap is None
            and fused.lengths_say_it(view)
            and fused.why_not_here(q.shape[-1], q.dtype) is None
        )
        short = length <= 2 * size * self._dilation
        slots = view.visible is not None  # of a search
        if slots or view.order == "ranked" or by_lengths or short:
            return super()._heads(q, memory, view, train)
        blocks = Blocks(q.shape[0], length, size, self._dilation, view.order == "all")
        keys, values = blocks.around(memory.keys, 3), blocks.around(memory.values, 2)
        with blocks.numbered():
            mixed, weights = self._mixed(
                blocks.own(q, 2), KeysValues(keys, values), blocks.view(view), train
            )
        return blocks.whole(mixed), blocks.spread(weights)


class DilatedAttention(LocalAttention):
    """Attention to every `config.dilation`th position of a window that many times as wide."""

    @property
    def _dilation(self) -> int:
        return self.config.dilation


class Blocks:
    """Sequences cut into blocks of `size` positions, each a row of a larger batch.

    With a dilation of n, each row has every n-th position, and together the rows have all of them.
    Where the mesh divides positions (`context`), and these into whole blocks, each device has the
    blocks of its own positions, and receives no others than those beside them.
    """

    def __init__(self, batch: Size, length: Size, size: int, dilation: int, ahead: bool) -> None:
        self._batch, self._length, self._size = batch, length, size
        self._dilation, self._ahead = dilation, ahead
        self._count = -(-length // (size * dilation))  # blocks in a row
        self._rows_over, self._blocks_over = row_parts(), parts_of(_POSITIONS)  # devices
        self._divided = (
            self._blocks_over > 1
            and batch % self._rows_over == 0
            and length % (size * dilation * self._blocks_over) == 0
        )

    def own(self, x: Array, axis: int) -> Array:
        """Return the blocks of data of positions along an axis."""
        return self._rows(self._cut(x, axis), axis)

    def around(self, x: Array, axis: int) -> Array:
        """Return, for each block, the blocks that its queries attend to."""
        x = self._cut(x, axis)
        if not self._divided:
            return self._rows(self._with_neighbours(x), axis)
        lies = PartitionSpec(None, None, _POSITIONS)
        mapped = jax.shard_map(
            self._with_neighbours, in_specs=lies, out_specs=lies,
            axis_names={*_POSITIONS, *taken()}, check_vma=False,
        )  # fmt: skip
        return self._rows(mapped(x), axis)

    def each(self, x: Array) -> Array:
        """Return a sequence's data for each of its blocks."""
        shape = self._batch, self._dilation, self._count, *x.shape[1:]
        return self._rows(jnp.broadcast_to(x[:, None, None], shape), 1)

    @contextmanager
    def numbered(self) -> Iterator[None]:
        """Compute with blocks as rows: those that depend on their numbers, as dropout does, depend
        on no mesh.
        """
        if not self._divided:
            yield
            return
        count = self._batch * self._dilation * self._count
        numbers = numbers_of(count)
        numbers = jnp.arange(count, dtype=jnp.uint32) if numbers is None else numbers
        shape = self._batch, self._dilation, self._count, 1
        with numbered(self._rows(numbers.reshape(shape), 1)[:, 0]):
            yield

    def view(self, view: View) -> View:
        """Return the view of blocks on those around them."""
        return replace(
            view,
            q_pos=self.own(view.q_pos, 1), q_seg=self.own(view.q_seg, 1),
            k_pos=self.around(view.k_pos, 1), k_seg=self.around(view.k_seg, 1),
            q_rank=None, k_rank=None, single=False,
        )  # fmt: skip

    def whole(self, mixed: Float[Array, "R N C Hv"]) -> Float[Array, "B N T Hv"]:
        """Reassemble blocks of heads."""
        x = self._in_order(mixed)
        x = x.reshape(self._batch, self._dilation, self._count, *mixed.shape[1:])
        x = jnp.moveaxis(x, (1, 3), (4, 1))  # [B N blocks size dilation Hv]
        return x.reshape(self._batch, x.shape[1], -1, x.shape[-1])[:, :, : self._length]

    def spread(self, weights: Float[Array, "R N C K"]) -> Float[Array, "B N T T"]:
        """Return the weights of blocks as weights of all pairs, with 0 elsewhere."""
        columns = jnp.broadcast_to(jnp.arange(self._length), (self._batch, self._length))
        place = jax.nn.one_hot(self.around(columns, 1), self._length, dtype=weights.dtype)
        return self.whole(jnp.einsum("RNCK,RKT->RNCT", weights, place))

    def _cut(self, x: Array, axis: int) -> Array:
        """Return x as [B dilation blocks size ...], with the last blocks zero-padded."""
        x = jnp.moveaxis(x, axis, 1)
        new = self._count * self._size * self._dilation - self._length
        x = jnp.pad(x, ((0, 0), (0, new), *((0, 0),) * (x.ndim - 2)))
        x = x.reshape(self._batch, self._count * self._size, self._dilation, *x.shape[2:])
        x = x.swapaxes(1, 2)
        return x.reshape(self._batch, self._dilation, self._count, self._size, *x.shape[3:])

    def _with_neighbours(self, x: Array) -> Array:
        """Return [B dilation blocks size ...] with those beside each block, sizes joined; 0 beyond
        the ends.
        """
        parts = [jnp.concatenate([self._passed(x[:, :, -1:], 1), x[:, :, :-1]], axis=2), x]
        if self._ahead:
            parts.append(jnp.concatenate([x[:, :, 1:], self._passed(x[:, :, :1], -1)], axis=2))
        return jnp.concatenate(parts, axis=3)

    def _passed(self, block: Array, step: int) -> Array:
        """Return what the device `step` before this one gives; 0 if there is none."""
        if not self._divided:
            return jnp.zeros_like(block)
        over = range(self._blocks_over)
        moves = [(i, i + step) for i in over if i + step in over]
        return jax.lax.ppermute(block, _POSITIONS, moves)

    def _rows(self, x: Array, axis: int) -> Array:
        """Return [B dilation blocks size ...] with blocks as rows, those of a device together."""
        if self._divided:
            over, blocks = self._rows_over, self._blocks_over
            x = x.reshape(over, -1, self._dilation, blocks, self._count // blocks, *x.shape[3:])
            x = jnp.moveaxis(x, 3, 1)
            x = self._on_devices(x.reshape(-1, *x.shape[5:]))
        else:
            x = x.reshape(-1, *x.shape[3:])
        return jnp.moveaxis(x, 1, axis)

    def _in_order(self, x: Array) -> Array:
        """Return blocks as rows in the order of sequences, [B dilation blocks ...]."""
        if not self._divided:
            return x
        over, blocks = self._rows_over, self._blocks_over
        each = self._batch // over, self._dilation, self._count // blocks
        x = self._on_devices(x).reshape(over, blocks, *each, *x.shape[1:])
        return jnp.moveaxis(x, 1, 3)

    def _on_devices(self, x: Array) -> Array:
        free = (PartitionSpec.UNCONSTRAINED,) * (x.ndim - 1)
        return jax.lax.with_sharding_constraint(x, PartitionSpec((*rows(), *_POSITIONS), *free))


WORDS = {"local": LocalAttention, "dilated": DilatedAttention}
