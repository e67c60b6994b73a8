"""Array types and axis letters, after `jax.nn.dot_product_attention`.

    B batch      T query length   S key length      C cache slots
    D d_model    N heads          H head size       F d_ff
    V vocabulary L layers         W beam width      R distances

They appear only in type annotations and einsum strings. The annotations are checked during tests
(jaxtyping with beartype) and cost nothing otherwise.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt

__all__ = [
    "Array",
    "Bool",
    "Float",
    "Int",
    "Size",
    "UInt",
    "at_least_float32",
    "compute_capability",
    "mean",
    "on_cpu",
    "on_gpu",
    "put_rows",
    "runs_triton",
    "take_rows",
]

# The length of an axis: an int, or under `jax.export` a symbolic dimension, whose type is private.
Size = Any


def at_least_float32(x: Array) -> Array:
    """Cast to float32, or leave a wider type alone, so that whole models also run in float64."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def take_rows(table: Array, index: Int[Array, "..."]) -> Array:
    """Return the rows of a table at these indices. bfloat16 has no gradient: see `nn.lookup`."""
    return _as_bits(lambda bits: bits[index], table)


def put_rows(table: Array, rows: Array, index: Int[Array, "..."]) -> Array:
    """Return a table with these rows at these indices; those past its end are dropped."""
    return _as_bits(lambda old, new: old.at[index].set(new, mode="drop"), table, rows)


def _as_bits(move: Callable[..., Array], *arrays: Array) -> Array:
    """Return `move` of arrays of one type, which copies numbers and computes none.

    XLA on CPUs would convert whole arrays of bfloat16 to float32 and back, to copy a few rows.
    """
    if not (on_cpu() and all(x.dtype == jnp.bfloat16 for x in arrays)):
        return move(*arrays)
    bits = (jax.lax.bitcast_convert_type(x, jnp.uint16) for x in arrays)
    return jax.lax.bitcast_convert_type(move(*bits), jnp.bfloat16)


def on_cpu() -> bool:
    """Return whether tracing targets a CPU."""
    return _platform() == "cpu"


def on_gpu() -> bool:
    """Return whether tracing targets a GPU."""
    return _platform() == "gpu"


def runs_triton() -> bool:
    """Return whether tracing targets a GPU for which Triton compiles kernels."""
    return on_gpu() and (compute_capability() or 0) >= 8


@functools.cache
def compute_capability() -> float | None:
    """Return the compute capability of this machine's NVIDIA GPU, such as 9.0; None without one."""
    device = jax.local_devices()[0]
    if device.platform != "gpu" or "NVIDIA" not in device.device_kind.upper():
        return None
    return float(device.compute_capability)


def _platform() -> str:
    """Return what the mesh says, as plans are made for other machines; else what there is."""
    device = jax.sharding.get_abstract_mesh().abstract_device
    return jax.default_backend() if device is None else device.platform


def mean(trees: Iterable[Any], like: Any) -> Any:
    """Return the mean of trees of arrays, accumulated in float64, one tree at a time.

    The result has the dtypes and shardings of the abstract tree `like`.
    """
    total, count = None, 0
    for tree in trees:
        exact = jax.tree.map(lambda x: np.asarray(x, np.float64), tree)
        total = exact if total is None else jax.tree.map(np.add, total, exact)
        count += 1
    return jax.tree.map(
        lambda x, one: jax.device_put((x / count).astype(one.dtype), one.sharding), total, like
    )
