"""The cache of windowed attention: a ring of slots that keeps the most recent positions.

All W hypotheses of a sentence are at the same position, so they can share one ring however much
their texts differ: hypothesis w writes the token at position t to slot (t mod R) W + w, overwriting
one from R positions earlier that no window contains any more. Each hypothesis has a bit for each
slot, set if the content is its own or inherited; overwriting a slot clears the bits of all others.
A prompt is in the slots of the first hypothesis, with the bits of all set.
"""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from flax import struct

from transformer_jax.base.arrays import Array, Bool, Int
from transformer_jax.nn.cache import KeysValues, Lanes


@struct.dataclass
class Ring:
    """Keys and values of the last positions of each sentence: a Cache.

    With a window that reaches R positions back, there are R of them, or as many as there is room
    for; and T - 1 more after a step of T tokens, since all of it may be discarded.
    """

    memory: KeysValues  # of slots, R W in all
    seen: Bool[Array, "B W C"]  # whether a hypothesis may look there
    pos: Int[Array, "B R"]  # in the sentence, prompt included; -1: nothing was written
    start: Int[Array, "B"]  # length of the prompt
    reach: int = struct.field(pytree_node=False)  # positions to keep
    room: int = struct.field(pytree_node=False)  # positions from here on are dropped
    kept: int = struct.field(pytree_node=False, default=1)  # tokens of a step, all discardable

    @classmethod
    def empty(
        cls, lanes: Lanes, reach: int, heads: int, key_size: int, value_size: int, dtype: jnp.dtype
    ) -> "Ring":
        """Return a ring for windows of `reach` positions, with the capacity of the lanes."""
        batch, width, _ = lanes.seen.shape
        room = lanes.shared + lanes.length
        size = min(reach, room)
        memory = KeysValues.empty(batch, size * width, heads, key_size, value_size, dtype)
        seen = jnp.zeros((batch, width, size * width), bool)
        nothing = jnp.full((batch, size), -1, jnp.int32)
        return cls(memory, seen, nothing, jnp.zeros(batch, jnp.int32), reach, room)

    def k_pos(self) -> Int[Array, "B C"]:
        """Return the position that each slot holds."""
        return jnp.repeat(self.pos, self.seen.shape[1], axis=1)

    def prompted(self, new: KeysValues, seg: Int[Array, "B P"]) -> "Ring":
        """Return the ring after a prompt, which is at the beginning of each row."""
        size = self.pos.shape[1]
        length = (seg > 0).sum(1, dtype=jnp.int32)
        # For each place in the ring, the last position that maps to it.
        last = length[:, None] - 1
        pos = last - (last - jnp.arange(size, dtype=length.dtype)[None]) % size
        place = jnp.maximum(pos, 0)
        keys = jnp.take_along_axis(new.keys, place[:, None, None, :], axis=3)
        values = jnp.take_along_axis(new.values, place[:, None, :, None], axis=2)
        memory = KeysValues(self._first(keys, 3), self._first(values, 2))
        here = jnp.broadcast_to((pos >= 0)[:, None], (*self.seen.shape[:2], size))
        pos = jnp.maximum(pos, -1)
        return replace(self, memory=memory, seen=self._first(here, 2), pos=pos, start=length)

    def _first(self, x: Array, axis: int) -> Array:
        """Put data of positions along an axis in the slots of the first hypothesis."""
        width = self.seen.shape[1]
        x = jnp.expand_dims(x, axis + 1)
        x = jnp.pad(x, [(0, width - 1 if i == axis + 1 else 0) for i in range(x.ndim)])
        return x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])

    def write(self, pos: Int[Array, "B T"], new: KeysValues, active: Bool[Array, "B"]) -> "Ring":
        """Return the ring with T new tokens of each hypothesis, one hypothesis after another."""
        batch, width, _ = self.seen.shape
        count = pos.shape[1]
        ring = self._with_room(self.reach - 1 + count)
        size = ring.pos.shape[1]
        lost = ~active[:, None] | (pos >= ring.room)
        place = jnp.where(lost, size + jnp.arange(count)[None], pos % size)  # or dropped
        rows, own = jnp.arange(batch)[:, None], jnp.eye(width, dtype=bool)
        seen = ring.seen.reshape(batch, width, size, width)
        seen = seen.at[rows, :, place].set(own[None, None], mode="drop")
        slots = place[:, None] * width + jnp.arange(width)[None, :, None]
        return replace(
            ring,
            memory=ring.memory.write(slots.reshape(batch, width * count), new),
            seen=seen.reshape(batch, width, size * width),
            pos=ring.pos.at[rows, place].set(pos, mode="drop"),
        )

    def _with_room(self, most: int) -> "Ring":
        """Return the ring enlarged to `most` positions, or as many as there is room for."""
        batch, width, _ = self.seen.shape
        size = min(most, self.room)
        if size <= self.pos.shape[1]:
            return self
        nowhere = size + jnp.arange(self.pos.shape[1])[None]
        place = jnp.where(self.pos < 0, nowhere, self.pos % size)
        slots = (place[:, :, None] * width + jnp.arange(width)[None, None]).reshape(batch, -1)
        rows = jnp.arange(batch)[:, None]
        seen = jnp.zeros((batch, width, size * width), bool)
        wider = self.memory.pad(size * width)
        pos = jnp.full((batch, size), -1, jnp.int32)
        return replace(
            self,
            memory=wider.write(slots, self.memory),  # slots without a bit may hold anything
            seen=seen.at[rows, :, slots].set(self.seen.swapaxes(1, 2), mode="drop"),
            pos=pos.at[rows, place].set(self.pos, mode="drop"),
        )

    def grow(self, before: Lanes, after: Lanes) -> "Ring":
        """See Cache."""
        room = after.shared + after.length
        return replace(self, room=room)._with_room(
            max(self.reach - 1 + self.kept, self.pos.shape[1])
        )

    def keep(self, tokens: int) -> "Ring":
        """See Cache: tokens written again overwrite nothing that earlier windows reach."""
        return replace(self, kept=tokens)._with_room(self.reach - 1 + tokens)

    def part(self, first: Any, size: int) -> Any:
        """See Cache; a ring holds the end of a prompt, not its parts."""
        raise NotImplementedError("a prompt cache does not support windows")

    def with_part(self, first: Any, size: int, part: Any) -> "Ring":
        """See Cache; not supported, like `part`."""
        raise NotImplementedError("a prompt cache does not support windows")

    def as_prompt(self, lanes: Lanes, reach: int) -> "Ring":
        """See Cache; not supported, like `part`."""
        raise NotImplementedError("a prompt cache does not support windows")

    def reorder(self, parents: Int[Array, "B W"]) -> "Ring":
        """See Cache: bits move, keys and values stay."""
        seen = jnp.take_along_axis(self.seen, parents[:, :, None], axis=1)
        return replace(self, seen=seen)

    def rewind(self, position: Int[Array, "B"]) -> "Ring":
        """See Cache; at most to before the last step."""
        kept = self.k_pos() < (self.start + position)[:, None]
        return replace(self, seen=self.seen & kept[:, None])
