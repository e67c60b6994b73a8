"""The table from logical axes to mesh axes, and the shardings that follow from it."""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import flax.linen as nn
import jax
from jax.sharding import Mesh

from transformer_jax.base.errors import UserError
from transformer_jax.base.shares import HEADS, POSITIONS, ROWS

# Logical axis of a parameter or activation -> mesh axes. An axis that only one layer has, and that
# no mesh divides, needs no rule: its name is None.
RULES = (
    ("batch", ROWS),
    ("vocab", "tensor"),
    ("embed", ("fsdp", "stage")),
    ("heads", "tensor"),
    ("kv_heads", "tensor"),
    ("state_heads", "tensor"),
    ("head_dim", None),
    ("rank", None),
    ("features", None),
    ("rows", None),
    ("columns", None),
    ("horizon", None),
    ("gates", None),
    ("state", None),
    ("classes", None),
    ("experts", "expert"),
    ("choices", None),
    ("mlp", "tensor"),
    ("layers", None),
    ("matrices", (*ROWS, "tensor")),
    ("length", None),
    ("act_length", POSITIONS),
    ("attended", "context"),
    ("act_embed", None),
    ("act_heads", HEADS),
    ("act_mlp", "tensor"),
    ("act_vocab", "tensor"),
)

# The field that sizes each logical axis of parameters that a mesh may divide; None in a field
# stands for another field's value.
SIZES = {
    "vocab": "tokenizer.vocab_size",
    "embed": "model.d_model",
    "heads": "model.num_heads",
    "kv_heads": "model.num_kv_heads",
    "state_heads": "model.state_heads",
    "mlp": "model.d_ff",
    "experts": "model.num_experts",
}


def active() -> AbstractContextManager[None]:
    """Enable the constraints on activations while a function is traced.

    They take the mesh from `jax.set_mesh`; without one, they do nothing.
    """
    return nn.logical_axis_rules(list(RULES))


def check_sizes(mesh: Mesh, sizes: Mapping[str, int], fields: Mapping[str, str] = SIZES) -> None:
    """Check that the mesh divides the size of each logical axis; `fields` names what to change.

    Raises:
      UserError: if it does not; names both numbers.
    """
    for axis, size in sizes.items():
        rule = dict(RULES)[axis] or ()
        axes = [x for x in ([rule] if isinstance(rule, str) else rule) if mesh.shape[x] > 1]
        parts = math.prod(mesh.shape[x] for x in axes)
        if size % parts:
            over = f"config.mesh.{' x '.join(axes)}"
            raise UserError(
                f"config.{fields[axis]}: {size} cannot be divided among the {parts} devices of "
                f"{over}; choose a multiple of {parts}, or {over}={math.gcd(size, parts)} and "
                "config.mesh.data for the rest"
            )


def is_known(axis: str | None) -> bool:
    """Return whether an axis of parameters has a rule and, if that divides it, a field to check, or
    has no name.
    """
    if axis is None:
        return True
    rules = dict(RULES)
    return axis in rules and (rules[axis] is None or axis in SIZES)


def param_shardings(boxed: Any, mesh: Mesh) -> Any:
    """Return the shardings of parameters from the logical axes in their boxes.

    Raises:
      UserError: if the mesh does not divide a parameter, or has no rule for one of its axes.
    """
    boxed = jax.tree.map(_without_others, boxed, is_leaf=_is_box)
    for leaf in jax.tree.leaves(boxed, is_leaf=_is_box):
        if _is_box(leaf):
            named = dict(zip(leaf.names, leaf.value.shape, strict=True))
            unknown = [name for name in named if not is_known(name)]
            if unknown:
                raise UserError(
                    f"a parameter with axes {leaf.names}: {unknown} have no rule in RULES of "
                    f"sharding/rules.py; use names from it, such as {[*SIZES]}, or name no axes"
                )
            check_sizes(mesh, {name: size for name, size in named.items() if name in SIZES})
    return nn.logical_to_mesh_sharding(nn.get_partition_spec(boxed), mesh, list(RULES))


def bytes_per_device(boxed: Any, mesh: Mesh) -> int:
    """Return the bytes of parameters, or of a whole state, that one device holds."""
    shardings = jax.tree.leaves(param_shardings(boxed, mesh))
    leaves = jax.tree.leaves(nn.unbox(boxed))
    return sum(
        math.prod(sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize
        for leaf, sharding in zip(leaves, shardings, strict=True)
    )


def _without_others(leaf: Any) -> Any:
    """Remove the box of optimizer state that exists only for other parameters, or has other axes:
    an optimizer of one's own need not know of boxes, and then every device has all of it.
    """
    if not _is_box(leaf) or [x.ndim for x in jax.tree.leaves(leaf.value)] == [len(leaf.names)]:
        return leaf
    return leaf.value


def _is_box(leaf: Any) -> bool:
    return isinstance(leaf, nn.LogicallyPartitioned)
