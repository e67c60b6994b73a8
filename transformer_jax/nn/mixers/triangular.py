"""Systems of equations whose matrix is triangular, with ones on the diagonal: what each token of a
chunk adds depends on what those before it added.

By products alone. XLA's own solver is LAPACK's on a CPU, where it has kept programs of one thread
from ending, and slow for many small systems on a GPU.
"""

import functools

import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float

_product = functools.partial(jnp.matmul, precision="highest")


@jax.custom_vjp
def solve(below: Float[Array, "... C C"], right: Float[Array, "... C P"]) -> Array:
    """Return x [... C P] with (1 + L) x = right, where L is what `below` has below its diagonal."""
    return _product(inverse(below), right)


def _forward(below: Array, right: Array) -> tuple[Array, tuple[Array, Array]]:
    inverted = inverse(below)
    x = _product(inverted, right)
    return x, (inverted, x)


def _backward(kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    inverted, x = kept
    right = _product(inverted.mT, gradient)
    return -jnp.tril(_product(right, x.mT), -1), right


solve.defvjp(_forward, _backward)


def inverse(below: Float[Array, "... C C"]) -> Float[Array, "... C C"]:
    """Return the inverse of 1 + L, L being what `below` has below its diagonal: of blocks on the
    diagonal, each twice as large as before, [[A, 0], [B, C]] becomes [[A', 0], [-C' B A', C']].
    """
    count, outer = below.shape[-1], below.shape[:-2]
    whole = 1 << (count - 1).bit_length()
    below = jnp.pad(below, [(0, 0)] * len(outer) + [(0, whole - count)] * 2)
    inverted, size = jnp.ones((*outer, whole, 1, 1), below.dtype), 1
    while size < whole:
        blocks = below.reshape(*outer, -1, 2, size, whole // (2 * size), 2, size)
        low = jnp.moveaxis(jnp.diagonal(blocks[..., 1, :, :, 0, :], axis1=-4, axis2=-2), -1, -3)
        first, last = inverted[..., ::2, :, :], inverted[..., 1::2, :, :]
        low = -_product(_product(last, low), first)
        upper = jnp.concatenate([first, jnp.zeros_like(first)], -1)
        inverted = jnp.concatenate([upper, jnp.concatenate([low, last], -1)], -2)
        size *= 2
    return inverted[..., 0, :count, :count]
