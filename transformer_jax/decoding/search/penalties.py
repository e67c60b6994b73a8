"""Length penalties: a hypothesis scores its log-probability divided by one of these."""

import jax.numpy as jnp
from flax import struct

from transformer_jax.arrays import Array, Float, Int
from transformer_jax.choices import pick
from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.search.state import Number, static


def gnmt(length: Int[Array, "..."], alpha: Number) -> Float[Array, "..."]:
    """((5 + length) / 6)^alpha (Wu et al. 2016, arXiv:1609.08144, equation 14), the paper's."""
    return ((5.0 + jnp.asarray(length)) / 6.0) ** alpha


def power(length: Int[Array, "..."], alpha: Number) -> Float[Array, "..."]:
    """length^alpha, what fairseq, transformers and CTranslate2 use."""
    return jnp.asarray(length).astype(jnp.float32) ** alpha


PENALTIES = {"gnmt": gnmt, "power": power}


@struct.dataclass
class LengthPenalty:
    """A penalty as the config names it; alpha is traced."""

    alpha: Number
    name: str = static()

    @classmethod
    def of(cls, config: DecodingConfig) -> "LengthPenalty":
        """Return the penalty with these settings."""
        return cls(float(config.alpha), config.length_penalty)

    def __call__(self, length: Int[Array, "B"]) -> Float[Array, "B"]:
        """Return the penalty of each length."""
        return pick(PENALTIES, self.name, "config.decoding.length_penalty")(length, self.alpha)
