"""The self-attention cache, passed in and returned as a value.

All W hypotheses of a sentence write into one row of slots. The first P hold the shared prompt;
hypothesis w writes its p-th token to slot P + p W + w. A bit mask records the slots that each
hypothesis wrote or inherited, so reordering a beam moves W x C bits and leaves keys and values in
place; a step reads each of them once and multiplies it by W queries at once. Rewinding clears bits.
If no layer keeps anything in slots, there are none.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import struct

from transformer_jax.base.arrays import Array, Bool, Float, Int, Size, on_cpu
from transformer_jax.nn.view import Order, View, slot_view


class KeysValues(NamedTuple):
    """Keys and values in the layout that attention's two products read, heads first."""

    keys: Float[Array, "B K H S"]
    values: Float[Array, "B K S Hv"]

    @classmethod
    def empty(
        cls, batch: Size, slots: int, heads: int, key_size: int, value_size: int, dtype: jnp.dtype
    ) -> "KeysValues":
        """Return storage for `slots` slots.

        On a CPU it is at least float32: XLA cannot write to narrower types there and would convert
        all slots to float32 and back at every step. The stored numbers are the same.
        """
        if on_cpu():
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
        """See Cache: the lanes record which hypothesis continues which."""
        return self

    def rewind(self, position: Int[Array, "B"]) -> "KeysValues":
        """See Cache: the lanes record what is discarded."""
        return self

    def keep(self, tokens: int) -> "KeysValues":
        """See Cache: any number of tokens can be discarded."""
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
        """Return a copy with empty slots appended, `slots` in all."""
        new = slots - self.keys.shape[3]
        return KeysValues(
            jnp.pad(self.keys, ((0, 0), (0, 0), (0, 0), (0, new))),
            jnp.pad(self.values, ((0, 0), (0, 0), (0, new), (0, 0))),
        )


class Slots(NamedTuple):
    """The slots of new tokens, and what the tokens see there."""

    number: Int[Array, "B Q"]  # beyond the last slot: not written
    view: View
    limit: Size  # all positions are below it


@struct.dataclass
class Lanes:
    """Which slots each of the W hypotheses of each sentence has written or inherited.

    Positions count the tokens that a hypothesis wrote; in the sentence they are `start` more.
    """

    seen: Bool[Array, "B W C"]
    start: Int[Array, "B"]  # length of the prompt
    length: int = struct.field(pytree_node=False)  # capacity in positions, without the prompt
    shared: int = struct.field(pytree_node=False, default=0)  # capacity for the prompt
    slotted: bool = struct.field(pytree_node=False, default=True)  # whether there are slots

    @classmethod
    def empty(cls, batch: Size, width: int, length: int, slotted: bool = True) -> "Lanes":
        """Return lanes with room for `length` positions, and no prompt."""
        seen = jnp.zeros((batch, width, length * width * slotted), bool)
        return cls(seen, jnp.zeros(batch, jnp.int32), length, slotted=slotted)

    def prompt(
        self, seg: Int[Array, "B P"], order: Order, rank: Int[Array, "B P"] | None = None
    ) -> tuple["Lanes", Slots]:
        """Prepend a prompt to empty lanes; return them and its slots, with its view of itself."""
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
        """Claim slots for T new tokens of each hypothesis in turn, Q = W T in all.

        Inactive sentences claim none.
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
        """Return lanes with room for `length` positions after a prompt of at most `shared`."""
        seen = self.seen
        if self.slotted:
            seen = self._moved(seen, 2, shared, length * seen.shape[1])
        return replace(self, seen=seen, length=length, shared=shared)

    def moved(self, x: Array, axis: int, after: "Lanes") -> Array:
        """Return data of slots along an axis, moved to where the grown lanes have those slots."""
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
        """Discard all tokens from a position onwards; the prompt stays."""
        if not self.slotted:
            return self
        written = (jnp.arange(self.seen.shape[2]) - self.shared) // self.seen.shape[1]
        return replace(self, seen=self.seen & (written[None] < position[:, None])[:, None])

    def as_prompt(self, count: Any, width: int, length: int) -> "Lanes":
        """Return lanes whose prompt is the first `count` tokens that a sentence's only hypothesis
        wrote, with room for `length` positions after it.
        """
        shared = self.seen.shape[2]
        here = jnp.broadcast_to((jnp.arange(shared) < count).reshape(1, 1, -1), (1, width, shared))
        seen = jnp.pad(here, ((0, 0), (0, 0), (0, length * width)))
        return Lanes(seen, jnp.asarray(count, jnp.int32)[None], length, shared)
