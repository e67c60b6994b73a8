"""The devices' shares of a batch: of its rows, and of the positions of each row."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import flax.linen as nn
import jax
from jax._src import core  # the axes that a vmap divides have no public name
from jax.sharding import PartitionSpec

from transformer_jax.base.errors import UserError

ROWS = ("stage", "data", "fsdp", "expert")  # mesh axes that divide the rows of a batch
POSITIONS = ("context", "ulysses")  # and the positions of a row
HEADS = ("tensor", "ulysses")  # and heads, within attention


# The numbers in a whole batch of the rows that are computed, if these are some of them.
_NUMBERS: ContextVar[jax.Array | None] = ContextVar("numbers", default=None)


def rows() -> tuple[str, ...]:
    """Return the mesh axes that divide rows here: not those that a vmap divides by itself."""
    return left(ROWS)


def taken() -> tuple[str, ...]:
    """Return the mesh axes that an enclosing vmap divides by itself; a `shard_map` inside it needs
    them among its `axis_names`.
    """
    return tuple(core.get_axis_env().spmd_axis_names)


def left(axes: Sequence[str]) -> tuple[str, ...]:
    """Return those of some mesh axes that no enclosing vmap divides by itself."""
    return tuple(axis for axis in axes if axis not in taken())


def row_parts() -> int:
    """Return the number of devices among which the current mesh divides rows."""
    return parts_of(ROWS)


def parts_of(axes: Sequence[str]) -> int:
    """Return the number of devices along some axes of the current mesh, 1 for those it lacks, and
    for those that an enclosing vmap divides by itself.
    """
    sizes = jax.sharding.get_abstract_mesh().shape
    return math.prod(sizes.get(axis, 1) for axis in left(axes))


@contextmanager
def numbered(numbers: jax.Array) -> Iterator[None]:
    """Compute some rows of a batch, which have these numbers in it, [rows]."""
    before = _NUMBERS.set(numbers)
    try:
        yield
    finally:
        _NUMBERS.reset(before)


def numbers_of(count: int) -> jax.Array | None:
    """Return the numbers in a whole batch of the rows that are computed, if these are some of them;
    of `count` rows, if each stands for several.
    """
    numbers = _NUMBERS.get()
    if numbers is None or count == len(numbers):
        return numbers
    each, rest = divmod(count, len(numbers))
    assert rest == 0, "each row of a batch stands for as many others"
    inner = jax.numpy.arange(each, dtype=numbers.dtype)
    return (numbers[:, None] * each + inner[None]).reshape(-1)


def check_groups(count: int, period: int, stages: int, repeats: int, field: str) -> None:
    """Check that layers, whose kinds repeat with a period, are equal groups for so many stages, of
    which each has as many groups as there are repeats.

    Raises:
      UserError: if they are not; names the number of stages or repeats below that works, and of
        layers above.
    """
    least = stages * repeats * period
    if count % least == 0:
        return
    kinds = f" whose kinds repeat after {period}" if period > 1 else ""
    more = f"; choose {{}}, or {-(-count // least) * least} layers"
    if count % (stages * period):
        below = max((s for s in range(2, stages) if count % (s * repeats * period) == 0), default=1)
        raise UserError(
            f"config.mesh.stage={stages}: {count} layers{kinds} ({field}) are not {stages} equal "
            f"groups" + more.format(f"config.mesh.stage={below}")
        )
    below = max(r for r in range(1, repeats) if count % (stages * r * period) == 0)
    raise UserError(
        f"config.model.stage_repeats={repeats}: {count} layers{kinds} ({field}) are not "
        f"{stages * repeats} equal groups, {repeats} for each of config.mesh.stage={stages}"
        + more.format(f"config.model.stage_repeats={below}")
    )


def divides(shape: Sequence[int]) -> bool:
    """Return whether the current mesh divides so many rows and positions, [rows positions ...]."""
    return shape[0] % row_parts() == 0 and shape[1] % parts_of(POSITIONS) == 0


def laid_out(x: jax.Array, *names: str | None) -> jax.Array:
    """Return an activation, divided by the current mesh along the axes that these logical names
    have a rule for.

    Raises:
      UserError: if the mesh does not divide its positions, the axis "act_length".
    """
    if "act_length" in names:
        length, parts = x.shape[names.index("act_length")], parts_of(POSITIONS)
        if isinstance(length, int) and length % parts:
            raise UserError(
                f"config.mesh: rows of {length} positions cannot be divided among the {parts} "
                "devices of context x ulysses; choose lengths that are multiples of it, such as "
                "those of data.batching='pack' with data.max_length, or a mesh without these axes"
            )
    return layout(*names)(x)


def layout(*names: str | None) -> Callable[[jax.Array], jax.Array]:
    """Return a function that lays out an array by the rules of now, for gradients, which are traced
    when these no longer hold.
    """
    rules = [
        (name, left(axes) if isinstance(axes, tuple) else axes)
        for name, axes in nn.get_logical_axis_rules()
    ]
    return lambda x: nn.with_logical_constraint(x, names, rules=rules)


def on_each_device(function: Callable, *arrays: jax.Array, positions: int | None = None) -> Any:
    """Map a function over the devices' shares of the rows, [devices ...]; and over those of the
    axis `positions`, if each position is treated by itself.

    This way no sum in it waits for other devices, which a loop's would do at every iteration.
    """
    parts, lengths = _shares(arrays[0].shape, positions)
    if parts * lengths == 1:  # the same without a loop's batch axis
        return jax.tree.map(lambda x: x[None], function(*arrays))
    axes = rows() if lengths == 1 else (*rows(), *POSITIONS)
    shares = [_split(array, parts, lengths, positions) for array in arrays]
    shares = [jax.lax.with_sharding_constraint(x, PartitionSpec(axes)) for x in shares]
    return jax.vmap(function, spmd_axis_name=axes)(*shares)


def joined(shares: jax.Array, rows: Any, positions: int | None = None) -> jax.Array:
    """Return the array of so many rows whose shares these are."""
    if len(shares) == 1:
        return shares.reshape(rows, *shares.shape[2:])
    parts = rows // shares.shape[1]
    lengths = len(shares) // parts
    if positions is None or lengths == 1:
        return shares.reshape(rows, *shares.shape[2:])
    x = shares.reshape(parts, lengths, *shares.shape[1:])
    x = jax.numpy.moveaxis(x, 1, 1 + positions)  # before the axis that it divides
    shape = x.shape[2 + positions :]
    return x.reshape(rows, *x.shape[2 : 1 + positions], lengths * shape[0], *shape[1:])


def _shares(shape: Sequence[int], positions: int | None) -> tuple[int, int]:
    """Return how many shares there are of rows and of positions; 1 of what is not divided."""
    rows, lengths = row_parts(), 1 if positions is None else parts_of(POSITIONS)
    if positions is not None and lengths > 1 and shape[positions] % lengths:
        lengths = 1
    return (1, 1) if rows > 1 and shape[0] % rows else (rows, lengths)


def _split(x: jax.Array, rows: int, lengths: int, positions: int | None) -> jax.Array:
    x = x.reshape(rows, -1, *x.shape[1:])
    if positions is None or lengths == 1:
        return x
    axis = 1 + positions
    x = x.reshape(*x.shape[:axis], lengths, -1, *x.shape[axis + 1 :])
    x = jax.numpy.moveaxis(x, axis, 1)
    return x.reshape(rows * lengths, *x.shape[2:])


def add_up(shares: Any) -> Any:
    """Return the sums over devices."""
    return jax.tree.map(lambda share: share.sum(0), shares)
