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


class Dropout(nn.Module):
    """Zero a fraction `rate` of the elements in training and scale up the others."""

    rate: float

    @nn.compact
    def __call__(self, x: Float[Array, "..."], train: bool) -> Float[Array, "..."]:
        if not train or self.rate == 0.0:
            return x
        return dropped(x, jax.random.key_data(self.make_rng("dropout")), self.rate)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def dropped(x: Float[Array, "..."], words: UInt[Array, "2"], rate: float) -> Float[Array, "..."]:
    """Return x with elements dropped. The backward pass computes their mask again rather than
    reading it from memory.
    """
    return jnp.where(keep(words, x.shape, rate), x / (1 - rate), jnp.zeros_like(x))


def _backward(rate: float, words, gradient):
    words = jax.lax.optimization_barrier(words)  # or XLA would store the first mask
    return dropped(gradient, words, rate), None


dropped.defvjp(lambda x, words, rate: (dropped(x, words, rate), words), _backward)


def keep(words: UInt[Array, "2"], shape: tuple[int, ...], rate: float) -> Bool[Array, "..."]:
    """Return a mask, True with probability 1 - rate, as a function of the key words and index."""
    index = jnp.zeros(shape, jnp.uint32)
    for axis in range(len(shape)):
        stride = math.prod(shape[axis + 1 :]) % 2**32
        index += jax.lax.broadcasted_iota(jnp.uint32, shape, axis) * jnp.uint32(stride)
    bits = _mix(_mix(index ^ words[0]) + words[1])
    return bits >= jnp.uint32(round(rate * 2**32))


def _mix(x: UInt[Array, "..."]) -> UInt[Array, "..."]:
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)
