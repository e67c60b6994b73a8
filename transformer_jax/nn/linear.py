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

    @nn.compact
    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        shape = (*self.in_shape, *self.out_shape)
        count = len(self.in_shape)
        kernel = self.param("kernel", named(xavier_uniform(count), *self.names), shape)
        zeros = named(nn.initializers.zeros, *self.names[count:])
        bias = self.param("bias", zeros, self.out_shape)
        axes = tuple(range(x.ndim - count, x.ndim)), tuple(range(count))
        wide = jnp.promote_types(self.dtype, jnp.float32)
        product = jax.lax.dot_general(
            x.astype(self.dtype), kernel.astype(self.dtype), (axes, ((), ())),
            preferred_element_type=wide,
        )  # fmt: skip
        bias = bias.reshape((1,) * (product.ndim - bias.ndim) + bias.shape)
        return (product + bias.astype(wide)).astype(self.dtype)
