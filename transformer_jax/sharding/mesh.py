"""The mesh of devices, and the table that maps logical axes to it."""

from typing import Any

import flax.linen as nn
import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from transformer_jax.config import MeshConfig
from transformer_jax.errors import UserError

AXES = ("data", "fsdp", "tensor")

# Logical axis of a parameter or activation -> mesh axes. Only `data` is longer than 1 so far.
RULES = (
    ("batch", ("data", "fsdp")),
    ("vocab", "tensor"),
    ("embed", "fsdp"),
    ("heads", "tensor"),
    ("kv_heads", "tensor"),
    ("head_dim", None),
    ("mlp", "tensor"),
    ("layers", None),
    ("length", None),
    ("act_embed", None),
    ("act_heads", "tensor"),
    ("act_mlp", "tensor"),
    ("act_vocab", "tensor"),
)


def make_mesh(config: MeshConfig, rows_divisible_by: int | None = None) -> Mesh:
    """Return the mesh data x fsdp x tensor over all devices.

    Raises:
      UserError: if the axes do not use up the devices, or batches cannot be divided among them.
    """
    devices = jax.device_count()
    data = devices if config.data == -1 else config.data
    if data != devices:
        raise UserError(f"config.mesh.data={data}: there are {devices} devices; use -1 for all")
    if rows_divisible_by is not None and rows_divisible_by % data:
        raise UserError(
            f"config.data.rows_divisible_by={rows_divisible_by} is no multiple of the {data} "
            f"devices of config.mesh.data; set it to {-(-rows_divisible_by // data) * data}"
        )
    return jax.make_mesh((data, 1, 1), AXES, axis_types=(AxisType.Auto,) * len(AXES))


def rows_over_data(mesh: Mesh) -> NamedSharding:
    """Return the sharding of a batch: rows divided, the rest whole."""
    return NamedSharding(mesh, PartitionSpec(("data", "fsdp")))


def place_batch(batch: Any, mesh: Mesh) -> Any:
    """Make one global array of each process's rows."""
    sharding = rows_over_data(mesh)
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(sharding, x), batch)


def replicated(tree: Any, mesh: Mesh) -> Any:
    """Return a tree of shardings that keep every leaf whole on every device."""
    return jax.tree.map(lambda _: NamedSharding(mesh, PartitionSpec()), tree)


def param_shardings(boxed: Any, mesh: Mesh) -> Any:
    """Return the shardings of parameters from the logical axes in their boxes."""
    return nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, list(RULES))
