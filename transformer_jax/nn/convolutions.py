"""Convolutions with PyTorch's padding, and the convolution module of a Conformer block."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, at_least_float32
from transformer_jax.config import ModelConfig
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.linear import Project, project_together
from transformer_jax.nn.norm import make_norm
from transformer_jax.nn.roles import INWARD, OUTWARD, OWN_MAP, PLAIN
from transformer_jax.nn.view import View


class ConvolveAlong(nn.Module):
    """A convolution of width 3 along a sequence, with a bias and a padding of 1 as in PyTorch."""

    channels: int
    width: int
    stride: int
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: Float[Array, "B L C"]) -> Float[Array, "B S D"]:
        init = named(nn.initializers.he_normal(), "rows", "features", "embed", role=OWN_MAP)
        kernel = parameter(self, "kernel", init, (3, self.channels, self.width))
        bias = parameter(
            self, "bias", named(nn.initializers.zeros, "embed", role=PLAIN), (self.width,)
        )
        wide = jnp.promote_types(self.dtype, jnp.float32)
        y = jax.lax.conv_general_dilated(
            x.astype(self.dtype), kernel.astype(self.dtype), (self.stride,), ((1, 1),),
            dimension_numbers=("NHC", "HIO", "NHC"),
            preferred_element_type=None if self.dtype == jnp.bfloat16 else wide,
        )  # fmt: skip
        return (at_least_float32(y) + bias.reshape(1, 1, -1)).astype(self.dtype)


class Convolve(nn.Module):
    """A convolution of 3 x 3 pixels, stride 2, with a bias and a padding of 1 as in PyTorch."""

    channels: int
    width: int
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: Float[Array, "B H W C"]) -> Float[Array, "B h w D"]:
        init = named(
            nn.initializers.he_normal(), "rows", "columns", "features", "embed", role=OWN_MAP
        )
        kernel = parameter(self, "kernel", init, (3, 3, self.channels, self.width))
        bias = parameter(
            self, "bias", named(nn.initializers.zeros, "embed", role=PLAIN), (self.width,)
        )
        wide = jnp.promote_types(self.dtype, jnp.float32)
        y = jax.lax.conv_general_dilated(
            x.astype(self.dtype), kernel.astype(self.dtype), (2, 2), ((1, 1), (1, 1)),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            preferred_element_type=None if self.dtype == jnp.bfloat16 else wide,
        )  # fmt: skip
        return (at_least_float32(y) + bias.reshape(1, 1, 1, -1)).astype(self.dtype)


class ConvolutionModule(nn.Module):
    """A gated linear unit, a depthwise convolution along the sequence, a norm, SiLU and a linear
    map, all without biases.

    The norm is the model's, not the paper's batch norm, as no batch statistics are kept here. The
    convolution sees zeros outside a row's text, so padding changes nothing.
    """

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        inward = (c.d_model,), (c.d_model,), ("embed", "features"), self.dtype, False, INWARD
        self.gate, self.up = Project(*inward), Project(*inward)
        outward = (c.d_model,), (c.d_model,), ("features", "embed"), self.dtype, False, OUTWARD
        self.down = Project(*outward)
        self.norm = make_norm(c)
        init = named(nn.initializers.normal(c.conv_kernel**-0.5), "rows", "features", role=PLAIN)
        self.depthwise = parameter(self, "depthwise", init, (c.conv_kernel, c.d_model))

    def __call__(self, x: Float[Array, "B T D"], view: View) -> Float[Array, "B T D"]:
        gates, linear = project_together(x, [self.gate, self.up])
        x = jnp.where(view.q_seg[..., None] > 0, jax.nn.sigmoid(gates) * linear, 0)
        return self.down(jax.nn.silu(self.norm(self._along(x))))

    def _along(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """Return the sum of neighbours on both sides, weighted per channel."""
        half, length = len(self.depthwise) // 2, x.shape[1]
        padded = at_least_float32(jnp.pad(x, ((0, 0), (half, half), (0, 0))))
        kernel = at_least_float32(self.depthwise)
        summed = jnp.zeros((), padded.dtype)
        for place in range(len(self.depthwise)):
            summed += kernel[place].reshape(1, 1, -1) * padded[:, place : place + length]
        return summed.astype(x.dtype)
