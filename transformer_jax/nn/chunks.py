"""A cache of slots in chunks, so that those still empty are neither read nor multiplied.

Slots fill up from the first one, and every step reads all keys and values: on a CPU, a fourth of a
small model's time. A part of an array would have to be copied first, so chunks are arrays of their
own; and products with keys take less time for two chunks of 120 slots than for 240 at once.
"""

import itertools
from typing import Any, NamedTuple

import jax.numpy as jnp

from transformer_jax.arrays import Array, Float, Int, Size, on_cpu
from transformer_jax.nn.cache import KeysValues, Lanes

_SMALL = 100  # slots: fewer are not worth another chunk
_MOST = 3  # chunks: each adds to the time that a program takes to compile


class Chunks(NamedTuple):
    """Slots in chunks, in order: a Cache."""

    parts: tuple[KeysValues, ...]

    @classmethod
    def empty(
        cls, batch: Size, slots: Size, heads: int, key_size: int, value_size: int, dtype: jnp.dtype
    ) -> "Chunks":
        """Return storage for `slots` slots."""
        given = heads, key_size, value_size, dtype
        return cls(tuple(KeysValues.empty(batch, size, *given) for size in _sizes(slots)))

    @classmethod
    def of(cls, whole: KeysValues) -> "Chunks":
        """Return storage with the slots of another."""
        ends = list(itertools.accumulate(_sizes(whole.keys.shape[3])))[:-1]
        pairs = zip(jnp.split(whole.keys, ends, 3), jnp.split(whole.values, ends, 2), strict=True)
        return cls(tuple(KeysValues(*pair) for pair in pairs))

    @property
    def keys(self) -> Float[Array, "B K H S"]:
        """All keys: a copy."""
        return jnp.concatenate([part.keys for part in self.parts], 3)

    @property
    def values(self) -> Float[Array, "B K S Hv"]:
        """All values: a copy."""
        return jnp.concatenate([part.values for part in self.parts], 2)

    def write(self, slots: Int[Array, "B T"], new: KeysValues) -> "Chunks":
        """See KeysValues."""
        written, first = [], 0
        for part in self.parts:
            size = part.keys.shape[3]
            mine = (slots >= first) & (slots < first + size)
            nowhere = size + slots  # beyond this chunk
            written.append(part.write(jnp.where(mine, slots - first, nowhere), new))
            first += size
        return Chunks(tuple(written))

    def grow(self, before: Lanes, after: Lanes) -> "Chunks":
        """See Cache."""
        return Chunks.of(self._whole.grow(before, after))

    def reorder(self, parents: Int[Array, "B W"]) -> "Chunks":
        """See Cache: the lanes record which hypothesis continues which."""
        return self

    def rewind(self, position: Int[Array, "B"]) -> "Chunks":
        """See Cache: the lanes record what is discarded."""
        return self

    def keep(self, tokens: int) -> "Chunks":
        """See Cache: any number of tokens can be discarded."""
        return self

    def part(self, first: Any, size: int) -> KeysValues:
        """See Cache."""
        return self._whole.part(first, size)

    def with_part(self, first: Any, size: int, part: KeysValues) -> "Chunks":
        """See Cache."""
        return Chunks.of(self._whole.with_part(first, size, part))

    def as_prompt(self, lanes: Lanes, reach: int) -> "Chunks":
        """See Cache."""
        return Chunks.of(self._whole.as_prompt(lanes, reach))

    @property
    def _whole(self) -> KeysValues:
        return KeysValues(self.keys, self.values)


def _sizes(slots: Size) -> list[Size]:
    """Return the sizes of chunks: one on accelerators, or if their slots are few or symbolic."""
    if not on_cpu() or not isinstance(slots, int) or slots < 2 * _SMALL:
        return [slots]
    size = -(-slots // min(slots // _SMALL, _MOST))
    return [min(size, slots - first) for first in range(0, slots, size)]
