"""The cache of self-attention: a value that goes in and comes out.

All W hypotheses of a sentence write into one row of slots. The first P hold the prompt, which all
of them share; hypothesis w writes its p-th token to slot P + p W + w. Which slots a hypothesis
descends from is a bit mask, so reordering a beam moves W x C bits and leaves keys and values where
they are; a step reads each of them once and multiplies it with W queries at once. Rewinding is
clearing bits. Where no layer keeps anything in slots, there are none.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from transformer_jax.arrays import Array, Bool, Float, Int, Size
from transformer_jax.nn.view import Order, View, slot_view


class KeysValues(NamedTuple):
    """What attention looks at, laid out as its two products read it, heads first."""

    keys: Float[Array, "B K H S"]
    values: Float[Array, "B K S Hv"]

    @classmethod
    def empty(
        cls, batch: Size, slots: int, heads: int, key_size: int, value_size: int, dtype: jnp.dtype
    ) -> "KeysValues":
        """Return room for so many slots.

        On a CPU it is at least float32: XLA writes to nothing narrower there, and would convert
        all slots to float32 and back in every step. What is kept are the same numbers.
        """
        if jax.default_backend() == "cpu":
            dtype = jnp.promote_types(dtype, jnp.float32)
        return cls(
            jnp.zeros((batch, heads, key_size, slots), dtype),
            jnp.zeros((batch, heads, slots, value_size), dtype),
        )

    def write(self, slots: Int[Array, "B T"], new: "KeysValues") -> "KeysValues":
        """Return a copy with the keys and values of T new tokens in the given slots."""
        rows = jnp.arange(slots.shape[0])[:, None]
        keys, values = new.keys.transpose(0, 3, 1, 2), new.values.swapaxes(1, 2)
        return KeysValues(
            self.keys.at[rows, :, :, slots].set(keys, unique_indices=True),
            self.values.at[rows, :, slots].set(values, unique_indices=True),
        )

    def grow(self, before: "Lanes", after: "Lanes") -> "KeysValues":
        """See Cache."""
        keys = before.moved(self.keys, 3, after)
        return KeysValues(keys, before.moved(self.values, 2, after))

    def reorder(self, parents: Int[Array, "B W"]) -> "KeysValues":
        """See Cache: the lanes say who descends from whom."""
        return self

    def rewind(self, position: Int[Array, "B"]) -> "KeysValues":
        """See Cache: the lanes say what is forgotten."""
        return self

    def keep(self, tokens: int) -> "KeysValues":
        """See Cache: all tokens can be taken back."""
        return self

    def part(self, first: Any, size: int) -> "KeysValues":
        """See Cache."""
        return KeysValues(
            jax.lax.dynamic_slice_in_dim(self.keys, first, size, 3),
            jax.lax.dynamic_slice_in_dim(self.values, first, size, 2),
        )

    def with_part(self, first: Any, size: int, part: "KeysValues") -> "KeysValues":
        """See Cache."""
        return KeysValues(
            jax.lax.dynamic_update_slice_in_dim(self.keys, part.keys, first, 3),
            jax.lax.dynamic_update_slice_in_dim(self.values, part.values, first, 2),
        )

    def as_prompt(self, lanes: "Lanes", reach: int) -> "KeysValues":
        """See Cache."""
        return self.pad(lanes.seen.shape[2])

    def pad(self, slots: int) -> "KeysValues":
        """Return a copy with empty slots behind, `slots` in all."""
        new = slots - self.keys.shape[3]
        return KeysValues(
            jnp.pad(self.keys, ((0, 0), (0, 0), (0, 0), (0, new))),
            jnp.pad(self.values, ((0, 0), (0, 0), (0, new), (0, 0))),
        )


class Slots(NamedTuple):
    """Where new tokens go, and what they see there."""

    number: Int[Array, "B Q"]  # beyond the last slot: nowhere
    view: View
    limit: Size  # positions lie below


@struct.dataclass
class Lanes:
    """Which slots each of the W hypotheses of each sentence has written or inherited.

    Positions count the tokens that a hypothesis wrote; of the sentence it is `start` more.
    """

    seen: Bool[Array, "B W C"]
    start: Int[Array, "B"]  # how long the prompt is
    length: int = struct.field(pytree_node=False)  # positions there is room for, without a prompt
    shared: int = struct.field(pytree_node=False, default=0)  # and for a prompt
    slotted: bool = struct.field(pytree_node=False, default=True)  # whether there are slots

    @classmethod
    def empty(cls, batch: Size, width: int, length: int, slotted: bool = True) -> "Lanes":
        """Return lanes with room for `length` positions, and no prompt."""
        seen = jnp.zeros((batch, width, length * width * slotted), bool)
        return cls(seen, jnp.zeros(batch, jnp.int32), length, slotted=slotted)

    def prompt(
        self, seg: Int[Array, "B P"], order: Order, rank: Int[Array, "B P"] | None = None
    ) -> tuple["Lanes", Slots]:
        """Put a prompt before empty lanes: return them with its slots, and its own view."""
        batch, shared = seg.shape
        here = jnp.broadcast_to((seg > 0)[:, None], (*self.seen.shape[:2], shared))
        seen = jnp.concatenate([here, self.seen], axis=2) if self.slotted else self.seen
        start = (seg > 0).sum(1, dtype=jnp.int32)
        lanes = replace(self, seen=seen, start=start, shared=shared)
        pos = jnp.broadcast_to(jnp.arange(shared)[None], (batch, shared))

        def on_slots(x: Int[Array, "B P"]) -> Int[Array, "B C"]:
            return jnp.pad(x, ((0, 0), (0, seen.shape[2] - shared))) if self.slotted else x

        q_rank, k_rank = (None, None) if rank is None else (rank, on_slots(rank))
        rows = pos, on_slots(pos), seg, on_slots(seg), q_rank, k_rank
        view = View(*rows, order=order, bidirectional=order != "causal")
        return lanes, Slots(pos, view, shared)

    def fill(
        self, positions: Int[Array, "B T"], active: Bool[Array, "B"], order: Order
    ) -> tuple["Lanes", Slots]:
        """Claim slots for T new tokens of each hypothesis, Q = W T in all, one after another.

        Sentences that are not active claim none.
        """
        batch, width, count = self.seen.shape
        own = positions[:, None, :] * width + jnp.arange(width).reshape(1, width, 1)
        nowhere = jnp.where(active, 0, count).reshape(batch, 1, 1)
        slots = self.shared + own + nowhere
        rows = jnp.arange(batch).reshape(batch, 1, 1)
        lanes = jnp.arange(width).reshape(1, width, 1)
        seen = self.seen.at[rows, lanes, slots].set(True) if self.slotted else self.seen
        new = positions.shape[1]
        queries = (batch, width * new)
        visible = jnp.repeat(seen, new, axis=1)
        q_pos = (self.start[:, None] + positions)[:, None, :]
        q_pos = jnp.broadcast_to(q_pos, (batch, width, new)).reshape(queries)
        view = slot_view(visible, q_pos, self._positions(), order)
        limit = self.shared + self.length
        return replace(self, seen=seen), Slots(slots.reshape(queries), view, limit)

    def _positions(self) -> Int[Array, "B C"]:
        """Return the position in the sentence that each slot holds."""
        batch, width, count = self.seen.shape
        if not self.slotted:
            return jnp.zeros((batch, 0), jnp.int32)
        own = self.start[:, None] + (jnp.arange(count - self.shared) // width)[None]
        prompt = jnp.broadcast_to(jnp.arange(self.shared)[None], (batch, self.shared))
        return jnp.concatenate([prompt, own], axis=1)

    def grow(self, length: int, shared: int) -> "Lanes":
        """Return lanes with room for `length` positions, behind a prompt of at most `shared`."""
        seen = self.seen
        if self.slotted:
            seen = self._moved(seen, 2, shared, length * seen.shape[1])
        return replace(self, seen=seen, length=length, shared=shared)

    def moved(self, x: Array, axis: int, after: "Lanes") -> Array:
        """Return what belongs to slots along an axis, where lanes that have grown have them."""
        return self._moved(x, axis, after.shared, after.length * after.seen.shape[1])

    def _moved(self, x: Array, axis: int, shared: int, own: int) -> Array:
        def padded(part: Array, count: int) -> Array:
            new = count - part.shape[axis]
            return jnp.pad(part, [(0, new if i == axis else 0) for i in range(part.ndim)])

        if shared == self.shared:
            return padded(x, shared + own)
        prompt, written = jnp.split(x, [self.shared], axis)
        return jnp.concatenate([padded(prompt, shared), padded(written, own)], axis)

    def reorder(self, parents: Int[Array, "B W"]) -> "Lanes":
        """Let hypothesis w continue hypothesis parents[w]."""
        return replace(self, seen=jnp.take_along_axis(self.seen, parents[:, :, None], axis=1))

    def rewind(self, position: Int[Array, "B"]) -> "Lanes":
        """Forget all tokens written from a position on; the prompt stays."""
        if not self.slotted:
            return self
        written = (jnp.arange(self.seen.shape[2]) - self.shared) // self.seen.shape[1]
        return replace(self, seen=self.seen & (written[None] < position[:, None])[:, None])

    def as_prompt(self, count: Any, width: int, length: int) -> "Lanes":
        """Return lanes whose prompt is what the only hypothesis of a sentence wrote, so much of it;
        behind it is room for `length` positions.
        """
        shared = self.seen.shape[2]
        here = jnp.broadcast_to((jnp.arange(shared) < count).reshape(1, 1, -1), (1, width, shared))
        seen = jnp.pad(here, ((0, 0), (0, 0), (0, length * width)))
        return Lanes(seen, jnp.asarray(count, jnp.int32)[None], length, shared)
