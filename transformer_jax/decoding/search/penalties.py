"""Length penalties: a hypothesis's score is its log-probability divided by one of these."""

import functools
from typing import Any

import numpy as np
from flax import struct

from transformer_jax.base.arrays import Array, Float, Int
from transformer_jax.config import DecodingConfig
from transformer_jax.config.registry import pick
from transformer_jax.decoding.search.state import Number, static

Lengths = Int[Array, "..."] | Int[np.ndarray, "..."]
Penalties = Float[Array, "..."] | Float[np.ndarray, "..."]


def gnmt(length: Lengths, alpha: Number) -> Penalties:
    """((5 + length) / 6)^alpha (Wu et al. 2016, arXiv:1609.08144, equation 14), the paper's."""
    return ((5.0 + length) / 6.0) ** alpha


def power(length: Lengths, alpha: Number) -> Penalties:
    """length^alpha, as in fairseq, transformers and CTranslate2."""
    return length.astype(np.float32) ** alpha


PENALTIES = {"gnmt": gnmt, "power": power}


@functools.lru_cache(maxsize=4096)
def divisor(name: str, alpha: float, length: int) -> float:
    """Return the penalty of a length as a Python float."""
    return PENALTIES[name](np.array([length]), alpha).item()


@struct.dataclass
class LengthPenalty:
    """The length penalty that the config names; alpha is traced."""

    alpha: Number
    name: str = static()

    @classmethod
    def of(cls, config: DecodingConfig) -> "LengthPenalty":
        """Return the penalty with these settings."""
        return cls(float(config.alpha), config.length_penalty)

    def __call__(self, length: Lengths) -> Any:
        """Return the penalty of each length."""
        return pick(PENALTIES, self.name, "config.decoding.length_penalty")(length, self.alpha)
