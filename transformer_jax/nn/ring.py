"""The cache of attention within a window: a ring of slots, of which what is read last stays.

All W hypotheses of a sentence are at the same position, so they can share one ring however much
their texts differ: hypothesis w writes the token at position t to slot (t mod R) W + w, over one
that stood R positions before and that no window holds any more. Each hypothesis has a bit for each
slot, which says whether what is there is its own or inherited; a slot that is written anew loses
the bits of all others. A prompt is in the slots of the first hypothesis, with the bits of all.
"""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from flax import struct

from transformer_jax.arrays import Array, Bool, Int
from transformer_jax.nn.cache import KeysValues, Lanes


@struct.dataclass
class Ring:
    """Keys and values of the last positions of each sentence: a Cache.

    With a window that reaches R positions back, there are R of them, or as many as there is room
    for; and T - 1 more once a step was of T tokens, for all of it may be taken back.
    """

    memory: KeysValues  # of slots, R W in all
    seen: Bool[Array, "B W C"]  # whether a hypothesis may look there
    pos: Int[Array, "B R"]  # of the sentence, prompt included; -1: nothing was written
    start: Int[Array, "B"]  # how long the prompt is
    reach: int = struct.field(pytree_node=False)  # positions that are to stay
    room: int = struct.field(pytree_node=False)  # what is written beyond it is lost
    kept: int = struct.field(pytree_node=False, default=1)  # tokens of a step, all taken back

    @classmethod
    def empty(
        cls, lanes: Lanes, reach: int, heads: int, key_size: int, value_size: int, dtype: jnp.dtype
    ) -> "Ring":
        """Return a ring for windows that reach so far, for the room that lanes have."""
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
        """Return the ring behind a prompt, which stands at the beginning of each row."""
        size = self.pos.shape[1]
        length = (seg > 0).sum(1, dtype=jnp.int32)
        # The last position that has its place in the ring, of each place.
        pos = length[:, None] - 1 - (length[:, None] - 1 - jnp.arange(size)[None]) % size
        place = jnp.maximum(pos, 0)
        keys = jnp.take_along_axis(new.keys, place[:, None, None, :], axis=3)
        values = jnp.take_along_axis(new.values, place[:, None, :, None], axis=2)
        memory = KeysValues(self._first(keys, 3), self._first(values, 2))
        here = jnp.broadcast_to((pos >= 0)[:, None], (*self.seen.shape[:2], size))
        pos = jnp.maximum(pos, -1)
        return replace(self, memory=memory, seen=self._first(here, 2), pos=pos, start=length)

    def _first(self, x: Array, axis: int) -> Array:
        """Put what belongs to positions along an axis in the slots of the first hypothesis."""
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
        place = jnp.where(lost, size + jnp.arange(count)[None], pos % size)  # or nowhere
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
        """Return the same with as many positions, or as many as there is room for."""
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
            memory=wider.write(slots, self.memory),  # where no bit is set, anything may be
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
        """See Cache: what is written again takes nothing from what the windows before it reach."""
        return replace(self, kept=tokens)._with_room(self.reach - 1 + tokens)

    def part(self, first: Any, size: int) -> Any:
        """See Cache; a ring holds the end of a prompt, and not its parts."""
        raise NotImplementedError("a prompt cache refuses windows")

    def with_part(self, first: Any, size: int, part: Any) -> "Ring":
        """See Cache; refused like `part`."""
        raise NotImplementedError("a prompt cache refuses windows")

    def as_prompt(self, lanes: Lanes, reach: int) -> "Ring":
        """See Cache; refused like `part`."""
        raise NotImplementedError("a prompt cache refuses windows")

    def reorder(self, parents: Int[Array, "B W"]) -> "Ring":
        """See Cache: bits are moved, and keys and values stay."""
        seen = jnp.take_along_axis(self.seen, parents[:, :, None], axis=1)
        return replace(self, seen=seen)

    def rewind(self, position: Int[Array, "B"]) -> "Ring":
        """See Cache; no further than to before the last step."""
        kept = self.k_pos() < (self.start + position)[:, None]
        return replace(self, seen=self.seen & kept[:, None])
