"""Keys and values in blocks of positions that rows share through tables (PagedAttention: Kwon et
al. 2023, arXiv:2309.06180). A step gathers the blocks of each row into the equivalent of a
contiguous cache; XLA copies them to do so, so pages save memory but no time.
"""

from typing import NamedTuple

import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Bool, Float, Int
from transformer_jax.nn.cache import KeysValues


class Pages(NamedTuple):
    """The blocks of all rows, C positions each; a table [R T] lists those of each row in order."""

    keys: Float[Array, "P K H C"]
    values: Float[Array, "P K C Hv"]

    @classmethod
    def like(cls, cache: KeysValues, count: int, size: int) -> "Pages":
        """Return `count` empty blocks of `size` positions, with a contiguous cache's heads."""
        _, heads, key_size, _ = cache.keys.shape
        keys = jnp.zeros((count, heads, key_size, size), cache.keys.dtype)
        shape = count, heads, size, cache.values.shape[3]
        return cls(keys, jnp.zeros(shape, cache.values.dtype))

    def gathered(self, table: Int[Array, "R T"]) -> KeysValues:
        """Return each row's blocks as a contiguous cache."""
        keys = jnp.moveaxis(self.keys[table], 1, 3)  # [R K H T C]
        values = jnp.moveaxis(self.values[table], 1, 2)  # [R K T C Hv]
        slots = table.shape[1] * self.keys.shape[3]
        return KeysValues(
            keys.reshape(*keys.shape[:3], slots),
            values.reshape(*values.shape[:2], slots, values.shape[4]),
        )

    def write(
        self, table: Int[Array, "R T"], place: Int[Array, "R"], active: Bool[Array, "R"],
        cache: KeysValues,
    ) -> "Pages":  # fmt: skip
        """Return the pages with one position of each active row copied from a contiguous cache."""
        count, size = self.keys.shape[0], self.keys.shape[3]
        block = jnp.take_along_axis(table, place[:, None] // size, axis=1)[:, 0]
        block, at = jnp.where(active, block, count), place % size  # out of range: dropped
        where = place[:, None, None, None]
        keys = jnp.take_along_axis(cache.keys, where, axis=3)[..., 0]
        values = jnp.take_along_axis(cache.values, where, axis=2)[:, :, 0]
        return Pages(
            self.keys.at[block, :, :, at].set(keys, mode="drop"),
            self.values.at[block, :, at].set(values, mode="drop"),
        )

    def fill(self, blocks: Int[Array, "T"], cache: KeysValues) -> "Pages":
        """Return the pages with a row's contiguous cache in these blocks; those out of range are
        dropped.
        """
        size, count = self.keys.shape[3], blocks.shape[0]
        cache = cache.pad(count * size)
        keys = jnp.moveaxis(cache.keys[0].reshape(*self.keys.shape[1:3], count, size), 2, 0)
        heads, _, width = self.values.shape[1:]
        values = cache.values[0].reshape(heads, count, size, width).swapaxes(0, 1)
        return Pages(
            self.keys.at[blocks].set(keys, mode="drop"),
            self.values.at[blocks].set(values, mode="drop"),
        )

    def copied(self, sources: Int[Array, "N"], targets: Int[Array, "N"]) -> "Pages":
        """Return the pages with some blocks copied to others; targets out of range are dropped."""
        return Pages(*(x.at[targets].set(x[sources], mode="drop") for x in self))
