"""Normalisation over d_model."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Float, at_least_float32
from transformer_jax.nn.initializers import named


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias (Ba et al. 2016, arXiv:1607.06450).

    Statistics are taken at least in float32.
    """

    epsilon: float

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        width = (x.shape[-1],)
        scale = self.param("scale", named(nn.initializers.ones, "embed"), width)
        bias = self.param("bias", named(nn.initializers.zeros, "embed"), width)
        wide = at_least_float32(x)
        centred = wide - wide.mean(-1, keepdims=True)
        variance = jnp.square(centred).mean(-1, keepdims=True)
        normal = centred * jax.lax.rsqrt(variance + self.epsilon)
        scale, bias = scale.reshape(1, 1, -1), bias.reshape(1, 1, -1)
        return (normal * scale + bias).astype(x.dtype)


NORMS = {"layer_norm": LayerNorm}
