"""Frequencies of rotary positions for texts longer than those that a model was trained on.

Each takes a config and the frequencies of channel pairs, in radians per position, and returns those
to use and a factor of queries and keys.
"""

import math
from collections.abc import Callable

import numpy as np

from transformer_jax.config import ModelConfig

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


ROPE_SCALINGS: dict[str, Callable[[ModelConfig, Frequencies], tuple[Frequencies, float]]] = {
    "none": unscaled,
    "linear": linear,
    "llama3": llama3,
    "yarn": yarn,
}
