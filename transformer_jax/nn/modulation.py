"""Conditions of a sequence: a vector for its time, and shifts and scales that follow from it."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float, at_least_float32
from transformer_jax.config import ModelConfig
from transformer_jax.config.registry import pick
from transformer_jax.nn.linear import Project
from transformer_jax.nn.norm import normalised
from transformer_jax.nn.roles import OWN_MAP

_TIMES = 1000  # that times from 0 to 1 are scaled to, the steps of DDPM
_WAVES = 256  # channels of a time's sines and cosines
# Whether the norms that conditions scale and shift subtract the mean.
CENTRED = {"layer_norm": True, "rms_norm": False}


def waves(time: Float[Array, "B"]) -> Float[Array, "B W"]:
    """Return cosines, then sines, of 1000 t 10000^(-i / 128), at least in float32."""
    half = _WAVES // 2
    rates = 10000.0 ** (-np.arange(half) / half)
    wide = at_least_float32(time)
    angles = _TIMES * wide[:, None] * jnp.asarray(rates, wide.dtype)[None]
    return jnp.concatenate([jnp.cos(angles), jnp.sin(angles)], -1)


class TwoMaps(nn.Module):
    """A map to `d_model`, SiLU, and another, which start from N(0, 0.02^2), as in DiT."""

    config: ModelConfig
    width: int  # of the input
    dtype: jnp.dtype

    def setup(self) -> None:
        width, start = self.config.d_model, nn.initializers.normal(0.02)
        names, role = ("features", "embed"), OWN_MAP
        self.first = Project((self.width,), (width,), names, self.dtype, role=role, start=start)
        self.second = Project((width,), (width,), names, self.dtype, role=role, start=start)

    def __call__(self, x: Float[Array, "B W"]) -> Float[Array, "B D"]:
        return self.second(jax.nn.silu(self.first(x)))


class Modulation(nn.Module):
    """`count` vectors from a condition: a map of SiLU(condition) that starts at zero (adaLN-Zero:
    Peebles and Xie 2022, arXiv:2212.09748, section 3.2).
    """

    config: ModelConfig
    count: int

    @nn.compact
    def __call__(self, condition: Float[Array, "B D"]) -> list[Float[Array, "B 1 D"]]:
        width, zeros = self.config.d_model, nn.initializers.zeros
        maps = Project(
            (width,), (self.count, width), ("embed", None, "features"), condition.dtype,
            role=OWN_MAP, start=zeros, name="map",
        )  # fmt: skip
        each = maps(jax.nn.silu(condition))
        return [each[:, None, i] for i in range(self.count)]


def modulated(
    config: ModelConfig,
    x: Float[Array, "B T D"],
    shift: Float[Array, "B 1 D"],
    scale: Float[Array, "B 1 D"],
) -> Float[Array, "B T D"]:
    """Return norm(x) (1 + scale) + shift, with the config's norm without parameters."""
    centred = pick(CENTRED, config.norm, "config.model.norm")
    ones = jnp.ones(x.shape[-1], at_least_float32(x).dtype)
    return normalised(x, ones, None, config.norm_epsilon, centred) * (1 + scale) + shift


class LastNorm(nn.Module):
    """norm(x) (1 + scale) + shift, both from a condition, for what no layer follows."""

    config: ModelConfig

    def setup(self) -> None:
        self.modulation = Modulation(self.config, 2)

    def __call__(
        self, x: Float[Array, "B T D"], condition: Float[Array, "B D"]
    ) -> Float[Array, "B T D"]:
        return modulated(self.config, x, *self.modulation(condition))
