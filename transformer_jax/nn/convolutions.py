"""Convolutions with PyTorch's padding, the convolution module of a Conformer block, and the short
convolution in front of a state.
"""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, Int, at_least_float32
from transformer_jax.config import ModelConfig
from transformer_jax.nn.initializers import named, parameter, uniform
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


class ShortConvolution(nn.Module):
    """A causal convolution of each channel along a sequence, over the last W positions of a segment
    and zeros before it, as in Mamba (Gu and Dao 2023, arXiv:2312.00752).

    `shape` is that of a position's channels C, which may be several axes with these names.
    """

    width: int  # W
    shape: Sequence[int]
    names: Sequence[str | None]
    dtype: jnp.dtype
    use_bias: bool = True

    def setup(self) -> None:
        most = self.width**-0.5  # as in torch
        init = named(uniform(-most, most), None, *self.names, role=PLAIN)
        self.depthwise = parameter(self, "depthwise", init, (self.width, *self.shape))
        zeros = named(nn.initializers.zeros, *self.names, role=PLAIN)
        self.bias = parameter(self, "bias", zeros, self.shape) if self.use_bias else None

    def __call__(self, x: Float[Array, "B T *C"], seg: Int[Array, "B T"]) -> Float[Array, "B T *C"]:
        """Return the sums of whole sequences, at least in float32."""
        lags = []
        for lag in reversed(range(self.width)):
            same = _delayed(seg, lag) == seg
            same = same.reshape(*seg.shape, *(1,) * (x.ndim - 2))
            lags.append(jnp.where(same, _delayed(x, lag), 0))
        return self._summed(lags)

    def newest(self, x: Float[Array, "B T *C"], seg: Int[Array, "B T"]) -> Float[Array, "B P *C"]:
        """Return the last P = W - 1 inputs of the last segment, after zeros if it is shorter."""
        last = jnp.where(seg > 0, jnp.arange(seg.shape[1])[None], -1).max(1, keepdims=True)
        places = last + jnp.arange(2 - self.width, 1)[None]
        at = jnp.maximum(places, 0)
        inside = (places >= 0) & (
            jnp.take_along_axis(seg, at, 1) == jnp.take_along_axis(seg, jnp.maximum(last, 0), 1)
        )
        more = (1,) * (x.ndim - 2)
        found = jnp.take_along_axis(x, at.reshape(*at.shape, *more), 1)
        return jnp.where(inside.reshape(*inside.shape, *more), found, 0)

    def blank(self, batch: int) -> Float[Array, "B P *C"]:
        """Return the inputs before a segment: zeros."""
        return jnp.zeros((batch, self.width - 1, *self.shape), self.dtype)

    def after(
        self, past: Float[Array, "B P *C"], x: Float[Array, "B T *C"]
    ) -> tuple[Float[Array, "B T *C"], Float[Array, "B T P *C"]]:
        """Return the sums of T more positions of a segment, given its last P inputs, and what these
        are after each position.
        """
        joined, length = jnp.concatenate([past.astype(x.dtype), x], axis=1), x.shape[1]
        lags = [joined[:, place : place + length] for place in range(self.width)]
        return self._summed(lags), jnp.stack(lags[1:], axis=2)

    def _summed(self, lags: Sequence[Array]) -> Array:
        """Return the weighted sum of inputs [B T *C] at W lags, the oldest first."""
        kernel, total = at_least_float32(self.depthwise), jnp.zeros((), jnp.float32)
        for weights, x in zip(kernel, lags, strict=True):
            total = total + weights[None, None] * at_least_float32(x)
        return total if self.bias is None else total + at_least_float32(self.bias)[None, None]


def _delayed(x: Array, lag: int) -> Array:
    """Return an array [B T ...] that begins with as many zeros, of the same length."""
    return jnp.pad(x, [(0, 0), (lag, 0), *[(0, 0)] * (x.ndim - 2)])[:, : x.shape[1]]
