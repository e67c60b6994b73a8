"""Rows of a table, with a gradient that is the same bit for bit in every run.

A GPU's scatter adds rows in whatever order its threads arrive, and its deterministic form adds them
one by one. Here equal indices are sorted next to each other and summed by two small matrix
products: within blocks of positions, then across blocks.
"""

import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, Int, on_gpu, take_rows
from transformer_jax.base.shares import add_up, on_each_device

_BLOCK = 128  # positions


@jax.custom_vjp
def look_up(table: Float[Array, "V D"], index: Int[Array, "B T"]) -> Float[Array, "B T D"]:
    """Return the rows of the table at these indices."""
    return take_rows(table, index)


def _forward(table, index):
    return look_up(table, index), (table, index)


def _backward(given, slopes):
    table, index = given
    if not on_gpu():  # others add them in order
        return jnp.zeros_like(table).at[index].add(slopes.astype(table.dtype)), None

    def on_device(index, slopes):
        return sums_by_index(index.reshape(-1), slopes.reshape(-1, slopes.shape[-1]), len(table))

    total = add_up(on_each_device(on_device, index, slopes, positions=1))
    return total.astype(table.dtype), None


look_up.defvjp(_forward, _backward)


def sums_by_index(
    index: Int[Array, "P"], rows: Float[Array, "P D"], size: int
) -> Float[Array, "V D"]:
    """Return for each index below `size` the sum of its rows, at least in float32, added in a fixed
    order.
    """
    positions, width = rows.shape
    order = jnp.argsort(index, stable=True)
    blocks = -(-positions // _BLOCK)
    spare = blocks * _BLOCK - positions
    index = jnp.pad(index[order], (0, spare), constant_values=size).reshape(blocks, _BLOCK)
    rows = jnp.pad(rows[order], ((0, spare), (0, 0))).reshape(blocks, _BLOCK, width)

    # Each position gets the sum over its block; the first position of each index will be read.
    equal = index[:, :, None] == index[:, None, :]
    sums = _product("Bij,BjD->BiD", equal, rows)
    before = jnp.pad(index[:, :-1], ((0, 0), (1, 0)), constant_values=-1)
    first = index != before
    # An index may go on in the blocks that follow, at their start: its first block adds those sums.
    last = index[:, -1]
    continues = jnp.pad(index[1:, 0] == last[:-1], (1, 0))
    first = first.at[:, 0].set(first[:, 0] & ~continues)
    later = jnp.arange(blocks)[:, None] < jnp.arange(blocks)[None]
    taken = later & continues[None] & (last[:, None] == index[:, 0][None])
    rest = _product("AB,BD->AD", taken, sums[:, 0])
    sums += jnp.where((index == last[:, None])[..., None], rest[:, None], 0)

    # Positions that are not read get indices beyond the table, all different: nothing is written
    # twice.
    beyond = size + jnp.arange(index.size).reshape(index.shape)
    place = jnp.where(first & (index < size), index, beyond)
    return (
        jnp.zeros((size, width), sums.dtype).at[place].set(sums, mode="drop", unique_indices=True)
    )


def _product(axes: str, kept: Array, rows: Array) -> Array:
    """Return sums of the rows that are kept."""
    wide = jnp.promote_types(rows.dtype, jnp.float32)
    kept = kept.astype(rows.dtype)
    precision = jax.lax.Precision.HIGHEST
    return jnp.einsum(axes, kept, rows, precision=precision, preferred_element_type=wide)
