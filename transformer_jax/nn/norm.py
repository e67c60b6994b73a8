"""Normalisation over d_model, and of heads. Statistics are computed at least in float32.

The backward pass recomputes what it needs from the input, which is stored anyway.
"""

import functools
from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Float, at_least_float32
from transformer_jax.choices import pick
from transformer_jax.config import ModelConfig
from transformer_jax.nn.initializers import named, parameter


def standardised(x: Float[Array, "B T D"], epsilon: float) -> Float[Array, "B T D"]:
    """Return (x - mean) / sqrt(variance + epsilon), at least in float32."""
    wide = at_least_float32(x)
    centred = wide - wide.mean(-1, keepdims=True)
    variance = jnp.square(centred).mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + epsilon)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def layer_norm(
    x: Float[Array, "B T D"],
    scale: Float[Array, "D"],
    bias: Float[Array, "D"] | None,
    epsilon: float,
) -> Float[Array, "B T D"]:
    """Return standardised x times scale, plus bias if there is one, in the dtype of x."""
    normal = standardised(x, epsilon) * scale.reshape(1, 1, -1)
    return (normal if bias is None else normal + bias.reshape(1, 1, -1)).astype(x.dtype)


def _layer_norm_forward(x, scale, bias, epsilon: float):
    return layer_norm(x, scale, bias, epsilon), (x, scale, bias)


def _layer_norm_backward(epsilon: float, given, gradient):
    x, scale, bias = jax.lax.optimization_barrier(given)  # or XLA would store what is recomputed
    wide, gradient = at_least_float32(x), at_least_float32(gradient)
    mean = wide.mean(-1, keepdims=True)
    root = jax.lax.rsqrt(jnp.square(wide - mean).mean(-1, keepdims=True) + epsilon)
    mean, root = jax.lax.optimization_barrier((mean, root))  # once for both passes over x below
    normal = (wide - mean) * root
    slope = gradient * scale.reshape(1, 1, -1)
    along = (slope * normal).mean(-1, keepdims=True)
    dx = root * (slope - slope.mean(-1, keepdims=True) - normal * along)
    if bias is None:
        return dx.astype(x.dtype), (gradient * normal).sum((0, 1)).astype(scale.dtype), None
    # One reduction, so that both are summed in one pass.
    zero = jnp.zeros((), wide.dtype)
    dscale, dbias = jax.lax.reduce(
        (gradient * normal, gradient),
        (zero, zero),
        lambda one, two: (one[0] + two[0], one[1] + two[1]),
        (0, 1),
    )
    return dx.astype(x.dtype), dscale.astype(scale.dtype), dbias.astype(bias.dtype)


layer_norm.defvjp(_layer_norm_forward, _layer_norm_backward)


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias (Ba et al. 2016, arXiv:1607.06450)."""

    epsilon: float

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        width = (x.shape[-1],)
        scale = parameter(self, "scale", named(nn.initializers.ones, "embed"), width)
        bias = parameter(self, "bias", named(nn.initializers.zeros, "embed"), width)
        return layer_norm(x, scale, bias, self.epsilon)


class LayerNormNoBias(nn.Module):
    """(x - mean) / sqrt(variance + epsilon) * scale, as in PaLM (arXiv:2204.02311) and MPT."""

    epsilon: float

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        scale = parameter(self, "scale", named(nn.initializers.ones, "embed"), (x.shape[-1],))
        return layer_norm(x, scale, None, self.epsilon)


class RMSNorm(nn.Module):
    """x / sqrt(mean of squares + epsilon) * scale (Zhang and Sennrich 2019, arXiv:1910.07467).

    Over the last axes of x, whose logical names are `axes`.

    Rounded to the compute dtype once, after the scale, as in `torch.nn.RMSNorm`; the code of Llama
    and T5 also rounds before it.
    """

    epsilon: float
    axes: Sequence[str] = ("embed",)

    @nn.compact
    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        count = len(self.axes)
        scale = parameter(self, "scale", named(nn.initializers.ones, *self.axes), x.shape[-count:])
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
    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        init = named(nn.initializers.constant(x.shape[-1] ** 0.5))
        scale = parameter(self, "scale", init, ())
        wide = at_least_float32(x)
        square = jnp.square(wide).sum(-1, keepdims=True)  # its root has no gradient at 0
        least = max(self.epsilon**2, float(jnp.finfo(wide.dtype).tiny))
        return (scale * wide * jax.lax.rsqrt(jnp.maximum(square, least))).astype(x.dtype)


NORMS = {
    "layer_norm": LayerNorm,
    "rms_norm": RMSNorm,
    "scale_norm": ScaleNorm,
    "layer_norm_no_bias": LayerNormNoBias,
}


def make_norm(config: ModelConfig) -> nn.Module:
    """Return the norm that the config names."""
    return pick(NORMS, config.norm, "config.model.norm")(config.norm_epsilon)
