"""Linear maps in 8-bit floating point (Micikevicius et al. 2022, arXiv:2209.05433): operands in
e4m3 forward, slopes in e5m2 backward, sums and results in the dtype of what is multiplied.

Each operand of a product has one scale, a power of two by which its largest number just fits, found
as it is rounded: there is no history of scales to keep, and multiplying by them rounds nothing.
"""

import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, on_cpu

FORWARD, BACKWARD = jnp.dtype("float8_e4m3fn"), jnp.dtype("float8_e5m2")
_LEAST = 2.0**-100  # a smaller largest number is scaled as this
_ACTIVE: ContextVar[bool] = ContextVar("float8", default=False)


@contextmanager
def in_float8(active: bool) -> Iterator[None]:
    """Have the linear maps that are applied inside use these products."""
    before = _ACTIVE.set(active)
    try:
        yield
    finally:
        _ACTIVE.reset(before)


def active() -> bool:
    """Return whether linear maps use these products here."""
    return _ACTIVE.get()


def rounded(x: Array, dtype: jnp.dtype) -> tuple[Array, Array]:
    """Return x in units of a scale, and this scale, a power of two of the dtype of x; both are not
    a number if anything in x is not finite.
    """
    largest = jnp.max(jnp.abs(x)).astype(jnp.promote_types(x.dtype, jnp.float32))
    fits = jnp.maximum(largest, _LEAST) / jnp.finfo(dtype).max.astype(largest.dtype)
    scale = jnp.ldexp(jnp.ones_like(largest), jnp.frexp(fits)[1])
    scale = jnp.where(jnp.isfinite(largest), scale, jnp.nan)
    return (x.astype(largest.dtype) / scale).astype(dtype), scale.astype(x.dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def multiply(x: Array, kernel: Array, in_axes: int) -> Array:
    """Return the product over the last axes of x and as many first ones of the kernel, in the dtype
    of x.
    """
    return _forward(x, kernel, in_axes)[0]


def _forward(x: Array, kernel: Array, in_axes: int) -> tuple[Array, tuple]:
    axes = range(x.ndim - in_axes, x.ndim), range(in_axes)
    narrow, scale = rounded(x, FORWARD)
    y = _dot((narrow, scale), rounded(kernel.astype(x.dtype), FORWARD), *axes)
    return y, (narrow, scale, kernel)


def _backward(in_axes: int, kept: tuple, gradient: Array) -> tuple[Array, Array]:
    x, scale, kernel = kept
    slopes = rounded(gradient.astype(scale.dtype), BACKWARD)
    outer = x.ndim - in_axes
    axes = range(outer, gradient.ndim), range(in_axes, kernel.ndim)
    dx = _dot(slopes, rounded(kernel.astype(scale.dtype), FORWARD), *axes)
    dkernel = _dot((x, scale), slopes, range(outer), range(outer))
    return dx, dkernel.astype(kernel.dtype)


multiply.defvjp(_forward, _backward)


def _dot(
    a: tuple[Array, Array], b: tuple[Array, Array], a_axes: Sequence[int], b_axes: Sequence[int]
) -> Array:
    """Return the product of two scaled operands, in the dtype of their scales."""
    (left, one), (right, other) = a, b
    written = one.dtype
    if on_cpu():  # which has no such products: the same numbers, in another format
        written = jnp.promote_types(written, jnp.float32)
        left, right = left.astype(written), right.astype(written)
    axes = (tuple(a_axes), tuple(b_axes)), ((), ())
    product = jax.lax.dot_general(left, right, axes, preferred_element_type=written)
    return (product * one.astype(written) * other.astype(written)).astype(one.dtype)
