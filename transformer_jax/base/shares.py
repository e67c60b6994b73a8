"""The devices' shares of the rows of a batch."""

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import PartitionSpec

ROWS = ("data", "fsdp")  # mesh axes that divide the rows of a batch


def row_parts() -> int:
    """Return the number of devices among which the current mesh divides rows."""
    sizes = jax.sharding.get_abstract_mesh().shape
    return math.prod(sizes.get(axis, 1) for axis in ROWS)


def on_each_device(function: Callable, *arrays: jax.Array) -> Any:
    """Map a function over the devices' shares of the rows, [devices ...].

    This way no sum in it waits for other devices, which a loop's would do at every iteration.
    """
    devices = row_parts()
    if devices == 1 or len(arrays[0]) % devices:  # the same without a loop's batch axis
        return jax.tree.map(lambda x: x[None], function(*arrays))
    shares = [array.reshape(devices, -1, *array.shape[1:]) for array in arrays]
    by_rows = PartitionSpec(ROWS)
    shares = [jax.lax.with_sharding_constraint(share, by_rows) for share in shares]
    return jax.vmap(function, spmd_axis_name=ROWS)(*shares)


def add_up(shares: Any) -> Any:
    """Return the sums over devices."""
    return jax.tree.map(lambda share: share.sum(0), shares)
