"""The only matrix product with parameters; it names its axes."""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Float
from transformer_jax.nn.initializers import named, xavier_uniform


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
    together = _linear(x, kernel, bias, count, first.dtype)
    axis = x.ndim - count
    return [jax.lax.index_in_dim(together, i, axis, keepdims=False) for i in range(len(maps))]


def _linear(x, kernel, bias, in_axes: int, dtype):
    axes = tuple(range(x.ndim - in_axes, x.ndim)), tuple(range(in_axes))
    wide = jnp.promote_types(dtype, jnp.float32)
    product = jax.lax.dot_general(
        x.astype(dtype), kernel.astype(dtype), (axes, ((), ())), preferred_element_type=wide
    )
    bias = bias.reshape((1,) * (product.ndim - bias.ndim) + bias.shape)
    return (product + bias.astype(wide)).astype(dtype)
