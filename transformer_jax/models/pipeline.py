"""Pipeline parallelism: groups of equal layers on different devices, through which the rows of a
batch pass in microbatches (GPipe: Huang et al. 2019, arXiv:1811.06965).

A loop of ticks holds what each stage works on, [stages ...]: in a tick, all stages apply their
layers, and then each sends its output to the next, with what belongs to its rows. Its gradient by
JAX is the same loop backwards.
Outside a stack, the axis divides the rows of a batch, as `data` does, and parameters and optimizer
state lie divided as over `fsdp`; a step sends each stage its own layers.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from transformer_jax.base.arrays import Array, Float
from transformer_jax.base.shares import ROWS, numbered, parts_of, row_parts

AXIS = "stage"
_EACH = 4  # microbatches for each stage at most, where idle ticks hardly matter (GPipe, section 2)
_OTHERS = tuple(axis for axis in ROWS if axis != AXIS)
_COPIES = "data", "fsdp"
_REST = tuple(axis for axis in _OTHERS if axis not in _COPIES)
_ANY = PartitionSpec.UNCONSTRAINED

# (layers of a stage, x, what its rows are given) -> x
Group = Callable[[Any, Array, Any], Array]


def microbatches(rows: int, stages: int) -> int:
    """Return into how many parts the rows of a pipeline are divided, a multiple of its stages."""
    each = rows // stages
    return stages * max(k for k in range(1, _EACH + 1) if each % k == 0)


def bubble(stages: int, parts: int) -> float:
    """Return the share of the time in which a stage waits, for so many microbatches."""
    return (stages - 1) / (parts + stages - 1)


def possible(rows: Any) -> bool:
    """Return whether the mesh has stages, and divides so many rows among them."""
    return parts_of((AXIS,)) > 1 and rows % row_parts() == 0


def run(
    group: Group, layers: Sequence[Any], x: Float[Array, "B T D"], given: Any
) -> Float[Array, "B T D"]:
    """Return x after all layers: pytrees, of which `group` applies as many as a stage has.

    `given` are arrays with the same rows as x. Those of integers are zeros in a tick in which a
    stage waits, as padding has them: segments, so that nothing is computed about real pieces.
    """
    stages, count = parts_of((AXIS,)), len(x)
    parts = microbatches(stages * count // row_parts(), stages)
    each, depth = parts // stages, len(layers) // stages
    copies = parts_of(_COPIES)
    # The i-th layer of every stage, which only this stage's devices have; a whole copy for each of
    # those that have other rows, so that parameters are gathered once, before the loop, and their
    # gradients add up once, after it, and not in every tick.
    owned = [
        jax.tree.map(lambda *one: _on_stages(jnp.stack(one), copies), *layers[i::depth])
        for i in range(depth)
    ]

    def divided(array: Array) -> Array:
        """Return rows in microbatches, each of rows of all other devices: [parts rows ...]."""
        array = array.reshape(stages, -1, each, *array.shape[1:]).swapaxes(1, 2)
        array = array.reshape(parts, -1, *array.shape[3:])
        return _placed(array, None, _OTHERS)

    leaves, tree = jax.tree.flatten(given)
    rows = jax.tree.map(divided, (x, leaves, jnp.arange(count, dtype=jnp.uint32)))
    # What enters the first stage in each tick; after the last microbatch, anything.
    entering = jax.tree.map(lambda a: jnp.pad(a, [(0, stages - 1), *[(0, 0)] * (a.ndim - 1)]), rows)

    def stage(layers: Any, x: Array, leaves: list, numbers: Array, busy: Array) -> Array:
        leaves = [
            a if jnp.issubdtype(a.dtype, jnp.inexact) else jnp.where(busy, a, 0) for a in leaves
        ]
        with numbered(numbers):
            return group(layers, x, jax.tree.unflatten(tree, leaves))

    def in_copies(array: Array) -> Array:
        """Return rows of stages, apart for each copy of the layers."""
        array = array.reshape(stages, copies, -1, *array.shape[2:])
        return _placed(array, AXIS, _COPIES, _REST)

    def tick(came: Any, at: tuple[Array, Any]) -> tuple[Any, Array]:
        time, first = at
        part = time - jnp.arange(stages)
        busy = (part >= 0) & (part < parts)
        now = jax.tree.map(lambda a, b: _placed(_first(a, b), AXIS, _OTHERS), first, came)
        each_copy: Any = jax.vmap(stage, (0, 0, 0, 0, None), spmd_axis_name=_COPIES)
        each_stage: Any = jax.vmap(each_copy, spmd_axis_name=AXIS)
        y = each_stage(owned, *jax.tree.map(in_copies, now), busy)
        y = _placed(y.reshape(stages, -1, *y.shape[3:]), AXIS, _OTHERS)
        return jax.tree.map(lambda a: _passed_on(a, stages), (y, *now[1:])), y

    start = jax.tree.map(
        lambda a: _placed(jnp.broadcast_to(a[:1], (stages, *a.shape[1:])), AXIS, _OTHERS), rows
    )
    ticks = jnp.arange(parts + stages - 1)
    y = jax.lax.scan(tick, start, (ticks, entering))[1][stages - 1 :]
    last = (jnp.arange(stages) == stages - 1).reshape(1, -1, *[1] * x.ndim)
    y = jnp.where(last, y, jnp.zeros((), y.dtype)).sum(1)
    y = y.reshape(stages, each, -1, *y.shape[2:]).swapaxes(1, 2)
    return y.reshape(count, *y.shape[3:])


def _passed_on(y: Array, stages: int) -> Array:
    """Return what the stage before each has."""
    turn = [(i, (i + 1) % stages) for i in range(stages)]
    spec = PartitionSpec(AXIS)
    return jax.shard_map(
        lambda y: jax.lax.ppermute(y, AXIS, turn),
        in_specs=spec, out_specs=spec, axis_names={AXIS}, check_vma=False,
    )(y)  # fmt: skip


def _first(entering: Array, came: Array) -> Array:
    """Return what stages work on: the first on what enters, the others on what came."""
    is_first = (jnp.arange(len(came)) == 0).reshape(-1, *[1] * entering.ndim)
    return jnp.where(is_first, entering[None], came)


def _on_stages(x: Array, copies: int) -> Array:
    """Return copies of an array, of which each stage has its own part of the first axis."""
    x = jnp.broadcast_to(x[:, None], (len(x), copies, *x.shape[1:]))
    return _placed(x, AXIS, _COPIES) if jnp.issubdtype(x.dtype, jnp.inexact) else x


def _placed(x: Array, *axes: Any) -> Array:
    """Return an array, divided along its first axes; the others as they are."""
    spec = PartitionSpec(*axes, *[_ANY] * (x.ndim - len(axes)))
    return jax.lax.with_sharding_constraint(x, spec)
