"""Pipeline parallelism: groups of equal layers on different devices, through which the rows of a
batch pass in microbatches (GPipe: Huang et al. 2019, arXiv:1811.06965).

A loop of ticks holds what each stage works on, [stages ...]: in a tick, all stages apply their
layers, and then each sends its output to the next, with what belongs to its rows. Its gradient by
JAX is the same loop backwards.
With repeats, the stages are a ring, which rows pass so many times (the interleaved schedule:
Narayanan et al. 2021, arXiv:2104.04473): group g of layers is on stage g modulo their number, and
microbatches go in rounds of as many as there are stages. In the tick t, stage s has u = t - s
behind it, and works on microbatch u % S of the round u // (S R), in the repeat u // S % R: what the
last stage hands on arrives at the first just when this needs it, so that nothing is stored.
Outside a stack, the axis divides the rows of a batch, as `data` does, and parameters and optimizer
state lie divided as over `fsdp`; a step sends each stage its own layers.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

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
# What copies an array.
_COPYING = {
    "broadcast_in_dim", "concatenate", "convert_element_type", "dynamic_slice", "reshape",
    "sharding_constraint", "slice", "squeeze", "transpose",
}  # fmt: skip
_ANY = PartitionSpec.UNCONSTRAINED

# (layers of a stage, x, what its rows are given) -> x
Group = Callable[[Any, Array, Any], Array]
Policy = Callable[..., bool]  # what is saved for the backward pass, as `jax.checkpoint` has it


def microbatches(rows: int, stages: int) -> int:
    """Return into how many parts the rows of a pipeline are divided, a multiple of its stages."""
    each = rows // stages
    return stages * max(k for k in range(1, _EACH + 1) if each % k == 0)


def bubble(stages: int, parts: int, repeats: int) -> float:
    """Return the share of the time in which a stage waits, for so many microbatches."""
    return (stages - 1) / (parts * repeats + stages - 1)


def all_but_copies(primitive: Any, *_: Any, **__: Any) -> bool:
    """Save all but copies of arrays, in another layout or type: a policy for ticks that pick their
    layers, so that these are picked again, and not saved in each.
    """
    return primitive.name not in _COPYING


def possible(rows: Any) -> bool:
    """Return whether the mesh has stages, and divides so many rows among them."""
    return parts_of((AXIS,)) > 1 and rows % row_parts() == 0


class Schedule(NamedTuple):
    """Which stage works on what in which tick. `done` [stages] is how many microbatches each stage
    has behind it, counted anew in each repeat; negative before its first.
    """

    stages: int
    parts: int  # microbatches
    repeats: int

    @property
    def ticks(self) -> int:
        """How many there are."""
        return self.parts * self.repeats + self.stages - 1

    def done(self, tick: Array) -> Array:
        """Return it in a tick."""
        return tick - jnp.arange(self.stages)

    def busy(self, done: Array) -> Array:
        """Return whether each stage has something to work on."""
        return (done >= 0) & (done < self.parts * self.repeats)

    def repeat(self, done: Array) -> Array:
        """Return in which repeat each stage is."""
        return done // self.stages % self.repeats

    def enters(self, done: Array) -> Array:
        """Return for each stage whether it works on rows that enter."""
        return (jnp.arange(self.stages) == 0) & (self.repeat(done) == 0)

    def entering(self, rows: Array) -> Array:
        """Return what enters the first stage in each tick, [ticks stages or 1 ...]: in the first
        repeat of each round, its microbatches; in the others, and after the last round, anything.
        """
        rows, rest = rows[:, None], [(0, 0)] * rows.ndim
        if self.repeats > 1:  # on each stage: gradients add up after the loop, not in every tick
            rows = jnp.broadcast_to(rows, (len(rows), self.stages, *rows.shape[2:]))
            rows = _placed(rows, None, AXIS, _OTHERS).reshape(-1, self.stages, *rows.shape[1:])
            rows = jnp.pad(rows, [(0, 0), (0, self.stages * (self.repeats - 1)), *rest])
            rows = rows.reshape(-1, *rows.shape[2:])
        return jnp.pad(rows, [(0, self.stages - 1), *rest])

    def leaving(self, y: Array) -> Array:
        """Return what the last stage has of each microbatch at the end, of all outputs [ticks
        stages ...].
        """
        y = y[self.stages - 1 :].reshape(-1, self.repeats, self.stages, *y.shape[1:])[:, -1]
        y = y.reshape(self.parts, *y.shape[2:])
        last = (jnp.arange(self.stages) == self.stages - 1).reshape(1, -1, *[1] * (y.ndim - 2))
        return jnp.where(last, y, jnp.zeros((), y.dtype)).sum(1)

    def kept(self, owned: Any) -> tuple[Any, list[Array]]:
        """Return the layers of all stages, and what their gradients pass through, if ticks pick
        some of them.
        """
        if self.repeats == 1:
            return owned, []
        return jax.lax.stop_gradient(owned), [x for x in jax.tree.leaves(owned) if _learned(x)]

    def picked(self, owned: Any, totals: list[Array], done: Array) -> tuple[Any, list[Array]]:
        """Return the layers of a tick, and `totals`, after it."""
        if self.repeats == 1:
            return owned, totals
        return _of_repeat(owned, totals, self.repeat(done))

    def saving(self, function: Callable, policy: Policy | None = None) -> Callable:
        """Return a function of a tick that saves what the policy says, if ticks pick layers: each
        would save those that it picked, and whole masks.
        """
        if self.repeats == 1:
            return function
        return jax.checkpoint(function, policy=policy, prevent_cse=False)


def run(
    group: Group, layers: Sequence[Any], x: Float[Array, "B T D"], given: Any, repeats: int = 1,
    saved: Policy | None = None,
) -> Float[Array, "B T D"]:  # fmt: skip
    """Return x after all layers: pytrees, of which `group` applies as many as a stage has, in each
    of the repeats.

    `given` are arrays with the same rows as x. Those of integers are zeros in a tick in which a
    stage waits, as padding has them: segments, so that nothing is computed about real pieces.
    `saved` says what a tick saves for the backward pass where there are several repeats.
    """
    stages, count = parts_of((AXIS,)), len(x)
    schedule = Schedule(stages, microbatches(stages * count // row_parts(), stages), repeats)
    each, depth = schedule.parts // stages, len(layers) // (stages * repeats)
    copies = parts_of(_COPIES)
    # The i-th layer of every stage, which only this stage's devices have; a whole copy for each of
    # those that have other rows, so that parameters are gathered once, before the loop, and their
    # gradients add up once, after it, and not in every tick.
    owned, totals = schedule.kept([
        jax.tree.map(lambda *one: _on_stages(jnp.stack(one), repeats, copies), *layers[i::depth])
        for i in range(depth)
    ])  # fmt: skip

    def divided(array: Array) -> Array:
        """Return rows in microbatches, each of rows of all other devices: [parts rows ...]."""
        array = array.reshape(stages, -1, each, *array.shape[1:]).swapaxes(1, 2)
        array = array.reshape(schedule.parts, -1, *array.shape[3:])
        return _placed(array, None, _OTHERS)

    leaves, tree = jax.tree.flatten(given)
    rows = jax.tree.map(divided, (x, leaves, jnp.arange(count, dtype=jnp.uint32)))

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

    def applied(owned: Any, totals: Any, done: Array, now: Any) -> tuple[Array, Any]:
        owned, totals = schedule.picked(owned, totals, done)
        each_copy: Any = jax.vmap(stage, (0, 0, 0, 0, None), spmd_axis_name=_COPIES)
        each_stage: Any = jax.vmap(each_copy, spmd_axis_name=AXIS)
        y = each_stage(owned, *jax.tree.map(in_copies, now), schedule.busy(done))
        return _placed(y.reshape(stages, -1, *y.shape[3:]), AXIS, _OTHERS), totals

    applied, choose = schedule.saving(applied, saved), schedule.saving(_chosen)

    def tick(carried: tuple[Any, Any], at: tuple[Array, Any]) -> tuple[Any, Array]:
        (came, totals), (time, first) = carried, at
        done = schedule.done(time)
        enters = schedule.enters(done)
        now = jax.tree.map(lambda a, b: _placed(choose(enters, a, b), AXIS, _OTHERS), first, came)
        y, totals = applied(owned, totals, done, now)
        return (jax.tree.map(lambda a: _passed_on(a, stages), (y, *now[1:])), totals), y

    start = jax.tree.map(
        lambda a: _placed(jnp.broadcast_to(a[:1], (stages, *a.shape[1:])), AXIS, _OTHERS), rows
    )
    entering = jnp.arange(schedule.ticks), jax.tree.map(schedule.entering, rows)
    y = schedule.leaving(jax.lax.scan(tick, (start, totals), entering)[1])
    y = y.reshape(stages, each, -1, *y.shape[2:]).swapaxes(1, 2)
    return y.reshape(count, *y.shape[3:])


def _of_repeat(owned: Any, totals: list[Array], repeat: Array) -> tuple[Any, list[Array]]:
    """Return the layers of the repeat in which each stage is, and `totals`, through which alone the
    gradients of `owned` pass: those of layers are added to what they are so far, in place, where an
    index's own would add as many zeros for all other repeats.
    """
    leaves, tree = jax.tree.flatten(owned)
    learned = [x for x in leaves if _learned(x)]
    floats, totals = _learned_of_repeat(learned, totals, repeat)
    others = _on_each(_pick)([x for x in leaves if not _learned(x)], repeat)
    picked = [(floats if _learned(x) else others).pop(0) for x in leaves]
    return jax.tree.unflatten(tree, picked), totals


@jax.custom_vjp
def _learned_of_repeat(
    owned: list[Array], totals: list[Array], repeat: Array
) -> tuple[list[Array], list[Array]]:
    return _on_each(_pick)(owned, repeat), totals


def _forward(owned: list[Array], totals: list[Array], repeat: Array) -> tuple[Any, Array]:
    return (_on_each(_pick)(owned, repeat), totals), repeat


def _backward(repeat: Array, gradients: tuple[list[Array], list[Array]]) -> tuple:
    def add(one: list[Array], totals: list[Array], repeat: Array) -> list[Array]:
        return [
            jax.lax.dynamic_update_index_in_dim(total, so_far + new, repeat[0], 2)
            for new, total, so_far in zip(one, totals, _pick(totals, repeat), strict=True)
        ]

    return None, _on_each(add)(*gradients, repeat), None


_learned_of_repeat.defvjp(_forward, _backward)


def _pick(owned: list[Array], repeat: Array) -> list[Array]:
    """Return a stage's layers of a repeat. Its devices pick them themselves: of an index into
    divided arrays, a compiler might gather these.
    """
    return [jax.lax.dynamic_index_in_dim(x, repeat[0], 2, keepdims=False) for x in owned]


def _learned(x: Array) -> bool:
    return jnp.issubdtype(x.dtype, jnp.inexact)


def _passed_on(y: Array, stages: int) -> Array:
    """Return what the stage before each has."""
    turn = [(i, (i + 1) % stages) for i in range(stages)]
    return _on_each(lambda y: jax.lax.ppermute(y, AXIS, turn))(y)


def _on_each(function: Callable) -> Callable:
    """Return a function of arrays of all stages that each stage applies to its own."""
    spec = PartitionSpec(AXIS)
    return jax.shard_map(
        function, in_specs=spec, out_specs=spec, axis_names={AXIS}, check_vma=False
    )


def _chosen(enters: Array, entering: Array, came: Array) -> Array:
    """Return what stages work on: what enters, where something does, else what came."""
    return jnp.where(enters.reshape(-1, *[1] * (came.ndim - 1)), entering, came)


def _on_stages(x: Array, repeats: int, copies: int) -> Array:
    """Return copies of an array, of which each stage has its own part of the first axis; with
    several repeats, [stages copies repeats ...], as the groups of layers go around.
    """
    if repeats > 1:
        x = x.reshape(repeats, -1, *x.shape[1:]).swapaxes(0, 1)
    x = jnp.broadcast_to(x[:, None], (len(x), copies, *x.shape[1:]))
    return _placed(x, AXIS, _COPIES) if _learned(x) else x


def _placed(x: Array, *axes: Any) -> Array:
    """Return an array, divided along its first axes; the others as they are."""
    spec = PartitionSpec(*axes, *[_ANY] * (x.ndim - len(axes)))
    return jax.lax.with_sharding_constraint(x, spec)
