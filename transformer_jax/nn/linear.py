"""The only matrix product with parameters; it names its axes."""

import functools
from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from transformer_jax.arrays import Array, Float
from transformer_jax.nn.initializers import named, xavier_uniform

PRODUCT = "product"  # the name under which rematerialisation finds what it may keep


class Project(nn.Module):
    """A linear map over the last axes of x.

    The kernel has shape `in_shape + out_shape`, and `names` are its logical axes, by which it is
    sharded. Kernels start Xavier-uniform over the whole map, biases at zero. The compute dtype
    enters here: operands are cast to it, products are summed at least in float32.
    """

    in_shape: Sequence[int]
    out_shape: Sequence[int]
    names: Sequence[str]
    dtype: jnp.dtype

    def setup(self) -> None:
        count = len(self.in_shape)
        init = named(xavier_uniform(count), *self.names)
        self.kernel = self.param("kernel", init, (*self.in_shape, *self.out_shape))
        zeros = named(nn.initializers.zeros, *self.names[count:])
        self.bias = self.param("bias", zeros, self.out_shape)

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        return _linear(x, self.kernel, self.bias, len(self.in_shape), self.dtype)


def project_together(x: Float[Array, "..."], maps: Sequence[Project]) -> list[Float[Array, "..."]]:
    """Apply several maps to the same x; maps of one shape become one larger, faster product.

    They are stacked on an axis of their own, so that no sharded axis is cut.
    """
    first = maps[0]
    if any(tuple(m.out_shape) != tuple(first.out_shape) for m in maps):
        return [m(x) for m in maps]
    count = len(first.in_shape)
    kernel = jnp.stack([m.kernel for m in maps], axis=count)
    bias = jnp.stack([m.bias for m in maps])
    return list(_apart(_linear(x, kernel, bias, count, first.dtype), x.ndim - count))


def _linear(x, kernel, bias, in_axes: int, dtype):
    product = checkpoint_name(_product(x.astype(dtype), kernel, in_axes), PRODUCT)
    bias = bias.reshape((1,) * (product.ndim - bias.ndim) + bias.shape)
    return (product + bias.astype(product.dtype)).astype(dtype)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _apart(x, axis: int):
    parts = range(x.shape[axis])
    return tuple(jax.lax.index_in_dim(x, i, axis, keepdims=False) for i in parts)


# As jax would have it, a sum of arrays that are zero but for one part: many times slower.
_apart.defvjp(
    lambda x, axis: (_apart(x, axis), None),
    lambda axis, _, gradients: (jnp.stack(gradients, axis),),
)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _product(x, kernel, in_axes: int):
    return _dot(x, kernel.astype(x.dtype), range(x.ndim - in_axes, x.ndim), range(in_axes))


def _forward(x, kernel, in_axes: int):
    return _product(x, kernel, in_axes), (x, kernel)


def _backward(in_axes: int, operands, gradient):
    # As jax would have it, the kernel's gradient is a product with its axes the wrong way round,
    # transposed: on a CPU that costs a copy and half the speed of the product.
    x, kernel = operands
    gradient = gradient.astype(x.dtype)  # it was rounded to that already, behind the product
    outer = x.ndim - in_axes
    out_axes = range(outer, gradient.ndim)
    dx = _dot(gradient, kernel.astype(x.dtype), out_axes, range(in_axes, kernel.ndim))
    dkernel = _dot(x, gradient, range(outer), range(outer))
    return dx.astype(x.dtype), dkernel.astype(kernel.dtype)


_product.defvjp(_forward, _backward)


def _dot(a, b, a_axes: Sequence[int], b_axes: Sequence[int]):
    wide = jnp.promote_types(a.dtype, jnp.float32)
    axes = tuple(a_axes), tuple(b_axes)
    return jax.lax.dot_general(a, b, (axes, ((), ())), preferred_element_type=wide)
