"""Attention between short sequences, on NVIDIA GPUs: one kernel forward and one backward.

Kernels for long sequences (FlashAttention, Dao et al. 2022, arXiv:2205.14135) walk over blocks of
keys, store sums to find their way back, and add the gradients of queries from several blocks. The
sentences of a translation fit one block. Then a program per row and head reads its queries, keys
and values once, and its backward pass computes the weights again from them and writes every
gradient once, in a fixed order.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.sharding import PartitionSpec

from transformer_jax.base.arrays import Array, Bool, Float
from transformer_jax.base.shares import HEADS, parts_of, row_parts, rows as row_axes

LONGEST = 128  # queries or keys that fit a program's registers
_LEAST = 16  # rows and columns of a matrix product there


def fits(
    q: Float[Array, "B T N H"], k: Float[Array, "B S K H"], v: Float[Array, "B S K Hv"]
) -> bool:
    """Return whether the kernels can attend between sequences and heads of these sizes, and the
    mesh divides their rows and heads.
    """
    rows, tensor = _parts()
    sizes = k.shape[3], v.shape[3]
    short = max(q.shape[1], k.shape[1], *sizes) <= LONGEST
    even = len(q) % rows == 0 and k.shape[2] % tensor == 0
    return short and even and all(_padded(size) == size for size in sizes)


def attend_on_mesh(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K Hv"],
    mask: Bool[Array, "B T S"],
    scale: float,
    interpret: bool = False,
) -> Float[Array, "B T N Hv"]:
    """Return what `attend` does, on each device for its own rows and heads."""
    if _parts() == (1, 1):
        return attend(q, k, v, mask, scale, interpret)
    heads, rows = PartitionSpec(row_axes(), None, HEADS), PartitionSpec(row_axes())
    function = functools.partial(attend, scale=scale, interpret=interpret)
    specs = heads, heads, heads, rows
    return jax.shard_map(function, in_specs=specs, out_specs=heads, check_vma=False)(q, k, v, mask)


def _parts() -> tuple[int, int]:
    """Return the numbers of devices that share the rows of a batch, and the heads."""
    return row_parts(), parts_of(HEADS)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5))
def attend(
    q: Float[Array, "B T N H"],
    k: Float[Array, "B S K H"],
    v: Float[Array, "B S K Hv"],
    mask: Bool[Array, "B T S"],
    scale: float,
    interpret: bool = False,
) -> Float[Array, "B T N Hv"]:
    """Return softmax(scale q k) v over the keys that each query sees, all if it sees none.

    Query head i uses head i // (N / K) of keys and values. Scores and sums are float32; weights are
    rounded to the dtype of the values. `interpret` runs it on any machine, slowly.
    """
    out = jax.ShapeDtypeStruct((*q.shape[:3], v.shape[3]), v.dtype)
    return _call(_forward_kernel, (q, k, v, mask), (out,), scale, interpret)[0]


def _forward(q, k, v, mask, scale: float, interpret: bool):
    return attend(q, k, v, mask, scale, interpret), (q, k, v, mask)


def _backward(scale: float, interpret: bool, given, slopes):
    like = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in given[:3]]
    dq, dk, dv = _call(_backward_kernel, (*given, slopes), like, scale, interpret)
    return dq, dk, dv, None


attend.defvjp(_forward, _backward)


def _call(kernel: Any, given: Any, out: Any, scale: float, interpret: bool) -> Any:
    """Run a program for each row and each head of keys."""
    q, k, v, mask, *slopes = given
    batch, queries, heads, _ = q.shape
    keys, kv_heads = k.shape[1:3]
    group = heads // kv_heads

    def by_query(x: Any) -> pl.BlockSpec:
        return pl.BlockSpec((None, queries, group, x.shape[3]), lambda b, h: (b, 0, h, 0))

    def by_key(x: Any) -> pl.BlockSpec:
        return pl.BlockSpec((None, keys, None, x.shape[3]), lambda b, h: (b, 0, h, 0))

    masks = pl.BlockSpec((None, queries, keys), lambda b, h: (b, 0, 0))
    specs = [by_query(q), by_key(k), by_key(v), masks, *map(by_query, slopes)]
    to = [by_query(out[0]), *map(by_key, out[1:])]
    return pl.pallas_call(
        functools.partial(kernel, scale=scale),
        grid=(batch, kv_heads),
        in_specs=specs,
        out_specs=to,
        out_shape=out,
        compiler_params=triton.CompilerParams(num_warps=4 if max(queries, keys) <= 64 else 8),
        interpret=interpret,
        name=kernel.__name__.strip("_"),
    )(q, k, v, mask.astype(jnp.int8), *slopes)


def _forward_kernel(q, k, v, mask, out, *, scale: float) -> None:
    keys, values, seen = _read(k), _read(v), _read(mask)
    for head in range(q.shape[1]):
        weights = _weights(_read(q, head), keys, seen, mask.shape[1], scale)
        _write(out, _dot(weights.astype(values.dtype), values), head)


def _backward_kernel(q, k, v, mask, slopes, dq, dk, dv, *, scale: float) -> None:
    keys, values, seen = _read(k), _read(v), _read(mask)
    dkeys, dvalues = (jnp.zeros(x.shape, jnp.float32) for x in (keys, values))
    for head in range(q.shape[1]):
        queries, slope = _read(q, head), _read(slopes, head)
        weights = _weights(queries, keys, seen, mask.shape[1], scale)
        dweights = _dot(slope, values, turn_b=True)
        along = (weights * dweights).sum(1, keepdims=True)
        dscores = jnp.where(seen != 0, weights * (dweights - along) * scale, 0).astype(keys.dtype)
        dvalues += _dot(weights.astype(values.dtype), slope, turn_a=True)
        dkeys += _dot(dscores, queries, turn_a=True)
        _write(dq, _dot(dscores, keys), head)
    _write(dk, dkeys)
    _write(dv, dvalues)


def _weights(queries, keys, seen, count: int, scale: float):
    """Return the weights of `count` keys, among others that pad them."""
    scores = _dot(queries, keys, turn_b=True) * scale
    scores = jnp.where(seen != 0, scores, jnp.finfo(jnp.float32).min)
    real = jax.lax.broadcasted_iota(jnp.int32, scores.shape, 1) < count
    scores = jnp.where(real, scores, -jnp.inf)
    powers = jnp.exp(scores - scores.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def _dot(a, b, turn_a: bool = False, turn_b: bool = False):
    return triton.dot(a, b, trans_a=turn_a, trans_b=turn_b)


def _read(ref, head: int | None = None):
    """Return a matrix [rows columns] of one head, padded with zeros."""
    view, inside = _part(ref, head)
    return triton.load(view, mask=inside, other=0)


def _write(ref, x, head: int | None = None) -> None:
    view, inside = _part(ref, head)
    triton.store(view, x.astype(ref.dtype), mask=inside)


def _part(ref, head: int | None):
    rows, columns = ref.shape[0], ref.shape[-1]
    shape = _padded(rows), _padded(columns)
    slices = [pl.ds(0, size) for size in shape]
    place = (slices[0], slices[1]) if head is None else (slices[0], jnp.int32(head), slices[1])
    row, column = (jax.lax.broadcasted_iota(jnp.int32, shape, axis) for axis in (0, 1))
    return ref.at[place], (row < rows) & (column < columns)


def _padded(size: int) -> int:
    return max(pl.next_power_of_2(size), _LEAST)
