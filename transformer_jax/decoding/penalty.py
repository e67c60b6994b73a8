"""Length penalties: a hypothesis scores its log-probability divided by one of these."""

import functools

import jax.numpy as jnp

from transformer_jax.arrays import Array, Float, Int


def gnmt(length: Int[Array, "..."], alpha: float) -> Float[Array, "..."]:
    """((5 + length) / 6)^alpha (Wu et al. 2016, arXiv:1609.08144, equation 14), the paper's."""
    return ((5.0 + jnp.asarray(length)) / 6.0) ** alpha


def power(length: Int[Array, "..."], alpha: float) -> Float[Array, "..."]:
    """length^alpha, what fairseq, transformers and CTranslate2 use."""
    return jnp.asarray(length).astype(jnp.float32) ** alpha


PENALTIES = {"gnmt": gnmt, "power": power}


@functools.lru_cache(maxsize=4096)
def divisor(name: str, alpha: float, length: int) -> float:
    """Return the penalty of a length as a number of the host."""
    return float(PENALTIES[name](jnp.asarray(length), alpha))
