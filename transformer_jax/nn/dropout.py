"""Dropout from a counter-based generator that XLA fuses with its use.

On a CPU, threefry masks take longer than the matrix products of a small model. Here the mask of
element i is a hash of (i, two key words): two rounds of the `lowbias32` mixer
(https://nullprogram.com/blog/2018/07/31/). It depends only on the element's global index, so the
masks are the same on every mesh.
"""

import functools
import math

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Bool, Float, UInt
from transformer_jax.base.shares import numbers_of


class Dropout(nn.Module):
    """Zero a fraction `rate` of the elements in training and scale up the others."""

    rate: float

    @nn.compact
    def __call__(self, x: Float[Array, "..."], train: bool) -> Float[Array, "..."]:
        if not train or self.rate == 0.0:
            return x
        words = jax.random.key_data(self.make_rng("dropout"))
        return dropped(x, words, self.rate, numbers_of(len(x)) if x.ndim else None)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def dropped(
    x: Float[Array, "..."], words: UInt[Array, "2"], rate: float, rows: UInt[Array, "B"] | None = None
) -> Float[Array, "..."]:
    """Return x with elements dropped; `rows` as for `keep`. The backward pass computes their mask again rather than
    reading it from memory.
    """
    return jnp.where(keep(words, x.shape, rate, rows), x / (1 - rate), jnp.zeros_like(x))


def _backward(rate: float, kept, gradient):
    words, rows = kept
    words = jax.lax.optimization_barrier(words)  # or XLA would store the first mask
    return dropped(gradient, words, rate, rows), None, None


dropped.defvjp(
    lambda x, words, rate, rows: (dropped(x, words, rate, rows), (words, rows)), _backward
)


def keep(
    words: UInt[Array, "2"], shape: tuple[int, ...], rate: float, rows: UInt[Array, "B"] | None = None
) -> Bool[Array, "..."]:
    """Return a mask, True with probability 1 - rate, as a function of the key words and index: that
    in a whole batch, in which these are the numbers of the `rows` of the first axis.
    """
    index = jnp.zeros(shape, jnp.uint32)
    for axis in range(len(shape)):
        stride = math.prod(shape[axis + 1 :]) % 2**32
        place = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        if axis == 0 and rows is not None:
            place = jax.lax.broadcast_in_dim(rows, shape, (0,))
        index += place * jnp.uint32(stride)
    bits = _mix(_mix(index ^ words[0]) + words[1])
    return bits >= jnp.uint32(round(rate * 2**32))


def _mix(x: UInt[Array, "..."]) -> UInt[Array, "..."]:
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)
