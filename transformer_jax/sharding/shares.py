"""Functions of each device's share of the rows of a batch."""

import math
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import PartitionSpec

from transformer_jax.arrays import Array
from transformer_jax.sharding.rules import ROWS


def on_each_device(function: Callable, *arrays: Array) -> Any:
    """Map a function over the devices' shares of the rows, [devices ...].

    This way no sum in it waits for other devices, which a loop's would do at every iteration.
    """
    mesh = jax.sharding.get_abstract_mesh()
    devices = math.prod(mesh.shape.get(axis, 1) for axis in ROWS) if mesh.shape else 1
    if len(arrays[0]) % devices:
        devices = 1
    shares = [array.reshape(devices, -1, *array.shape[1:]) for array in arrays]
    if devices == 1:  # the same without a loop's batch axis
        return jax.tree.map(lambda x: x[None], function(*[share[0] for share in shares]))
    by_rows = PartitionSpec(ROWS)
    shares = [jax.lax.with_sharding_constraint(share, by_rows) for share in shares]
    return jax.vmap(function, spmd_axis_name=ROWS)(*shares)


def add_up(shares: Any) -> Any:
    """Return the sums over devices."""
    return jax.tree.map(lambda share: share.sum(0), shares)
