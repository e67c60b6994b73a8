"""Expert parallelism: experts on different devices, to which positions are sent and from which
their outputs come back (GShard: Lepikhin et al. 2020, arXiv:2006.16668).

A device sends each of the others a buffer with room for all of its choices, since all may fall on
one device; how many are computed is only known there. So no position is dropped and shapes are
static, at a cost: buffers are as many times larger than what they hold as there are devices.
Products are made for the slots in use only.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from transformer_jax.base.arrays import Array, Float, Int
from transformer_jax.base.shares import POSITIONS, taken
from transformer_jax.base.shares import rows as row_axes

AXIS = "expert"
_TURNS = 4  # in which a device's blocks are computed if all experts are chosen equally often

# Maps rows [M Q D] of blocks by the experts [M] with these numbers, given the maps of all.
Through = Callable[[Any, Float[Array, "M Q D"], Int[Array, "M"]], Float[Array, "M Q D"]]


def through_others(
    layer: Callable[[Any, Array, Array, int], Array],
    maps: Any,
    x: Float[Array, "B T D"],
    chosen: Int[Array, "B T K"],
) -> Float[Array, "B T K D"]:
    """Return the outputs of the chosen experts, each computed where it is.

    `maps` are parameters with a leading axis of all experts. On each device, `layer` is called with
    its share of them, rows [C D], the numbers [C] of their experts among those of the device, or
    their count for an empty row, and a number of rows that are expected to be in use.
    """
    parts = jax.sharding.get_abstract_mesh().shape[AXIS]

    def here(maps: Any, x: Array, chosen: Array) -> Array:
        own = len(jax.tree.leaves(maps)[0])
        rows = jnp.repeat(x.reshape(-1, x.shape[-1]), chosen.shape[-1], 0)
        to, number = jnp.divmod(chosen.reshape(-1), own)
        there, back = _places(to, parts)
        sent = moved(rows, back, there)
        numbers = jnp.full(back.shape, own, number.dtype).at[there].set(number)
        got, numbers = map(_exchanged, (sent, numbers))
        y = _exchanged(layer(maps, got, numbers, len(rows)))
        return moved(y, there, back).reshape(*chosen.shape, -1)

    mine = PartitionSpec(row_axes(), POSITIONS)
    mapped = jax.shard_map(
        here, in_specs=(PartitionSpec(AXIS), mine, mine), out_specs=mine,
        axis_names={*row_axes(), *POSITIONS, *taken()}, check_vma=False,
    )  # fmt: skip
    return mapped(maps, x, chosen)


def counted(chosen: Int[Array, "C"], kinds: int) -> tuple[Int[Array, "C"], Int[Array, "X"]]:
    """Return how many earlier choices are the same as each, and how often each kind is chosen. A
    choice that is none of them counts for none.
    """
    made = jax.nn.one_hot(chosen, kinds, dtype=jnp.int32)
    before = jnp.take_along_axis(jnp.cumsum(made, 0) - made, chosen[:, None], 1)[:, 0]
    return before, made.sum(0)


def _places(to: Int[Array, "C"], parts: int) -> tuple[Int[Array, "C"], Int[Array, "S"]]:
    """Return the place of each choice among those for all devices, each of which has room for all,
    and the choice in each place, or their number.
    """
    count = len(to)
    there = to * count + counted(to, parts)[0]
    places = jnp.arange(count, dtype=there.dtype)
    empty = jnp.full((parts * count,), count, there.dtype)
    return there, empty.at[there].set(places, unique_indices=True)


def _exchanged(x: Array) -> Array:
    """Send each device its part, and return what all have sent, in their order."""
    return jax.lax.all_to_all(x, AXIS, 0, 0, tiled=True)


@jax.custom_vjp
def moved(
    rows: Float[Array, "R D"], there: Int[Array, "Q"], back: Int[Array, "R"]
) -> Float[Array, "Q D"]:
    """Return rows[there], and zeros where `there` is beyond the last row. `back` is its inverse,
    by which the gradient is gathered too, rather than added up in no particular order.
    """
    return rows.at[there].get(mode="fill", fill_value=0)


moved.defvjp(
    lambda rows, there, back: (moved(rows, there, back), (there, back)),
    lambda places, gradient: (moved(gradient, *reversed(places)), None, None),
)


def in_turns(
    through: Through,
    maps: Any,
    rows: Float[Array, "M Q D"],
    expert: Int[Array, "M"],
    used: Int[Array, ""],
    expected: int,
) -> Float[Array, "M Q D"]:
    """Return what the experts make of the first `used` blocks, and zeros for the others, some at a
    time for as long as there are any. What is inside is computed again for the gradient.
    """
    size = -(-expected // _TURNS)
    missing = -len(expert) % size
    rows = jnp.pad(rows, [(0, missing), (0, 0), (0, 0)])
    y = _in_turns(through, size, maps, rows, jnp.pad(expert, (0, missing)), used)
    return y[: len(expert)]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _in_turns(through: Through, size: int, maps: Any, rows: Array, expert: Array, used: Array):
    def turn(number, y):
        of = functools.partial(_some, number, size)
        return _with(y, through(maps, of(rows), of(expert)), number, size)

    return jax.lax.fori_loop(0, _turns(used, size), turn, jnp.zeros_like(rows))


def _forward(through, size, *given):
    return _in_turns(through, size, *given), given


def _backward(through, size, given, gradient):
    maps, rows, expert, used = given

    def turn(number, carry):
        total, slopes = carry
        of = functools.partial(_some, number, size)
        _, back = jax.vjp(lambda maps, rows: through(maps, rows, of(expert)), maps, of(rows))
        of_maps, of_rows = back(of(gradient))
        total = jax.tree.map(jnp.add, total, of_maps)
        return total, _with(slopes, of_rows, number, size)

    zeros = jax.tree.map(jnp.zeros_like, (maps, rows))
    total, slopes = jax.lax.fori_loop(0, _turns(used, size), turn, zeros)
    return total, slopes, None, None


_in_turns.defvjp(_forward, _backward)


def _turns(used: Array, size: int) -> Array:
    return -(-used // size)


def _some(number: Array, size: int, x: Array) -> Array:
    return jax.lax.dynamic_slice_in_dim(x, number * size, size)


def _with(x: Array, part: Array, number: Array, size: int) -> Array:
    return jax.lax.dynamic_update_slice_in_dim(x, part.astype(x.dtype), number * size, 0)
