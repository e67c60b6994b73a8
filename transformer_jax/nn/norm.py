"""Normalisation over d_model, and of heads. Statistics are computed at least in float32.

The backward pass recomputes what it needs from the input, which is stored anyway.
"""

import functools
from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, at_least_float32, runs_triton
from transformer_jax.base.shares import taken
from transformer_jax.config import ModelConfig
from transformer_jax.config.registry import pick
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.roles import PLAIN


def standardised(x: Float[Array, "*B T D"], epsilon: float) -> Float[Array, "*B T D"]:
    """Return (x - mean) / sqrt(variance + epsilon), at least in float32."""
    wide = at_least_float32(x)
    centred = wide - wide.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + epsilon)


def normalised(
    x: Float[Array, "... D"],
    scale: Float[Array, "D"],
    bias: Float[Array, "D"] | None,
    epsilon: float,
    centred: bool,
) -> Float[Array, "... D"]:
    """Return (x - mean) / sqrt(variance + epsilon) * scale, plus a bias if there is one, in the
    dtype of x. If not `centred`, the mean counts as 0.
    """
    return _normalised(x, scale, bias, epsilon, centred, bool(taken()))


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def _normalised(x, scale, bias, epsilon: float, centred: bool, in_part: bool):
    """Return what `normalised` does; `in_part`: for a part of what devices share, by a vmap."""
    wide = at_least_float32(x)
    if centred:
        normal = standardised(x, epsilon)
    else:
        normal = wide * jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + epsilon)
    one = (1,) * (x.ndim - 1) + scale.shape
    normal = normal * scale.reshape(one)
    return (normal if bias is None else normal + bias.reshape(one)).astype(x.dtype)


def _forward(x, scale, bias, *how):
    return _normalised(x, scale, bias, *how), (x, scale, bias)


def _backward(epsilon: float, centred: bool, in_part: bool, given, gradient):
    x, scale, bias = given
    gradients: Callable = _gradients
    if runs_triton() and not in_part:
        from transformer_jax.nn import norm_kernel  # here: it takes 0.2 s, for GPUs alone

        if norm_kernel.fits(x):
            gradients = norm_kernel.gradients
    dx, dscale, dbias = gradients(x, scale, gradient, epsilon, centred)
    return dx, dscale.astype(scale.dtype), None if bias is None else dbias.astype(bias.dtype)


def _gradients(x, scale, gradient, epsilon: float, centred: bool):
    """Return what `norm_kernel.gradients` does."""
    x, scale = jax.lax.optimization_barrier((x, scale))  # or XLA would store what is recomputed
    wide, gradient = at_least_float32(x), at_least_float32(gradient)
    if centred:
        wide = wide - wide.mean(-1, keepdims=True)
    root = jax.lax.rsqrt(jnp.square(wide).mean(-1, keepdims=True) + epsilon)
    normal = wide * root
    slope = gradient * scale.reshape((1,) * (x.ndim - 1) + scale.shape)
    dx = slope - normal * (slope * normal).mean(-1, keepdims=True)
    if centred:
        dx -= slope.mean(-1, keepdims=True)
    rows = tuple(range(x.ndim - 1))
    return (root * dx).astype(x.dtype), (gradient * normal).sum(rows), gradient.sum(rows)


_normalised.defvjp(_forward, _backward)


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias (Ba et al. 2016, arXiv:1607.06450)."""

    epsilon: float

    @nn.compact
    def __call__(self, x: Float[Array, "*B T D"]) -> Float[Array, "*B T D"]:
        width = (x.shape[-1],)
        scale = parameter(self, "scale", named(nn.initializers.ones, "embed", role=PLAIN), width)
        bias = parameter(self, "bias", named(nn.initializers.zeros, "embed", role=PLAIN), width)
        return normalised(x, scale, bias, self.epsilon, True)


class LayerNormNoBias(nn.Module):
    """(x - mean) / sqrt(variance + epsilon) * scale, as in PaLM (arXiv:2204.02311) and MPT."""

    epsilon: float

    @nn.compact
    def __call__(self, x: Float[Array, "*B T D"]) -> Float[Array, "*B T D"]:
        scale = parameter(
            self, "scale", named(nn.initializers.ones, "embed", role=PLAIN), (x.shape[-1],)
        )
        return normalised(x, scale, None, self.epsilon, True)


class RMSNorm(nn.Module):
    """x / sqrt(mean of squares + epsilon) * scale (Zhang and Sennrich 2019, arXiv:1910.07467).

    Over the last axes of x, whose logical names are `axes`.

    Rounded to the compute dtype once, after the scale, as in `torch.nn.RMSNorm`; the code of Llama
    and T5 also rounds before it. If it is `zero_centered`, 1 is added to the scale, which starts at
    0 (Gemma: arXiv:2403.08295, and its code).
    """

    epsilon: float
    axes: Sequence[str | None] = ("embed",)
    zero_centered: bool = False

    @nn.compact
    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        count = len(self.axes)
        init = nn.initializers.zeros if self.zero_centered else nn.initializers.ones
        scale = parameter(self, "scale", named(init, *self.axes, role=PLAIN), x.shape[-count:])
        scale = 1 + scale if self.zero_centered else scale
        if count == 1:
            return normalised(x, scale, None, self.epsilon, False)
        wide = at_least_float32(x)
        square = jnp.square(wide).mean(tuple(range(-count, 0)), keepdims=True)
        normal = wide * jax.lax.rsqrt(square + self.epsilon)
        return (normal * scale.reshape((1,) * (x.ndim - count) + scale.shape)).astype(x.dtype)


class ScaleNorm(nn.Module):
    """scale * x / max(length of x, epsilon), with a single scale, initially sqrt(D) (Nguyen and
    Salazar 2019, arXiv:1910.05895).
    """

    epsilon: float

    @nn.compact
    def __call__(self, x: Float[Array, "*B T D"]) -> Float[Array, "*B T D"]:
        init = named(nn.initializers.constant(x.shape[-1] ** 0.5), role=PLAIN)
        scale = parameter(self, "scale", init, ())
        wide = at_least_float32(x)
        square = jnp.square(wide).sum(-1, keepdims=True)  # its root has no gradient at 0
        least = max(self.epsilon**2, float(jnp.finfo(wide.dtype).tiny))
        return (scale * wide * jax.lax.rsqrt(jnp.maximum(square, least))).astype(x.dtype)


class ZeroCenteredRMSNorm(RMSNorm):
    """RMSNorm whose scale is 1 more than its parameter."""

    zero_centered: bool = True


ZERO_CENTERED = "zero_centered_rms_norm"
NORMS: dict[str, Callable[[float], nn.Module]] = {
    "layer_norm": LayerNorm,
    "rms_norm": RMSNorm,
    "scale_norm": ScaleNorm,
    "layer_norm_no_bias": LayerNormNoBias,
    ZERO_CENTERED: ZeroCenteredRMSNorm,
}


def make_norm(config: ModelConfig) -> nn.Module:
    """Return the norm that the config names."""
    return pick(NORMS, config.norm, "config.model.norm")(config.norm_epsilon)
