"""Relative positions without parameters: none, rotary, and ALiBi."""

import math
from dataclasses import replace
from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float, at_least_float32
from transformer_jax.config import ModelConfig
from transformer_jax.config.registry import pick
from transformer_jax.nn.rope_scaling import ROPE_SCALINGS
from transformer_jax.nn.view import View


class NoRelativePositions(nn.Module):
    """No relative positions."""

    config: ModelConfig
    # Whether the paper shares one set of parameters among all layers of a stack.
    shared: ClassVar[bool] = True

    def look(self, view: View) -> View:
        """Return the view with `rotate`, `bias` or `values` set."""
        return view


class Rope(NoRelativePositions):
    """Rotary positions (Su et al. 2021, arXiv:2104.09864), with channels i and i + r/2 as a pair.

    The first r = rope_fraction x head_dim channels of each head are rotated, pair i by the angle
    position x rope_theta^(-2i/r), unless scaled, so a score depends on positions only through their
    distance. This is the layout of Llama and GPT-NeoX; GPT-J and RoFormer interleave.
    """

    interleaved: ClassVar[bool] = False

    def look(self, view: View) -> View:
        """See NoRelativePositions."""
        half = self.config.rotated_channels // 2
        scaling = pick(ROPE_SCALINGS, self.config.rope_scaling, "config.model.rope_scaling")
        frequencies = self.config.rope_theta ** (-np.arange(half) / half)
        frequencies, factor = scaling(self.config, frequencies)
        angles = at_least_float32(
            view.q_pos[:, :, None, None] * jnp.asarray(frequencies)[None, None, None]
        )
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        if factor != 1:
            cos, sin = cos * factor, sin * factor

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
    """Rotary positions with channels 2i and 2i + 1 as a pair, as in the paper and GPT-J."""

    interleaved: ClassVar[bool] = True


class Alibi(NoRelativePositions):
    """Attention with linear biases (Press et al. 2021, arXiv:2108.12409): -m_h x distance.

    In an encoder, unlike in the paper, distance counts in both directions.
    """

    def look(self, view: View) -> View:
        """See NoRelativePositions."""
        slopes = alibi_slopes(self.config.num_heads)

        def bias(
            view: View, q: Float[Array, "B N T H"], k: Float[Array, "B K H S"], scale: float
        ) -> Float[Array, "#B N T S"]:
            away = jnp.abs(view.distance())[:, None]
            return (
                -jnp.asarray(slopes, jnp.promote_types(q.dtype, jnp.float32))[None, :, None, None]
                * away
            )

        return replace(view, bias=bias)


def alibi_slopes(heads: int) -> np.ndarray:
    """Return m_h: 2^(-8h/n) for n heads if n is a power of two; otherwise the slopes of the next
    lower power, then every other one of those of twice that.
    """

    def powers(n: int) -> np.ndarray:
        return 2.0 ** (-8 * np.arange(1, n + 1) / n)

    lower = 2 ** math.floor(math.log2(heads))
    return np.concatenate([powers(lower), powers(2 * lower)[0::2]])[:heads]
