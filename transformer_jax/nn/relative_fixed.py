"""Relative positions without parameters: none, rotary, and ALiBi."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float, at_least_float32
from transformer_jax.config import ModelConfig
from transformer_jax.config.registry import pick
from transformer_jax.nn.view import View

Frequencies = np.ndarray  # [H / 2]


def unscaled(config: ModelConfig, frequencies: Frequencies) -> tuple[Frequencies, float]:
    """Return them as they are."""
    return frequencies, 1.0


def linear(config: ModelConfig, frequencies: Frequencies) -> tuple[Frequencies, float]:
    """Divide all of them, so that positions are closer together (position interpolation: Chen et
    al. 2023, arXiv:2306.15595).
    """
    return frequencies / config.rope_factor, 1.0


def llama3(config: ModelConfig, frequencies: Frequencies) -> tuple[Frequencies, float]:
    """Divide those of less than one turn within the trained length, keep those of more than four,
    and interpolate in proportion to turns (Llama 3.1: arXiv:2407.21783 and Meta's code).
    """
    turns = config.rope_length * frequencies / (2 * math.pi)
    return _mixed(config, frequencies, (turns - 1) / (4 - 1)), 1.0


def yarn(config: ModelConfig, frequencies: Frequencies) -> tuple[Frequencies, float]:
    """Divide those of less than one turn within the trained length, keep those of more than 32,
    and interpolate in proportion to the channel; queries and keys grow with the factor, so that the
    softmax stays as sharp (Peng et al. 2023, arXiv:2309.00071, and the authors' code).
    """
    pairs, length = len(frequencies), config.rope_length

    def pair_of(turns: float) -> float:
        """Return the pair, as a real number, that makes so many turns."""
        return pairs * math.log(length / (turns * 2 * math.pi)) / math.log(config.rope_theta)

    first, last = max(math.floor(pair_of(32.0)), 0), min(math.ceil(pair_of(1.0)), 2 * pairs - 1)
    kept = 1 - (np.arange(pairs) - first) / ((last - first) or 1e-3)
    return _mixed(config, frequencies, kept), 0.1 * math.log(config.rope_factor) + 1


def _mixed(config: ModelConfig, frequencies: Frequencies, kept: np.ndarray) -> Frequencies:
    kept = np.clip(kept, 0, 1)
    return frequencies * (kept + (1 - kept) / config.rope_factor)


# Frequencies of rotary positions for texts longer than those a model was trained on. Each takes a
# config and the frequencies of channel pairs, in radians per position, and returns those to use
# and a factor of queries and keys.
ROPE_SCALINGS: dict[str, Callable[[ModelConfig, Frequencies], tuple[Frequencies, float]]] = {
    "none": unscaled,
    "linear": linear,
    "llama3": llama3,
    "yarn": yarn,
}


class NoRelativePositions(nn.Module):
    """No relative positions."""

    config: ModelConfig
    # Whether the paper shares one set of parameters among all layers of a stack.
    shared: ClassVar[bool] = True

    def __call__(self, view: View) -> View:
        """Return the view with `rotate`, `bias` or `values` set."""
        return view


class Rope(NoRelativePositions):
    """Rotary positions (Su et al. 2021, arXiv:2104.09864), with channels i and i + r/2 as a pair.

    The first r = rope_fraction x head_dim channels of each head are rotated, pair i by the angle
    position x rope_theta^(-2i/r), unless scaled, so a score depends on positions only through their
    distance. This is the layout of Llama and GPT-NeoX; GPT-J and RoFormer interleave.
    """

    interleaved: ClassVar[bool] = False

    def __call__(self, view: View) -> View:
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

    def __call__(self, view: View) -> View:
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
