"""Convolutions, which pad as PyTorch's do."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Float, at_least_float32
from transformer_jax.nn.initializers import named, parameter


class ConvolveAlong(nn.Module):
    """A convolution of width 3 along a sequence, with a bias; it pads as PyTorch does, by one."""

    channels: int
    width: int
    stride: int
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: Float[Array, "B L C"]) -> Float[Array, "B S D"]:
        init = named(nn.initializers.he_normal(), "rows", "features", "embed")
        kernel = parameter(self, "kernel", init, (3, self.channels, self.width))
        bias = parameter(self, "bias", named(nn.initializers.zeros, "embed"), (self.width,))
        wide = jnp.promote_types(self.dtype, jnp.float32)
        y = jax.lax.conv_general_dilated(
            x.astype(self.dtype), kernel.astype(self.dtype), (self.stride,), ((1, 1),),
            dimension_numbers=("NHC", "HIO", "NHC"),
            preferred_element_type=None if self.dtype == jnp.bfloat16 else wide,
        )  # fmt: skip
        return (at_least_float32(y) + bias.reshape(1, 1, -1)).astype(self.dtype)


class Convolve(nn.Module):
    """A convolution of 3 x 3 pixels and stride 2, with a bias; it pads as PyTorch does, by one."""

    channels: int
    width: int
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"]) -> Float[Array, "B h w D"]:
        init = named(nn.initializers.he_normal(), "rows", "columns", "features", "embed")
        kernel = parameter(self, "kernel", init, (3, 3, self.channels, self.width))
        bias = parameter(self, "bias", named(nn.initializers.zeros, "embed"), (self.width,))
        wide = jnp.promote_types(self.dtype, jnp.float32)
        y = jax.lax.conv_general_dilated(
            x.astype(self.dtype), kernel.astype(self.dtype), (2, 2), ((1, 1), (1, 1)),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            preferred_element_type=None if self.dtype == jnp.bfloat16 else wide,
        )  # fmt: skip
        return (at_least_float32(y) + bias.reshape(1, 1, 1, -1)).astype(self.dtype)
