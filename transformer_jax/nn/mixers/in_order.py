"""Loops along sequences whose positions devices share: each goes through its own positions, and
hands the state over to the next (as in LASP: Sun et al. 2024, arXiv:2404.02882).

So a device keeps no more of a row than its positions and a state, and sends a state, however long
the row is. Each waits for those before it: with rows enough, in the time in which these work on
other rows, as stages of a pipeline do, with few idle turns; with a single row, what depends on the
state takes as long as on one device. The rest of a layer does not wait.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from transformer_jax.base.arrays import Array
from transformer_jax.base.shares import POSITIONS, left, parts_of, row_parts, taken

Body = Callable[[Any, Any], tuple[Any, Any]]  # (state, one) -> (next state, output)
_ANY = PartitionSpec.UNCONSTRAINED


def in_chunks(body: Body, start: Any, given: Sequence[Array], size: int) -> tuple[Any, Array]:
    """Return the state at the end of sequences, and outputs [B T ...], from arrays [B T ...] of
    which `body` gets up to `size` positions at a time, [B C ...]; of padding, zeros.
    """
    (rows, length), parts = given[0].shape[:2], parts_of(POSITIONS)
    own, rest = divmod(length, parts)
    if parts == 1 or rest:
        size = min(size, length)
    else:  # whole chunks on each device
        size = next(count for count in range(min(size, own), 0, -1) if own % count == 0)

    def cut(x: Array) -> Array:
        x = jnp.pad(x, [(0, -length % size if axis == 1 else 0) for axis in range(x.ndim)])
        return x.reshape(rows, -1, size, *x.shape[2:]).swapaxes(0, 1)

    state, out = scan(body, start, tuple(map(cut, given)))
    out = out.swapaxes(0, 1)
    return state, out.reshape(rows, -1, *out.shape[3:])[:, :length]


def groups_of(rows: int, parts: int) -> int:
    """Return in how many groups a device's rows follow each other along so many devices: few, as a
    turn has a fixed cost, but enough that at most about half of the turns are idle; 1 where there
    are too few rows for two thirds.
    """
    equal = [count for count in range(1, rows + 1) if rows % count == 0]
    groups = next((count for count in equal if count >= parts), equal[-1])
    return groups if 2 * groups >= parts else 1


def scan(body: Body, start: Any, each: Any, reverse: bool = False) -> tuple[Any, Any]:
    """Return what `jax.lax.scan` does, of a body that treats each row by itself: the state has
    arrays [B ...], `each` and the outputs [T B ...], and what the body holds has no axis of rows,
    or one of size 1.

    Where the mesh divides positions, each device goes through an equal part of the first axis of
    `each`, if there is one.
    """
    line = _Line(left(POSITIONS), parts_of(POSITIONS), reverse)
    if line.parts == 1 or len(jax.tree.leaves(each)[0]) % line.parts:
        return jax.lax.scan(body, start, each, reverse=reverse)
    rows = len(jax.tree.leaves(start)[0])
    shares = row_parts() if rows % row_parts() == 0 else 1
    groups = groups_of(rows // shares, line.parts)

    def divided(x: Array, axis: int) -> Array:
        """Return rows in groups, each with rows of all devices: [groups ... rows ...]."""
        x = x.reshape(*x.shape[:axis], shares, groups, -1, *x.shape[axis + 1 :])
        x = jnp.moveaxis(x, axis + 1, 0)
        return x.reshape(*x.shape[: axis + 1], -1, *x.shape[axis + 3 :])

    def joined(x: Array, axis: int) -> Array:
        """Return rows from groups."""
        x = x.reshape(*x.shape[: axis + 1], shares, -1, *x.shape[axis + 2 :])
        x = jnp.moveaxis(x, 0, axis + 1)
        return x.reshape(*x.shape[:axis], rows, *x.shape[axis + 3 :])

    each = jax.tree.map(lambda x: line.placed(x.reshape(line.parts, -1, *x.shape[1:])), each)
    start = jax.tree.map(lambda x: divided(x, 0), start)
    each = jax.tree.map(lambda x: divided(x, 2), each)
    first = jax.tree.map(lambda x: x[0], start), jax.tree.map(lambda x: x[0, 0, 0], each)
    go = line.go(body, *first)
    state, out = (_in_rounds if groups == 1 else _by_groups)(line, go, start, each)
    out = jax.tree.map(lambda x: joined(x, 2), out)
    out = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), out)
    return jax.tree.map(lambda x: joined(x, 0), state), out


class _Line(NamedTuple):
    """The devices that share the positions of rows, in the order of these or in reverse."""

    axes: tuple[str, ...]
    parts: int
    reverse: bool

    def placed(self, x: Array) -> Array:
        """Return an array with a part for each device, [devices ...]."""
        spec = PartitionSpec(self.axes, *[_ANY] * (x.ndim - 1))
        return jax.lax.with_sharding_constraint(x, spec)

    def repeated(self, tree: Any) -> Any:
        """Return a copy for each device."""
        return jax.tree.map(
            lambda x: self.placed(jnp.broadcast_to(x, (self.parts, *x.shape))), tree
        )

    def go(self, body: Body, state: Any, each: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
        """Return a function of states and `each`, with a part for each device, that goes through
        all parts; from examples of what the body gets.

        Each device has what the body holds for itself, so that gradients of weights add up over
        devices once, at the end, and not in every iteration.
        """
        body, held = jax.closure_convert(body, state, each)

        def own(held: Any, state: Any, each: Any) -> tuple[Any, Any]:
            return jax.lax.scan(
                lambda state, one: body(state, one, *held), state, each, reverse=self.reverse
            )

        return functools.partial(jax.vmap(own, spmd_axis_name=self.axes), self.repeated(held))

    def entering(self, found: Any, first: Any) -> Any:
        """Return the state that each device begins with: that which the one before it found, the
        first one `first`, of which each has a copy.
        """
        turn = [(i, i + 1) for i in range(self.parts - 1)]
        turn = [(j, i) for i, j in turn] if self.reverse else turn

        def own(before: Array, found: Array, first: Array) -> Array:
            return jnp.where(before == 0, first, jax.lax.ppermute(found, self.axes, turn))

        each = PartitionSpec(self.axes)
        return jax.tree.map(self.on_each(own, (each, each), each), found, first)

    def last(self, x: Array) -> Array:
        """Return what the last device has."""
        return x[0 if self.reverse else -1]

    def on_each(
        self, function: Callable[..., Array], given: tuple[PartitionSpec, ...], out: PartitionSpec
    ) -> Callable[..., Array]:
        """Return a function that each device applies to its own parts, after the number of devices
        that are before it.
        """
        before = jnp.arange(self.parts)[:: -1 if self.reverse else 1]
        mapped = jax.shard_map(
            lambda before, *own: function(before[0], *own),
            in_specs=(PartitionSpec(self.axes), *given), out_specs=out,
            axis_names={*self.axes, *taken()}, check_vma=False,
        )  # fmt: skip
        return functools.partial(mapped, before)


def _in_rounds(line: _Line, go: Callable, start: Any, each: Any) -> tuple[Any, Any]:
    """Return states and outputs of one group of rows: in each of as many rounds as there are
    devices, all go through their part, from the state that the one before them had reached; so
    after n rounds, what n devices found is final.
    """
    first, mine = jax.tree.map(lambda x: x[0], (start, each))
    first = line.repeated(first)

    @jax.checkpoint
    def again(states: Any, _: None) -> tuple[Any, None]:
        return line.entering(go(states, mine)[0], first), None

    states, _ = jax.lax.scan(again, first, length=line.parts - 1)
    found, out = go(states, mine)
    return jax.tree.map(lambda x: line.last(x)[None], found), jax.tree.map(lambda x: x[None], out)


def _by_groups(line: _Line, go: Callable, start: Any, each: Any) -> tuple[Any, Any]:
    """Return states and outputs of groups of rows: each device is a turn behind the one before it,
    with padding before its first group and after its last.
    """
    groups = len(jax.tree.leaves(start)[0])
    turns = groups + line.parts - 1

    def later(before: Array, x: Array) -> Array:
        none = jnp.zeros((turns, *x.shape[1:]), x.dtype)
        return jax.lax.dynamic_update_slice_in_dim(none, x, before, 0)

    def sooner(before: Array, x: Array) -> Array:
        return jax.lax.dynamic_slice_in_dim(x, before, groups)

    def turn(found: Any, at: Any) -> tuple[Any, Any]:
        first, mine = at
        found, out = go(line.entering(found, first), mine)
        return found, (found, out)

    def padded(x: Array) -> Array:
        x = jnp.pad(x, [(0, turns - groups), *[(0, 0)] * (x.ndim - 1)])
        return line.repeated(x).swapaxes(0, 1)

    own = PartitionSpec(None, line.axes)
    late, in_time = (line.on_each(moved, (own,), own) for moved in (later, sooner))
    states = line.repeated(jax.tree.map(lambda x: x[0], start))
    given = jax.tree.map(padded, start), jax.tree.map(late, each)
    found, out = jax.lax.scan(turn, states, given)[1]
    last = jax.tree.map(lambda x: line.last(x[line.parts - 1 :].swapaxes(0, 1)), found)
    return last, jax.tree.map(in_time, out)
