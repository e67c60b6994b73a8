"""How a model knows order. A scheme answers any of three questions:

    embed    what is added to the input
    rotate   what is done to queries and keys    } both by way of `look`, once for a whole stack
    bias     what is added to the scores         }

POSITIONS holds the schemes that `embed`, RELATIVE_POSITIONS those that `look`.
"""

import math
from dataclasses import replace
from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from transformer_jax.arrays import Array, Float, Int, at_least_float32
from transformer_jax.config import ModelConfig
from transformer_jax.nn.initializers import named
from transformer_jax.nn.view import View


class NoPositions(nn.Module):
    """Nothing at all: the order of what is looked at is unknown (Haviv et al. 2022)."""

    config: ModelConfig

    def embed(self, positions: Int[Array, "B T"], limit: int) -> Float[Array, "B T D"] | None:
        """Return what is added to the input at `positions`, all below the static `limit`."""
        return None

    def look(self, view: View) -> View:
        """Return the view with `rotate` or `bias` set."""
        return view


class Sinusoidal(NoPositions):
    """Paper 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos of the same."""

    def embed(self, positions: Int[Array, "B T"], limit: int) -> Float[Array, "B T D"]:
        return jnp.asarray(self.table(limit))[positions]

    def table(self, limit: int) -> np.ndarray:
        """Return [limit D], float64."""
        width = self.config.d_model
        angles = np.arange(limit)[:, None] * 10000.0 ** (-2 * np.arange(width // 2) / width)
        return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(limit, width)


class SinusoidalTensor2Tensor(Sinusoidal):
    """tensor2tensor's: all sines, then all cosines; exponents i / (D/2 - 1)."""

    def table(self, limit: int) -> np.ndarray:
        half = self.config.d_model // 2
        angles = np.arange(limit)[:, None] * 10000.0 ** (-np.arange(half) / max(half - 1, 1))
        return np.concatenate([np.sin(angles), np.cos(angles)], -1)


class Learned(NoPositions):
    """A trained vector for each position (paper Table 3, row E)."""

    @nn.compact
    def embed(self, positions: Int[Array, "B T"], limit: int) -> Float[Array, "B T D"]:
        """See NoPositions.

        Raises:
          ValueError: if `limit` exceeds the table.
        """
        rows, width = self.config.max_positions, self.config.d_model
        if limit > rows:
            raise ValueError(f"positions up to {limit} exceed config.model.max_positions={rows}")
        init = named(nn.initializers.normal(width**-0.5), "length", "embed")
        return self.param("table", init, (rows, width))[positions]


POSITIONS = {
    "sinusoidal": Sinusoidal,
    "sinusoidal_tensor2tensor": SinusoidalTensor2Tensor,
    "learned": Learned,
    "none": NoPositions,
}


class Rope(NoPositions):
    """Rotary positions (Su et al. 2021, arXiv:2104.09864), channels i and i + r/2 being a pair.

    The first r = rope_fraction x head_dim channels of each head turn, pair i by the angle
    position x rope_theta^(-2i/r). So a score depends on the distance alone. This is the layout of
    Llama and GPT-NeoX; GPT-J and RoFormer interleave.
    """

    interleaved: ClassVar[bool] = False

    def look(self, view: View) -> View:
        """See NoPositions."""
        half = self.config.rotated_channels // 2
        frequencies = self.config.rope_theta ** (-np.arange(half) / half)
        angles = at_least_float32(
            view.q_pos[:, :, None, None] * jnp.asarray(frequencies)[None, None, None]
        )
        cos, sin = jnp.cos(angles), jnp.sin(angles)

        def rotate(x: Float[Array, "B T N H"]) -> Float[Array, "B T N H"]:
            turning, rest = at_least_float32(x[..., : 2 * half]), x[..., 2 * half :]
            if self.interleaved:
                one, other = turning[..., 0::2], turning[..., 1::2]
            else:
                one, other = turning[..., :half], turning[..., half:]
            pair = one * cos - other * sin, one * sin + other * cos
            if self.interleaved:
                turned = jnp.stack(pair, -1).reshape(turning.shape)
            else:
                turned = jnp.concatenate(pair, -1)
            return jnp.concatenate([turned.astype(x.dtype), rest], -1)

        return replace(view, rotate=rotate)


class RopeInterleaved(Rope):
    """Rotary positions, channels 2i and 2i + 1 being a pair, as the paper and GPT-J have it."""

    interleaved: ClassVar[bool] = True


class Alibi(NoPositions):
    """Attention with linear biases (Press et al. 2021, arXiv:2108.12409): -m_h x distance.

    In an encoder the distance counts either way, which is not the paper's.
    """

    def look(self, view: View) -> View:
        """See NoPositions."""
        slopes = alibi_slopes(self.config.num_heads)

        def bias(q: Float[Array, "B N T H"]) -> Float[Array, "B N T S"]:
            away = jnp.abs(view.distance())[:, None]
            return (
                -jnp.asarray(slopes, jnp.promote_types(q.dtype, jnp.float32))[None, :, None, None]
                * away
            )

        return replace(view, bias=bias)


def alibi_slopes(heads: int) -> np.ndarray:
    """Return m_h: 2^(-8h/n) for n heads, a power of two; for others those of the next lower power,
    and then every other one of twice that.
    """

    def powers(n: int) -> np.ndarray:
        return 2.0 ** (-8 * np.arange(1, n + 1) / n)

    lower = 2 ** math.floor(math.log2(heads))
    return np.concatenate([powers(lower), powers(2 * lower)[0::2]])[:heads]


RELATIVE_POSITIONS = {
    "none": NoPositions,
    "rope": Rope,
    "rope_interleaved": RopeInterleaved,
    "alibi": Alibi,
}
