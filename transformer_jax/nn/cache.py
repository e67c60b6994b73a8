"""The cache of self-attention: a value that goes in and comes out.

All W hypotheses of a sentence write into one row of slots: hypothesis w at position p owns slot
p W + w. Which slots a hypothesis descends from is a bit mask, so reordering a beam moves W x C bits
and leaves keys and values where they are; a step reads each of them once and multiplies it with W
queries at once. Rewinding is clearing bits.
"""

from typing import NamedTuple

import jax.numpy as jnp
from flax import struct

from transformer_jax.arrays import Array, Bool, Float, Int
from transformer_jax.nn.view import View, slot_view


class KeysValues(NamedTuple):
    """What attention looks at, laid out as its two products read it, heads first."""

    keys: Float[Array, "B N H S"]
    values: Float[Array, "B N S Hv"]

    def write(self, slots: Int[Array, "B T"], new: "KeysValues") -> "KeysValues":
        """Return a copy with the keys and values of T new tokens in the given slots."""
        rows = jnp.arange(slots.shape[0])[:, None]
        keys, values = new.keys.transpose(0, 3, 1, 2), new.values.swapaxes(1, 2)
        return KeysValues(
            self.keys.at[rows, :, :, slots].set(keys, unique_indices=True),
            self.values.at[rows, :, slots].set(values, unique_indices=True),
        )

    def grow(self, slots: int) -> "KeysValues":
        """Return a copy with empty slots behind, `slots` in all."""
        new = slots - self.keys.shape[3]
        return KeysValues(
            jnp.pad(self.keys, ((0, 0), (0, 0), (0, 0), (0, new))),
            jnp.pad(self.values, ((0, 0), (0, 0), (0, new), (0, 0))),
        )


@struct.dataclass
class Lanes:
    """Which slots each of the W hypotheses of each sentence has written or inherited."""

    seen: Bool[Array, "B W C"]

    @classmethod
    def empty(cls, batch: int, width: int, length: int) -> "Lanes":
        """Return lanes with room for `length` positions."""
        return cls(jnp.zeros((batch, width, length * width), bool))

    @property
    def length(self) -> int:
        """Positions there is room for."""
        return self.seen.shape[2] // self.seen.shape[1]

    def fill(self, positions: Int[Array, "B T"]) -> tuple["Lanes", Int[Array, "B Q"], View]:
        """Claim slots for T new tokens of each hypothesis, Q = W T in all, one after another.

        Returns the new lanes, the slots, and the view of the new tokens on all slots.
        """
        batch, width, count = self.seen.shape
        slots = positions[:, None, :] * width + jnp.arange(width).reshape(1, width, 1)
        rows = jnp.arange(batch).reshape(batch, 1, 1)
        lanes = jnp.arange(width).reshape(1, width, 1)
        seen = self.seen.at[rows, lanes, slots].set(True)
        new = positions.shape[1]
        queries = (batch, width * new)
        visible = jnp.repeat(seen, new, axis=1)
        q_pos = jnp.broadcast_to(positions[:, None, :], (batch, width, new)).reshape(queries)
        k_pos = jnp.broadcast_to(jnp.arange(count)[None] // width, (batch, count))
        return Lanes(seen), slots.reshape(queries), slot_view(visible, q_pos, k_pos)

    def grow(self, length: int) -> "Lanes":
        """Return lanes with room for `length` positions."""
        new = (length - self.length) * self.seen.shape[1]
        return Lanes(jnp.pad(self.seen, ((0, 0), (0, 0), (0, new))))

    def reorder(self, parents: Int[Array, "B W"]) -> "Lanes":
        """Let hypothesis w continue hypothesis parents[w]."""
        return Lanes(jnp.take_along_axis(self.seen, parents[:, :, None], axis=1))

    def rewind(self, position: Int[Array, "B"]) -> "Lanes":
        """Forget everything from a position on."""
        where = jnp.arange(self.seen.shape[2])[None] // self.seen.shape[1]
        return Lanes(self.seen & (where < position[:, None])[:, None])
