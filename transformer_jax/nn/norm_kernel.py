"""The backward pass of a norm as one kernel for NVIDIA GPUs, which reads every vector once.

XLA would read them for the statistics, for the gradient of the input and for those of the scale and
the bias. Here a program goes through a share of the vectors; its sums of the latter two stay in
registers, and those of all programs are added in a fixed order.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jax.sharding import PartitionSpec

from transformer_jax.base.arrays import Array, Float
from transformer_jax.base.shares import POSITIONS, parts_of, row_parts, rows

WIDEST = 4096  # elements of a vector that fit a program's registers
_PROGRAMS = 528  # four for each multiprocessor of an H100


def fits(x: Float[Array, "B T D"]) -> bool:
    """Return whether the kernel can read these vectors, and the mesh divides their rows."""
    return x.dtype.itemsize <= 4 and x.shape[-1] <= WIDEST and len(x) % row_parts() == 0


def gradients(
    x: Float[Array, "B T D"],
    scale: Float[Array, "D"],
    slopes: Float[Array, "B T D"],
    epsilon: float,
    centred: bool,
    interpret: bool = False,
) -> tuple[Float[Array, "B T D"], Float[Array, "D"], Float[Array, "D"]]:
    """Return the gradients of x, of the scale and of the bias of a norm, given those of its output.

    The norm is (x - mean) / sqrt(variance + epsilon) * scale + bias if `centred`, with a mean of 0
    otherwise. `interpret` runs the kernel on any machine, slowly.
    """
    on_device = functools.partial(_gradients, epsilon=epsilon, centred=centred, interpret=interpret)
    divided = parts_of(POSITIONS) > 1 and x.shape[1] % parts_of(POSITIONS) == 0
    if row_parts() == 1 and not divided:
        return on_device(x, scale, slopes)
    axes = (*rows(), *POSITIONS) if divided else rows()

    def on_each(x, scale, slopes):
        dx, *sums = on_device(x, scale, slopes)
        return dx, *(jax.lax.psum(one, axes) for one in sums)

    own, whole = PartitionSpec(rows(), POSITIONS if divided else None), PartitionSpec()
    specs = (own, whole, own), (own, whole, whole)
    return jax.shard_map(on_each, in_specs=specs[0], out_specs=specs[1], check_vma=False)(
        x, scale, slopes
    )


def _gradients(x, scale, slopes, *, epsilon: float, centred: bool, interpret: bool) -> Any:
    width = x.shape[-1]
    count = x.size // width
    at_once = max(WIDEST // pl.next_power_of_2(width), 1)  # vectors
    turns = max(-(-count // (at_once * _PROGRAMS)), 1)
    programs = -(-count // (at_once * turns))
    vectors = pl.BlockSpec((count, width), lambda i: (0, 0))
    sums = pl.BlockSpec((None, width), lambda i: (i, 0))
    wide = jax.ShapeDtypeStruct((programs, width), jnp.float32)
    dx, dscale, dbias = pl.pallas_call(
        functools.partial(_kernel, at_once=at_once, turns=turns, epsilon=epsilon, centred=centred),
        grid=(programs,),
        in_specs=[vectors, pl.BlockSpec((width,), lambda i: (0,)), vectors],
        out_specs=[vectors, sums, sums],
        out_shape=[jax.ShapeDtypeStruct((count, width), x.dtype), wide, wide],
        compiler_params=triton.CompilerParams(num_warps=4),
        interpret=interpret,
        name="norm_gradients",
    )(x.reshape(count, width), scale, slopes.reshape(count, width))
    return dx.reshape(x.shape), dscale.sum(0), dbias.sum(0)


def _kernel(
    x, scale, slopes, dx, dscale, dbias, *, at_once: int, turns: int, epsilon: float, centred: bool
) -> None:
    count, width = x.shape
    padded = pl.next_power_of_2(width)
    column = jnp.arange(padded)
    inside = column < width
    first = pl.program_id(0) * turns
    scales = triton.load(scale.at[pl.ds(0, padded)], mask=inside, other=0)

    def mean(x):
        return x.sum(1, keepdims=True) / width

    def turn(i, sums):
        start = (first + i) * at_once
        place = pl.ds(start, at_once), pl.ds(0, padded)
        real = (start + jnp.arange(at_once) < count)[:, None] & inside[None]
        values, slope = (
            triton.load(ref.at[place], mask=real, other=0).astype(jnp.float32)
            for ref in (x, slopes)
        )
        if centred:
            values = jnp.where(inside[None], values - mean(values), 0)
        root = jax.lax.rsqrt(mean(values * values) + epsilon)
        normal = values * root
        each = slope * normal, slope
        slope = slope * scales[None]
        slope -= normal * mean(slope * normal) + (mean(slope) if centred else 0)
        triton.store(dx.at[place], (root * slope).astype(dx.dtype), mask=real)
        return tuple(total + one.sum(0) for total, one in zip(sums, each, strict=True))

    zeros = jnp.zeros(padded, jnp.float32)
    sums = jax.lax.fori_loop(0, turns, turn, (zeros, zeros))
    for ref, total in zip((dscale, dbias), sums, strict=True):
        triton.store(ref.at[pl.ds(0, padded)], total, mask=inside)
