"""Gated DeltaNet: fast weights that forget, and correct what a key has stored."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, at_least_float32
from transformer_jax.nn.linear import Project
from transformer_jax.nn.mixers.decaying import DecayingHeads, head_axis
from transformer_jax.nn.mixers.recurrence import FromBothEnds
from transformer_jax.nn.norm import RMSNorm
from transformer_jax.nn.roles import INWARD

_EPSILON = 1e-6  # added to the square of a length


class GatedDelta(DecayingHeads):
    """S = g S, then S += b k (v - S k), y = S q for each head: the delta rule, with a decay
    g = exp(-A softplus(W u + c)) and a strength b = sigmoid(W' u) (Yang et al. 2024,
    arXiv:2412.06464). q, k and v pass convolutions of `state_conv` positions and SiLU; q and k have
    length 1, scores are divided by the root of their size. Each head's output has an RMS norm, with
    the same scale for all, and is multiplied by silu(z), as in Qwen3-Next. Causal only.
    """

    def setup(self) -> None:
        super().setup()
        c = self.config
        strength = (c.d_model,), (c.inner_heads,), ("embed", head_axis(c)), self.dtype, False
        self.strength = Project(*strength, INWARD)
        self.norm = RMSNorm(c.norm_epsilon, (None,))

    def group_count(self) -> int:
        """See DecayingHeads."""
        return self.config.state_groups or self.config.inner_heads

    def enter(self, x: Float[Array, "B T D"]) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """See DecayingHeads; adds strengths [B T N]."""
        inputs, (rate, gate) = super().enter(x)
        strength = jax.nn.sigmoid(at_least_float32(self.strength(x)))
        return inputs, (rate, strength, gate)

    def tokens(self, convolved: Sequence[Array], rest: tuple[Array, ...]) -> Any:
        """See Convolved."""
        (q, k, v), (rate, strength, gate) = map(jax.nn.silu, convolved), rest
        q, k = _of_length_1(q) * self.config.state_size**-0.5, _of_length_1(k)
        return (q, k, self.grouped(v), self.decays(rate), self.grouped(strength)), gate

    def leave(self, out: tuple[Array, Array]) -> Float[Array, "B T D"]:
        """See Recurrence."""
        mixed, gate = out
        mixed = self.norm(mixed.reshape(gate.shape)) * jax.nn.silu(at_least_float32(gate))
        return self.output(mixed.astype(self.dtype))


def _of_length_1(x: Float[Array, "B T K F"]) -> Float[Array, "B T K F"]:
    return x * jax.lax.rsqrt(jnp.square(x).sum(-1, keepdims=True) + _EPSILON)


class BiGatedDelta(FromBothEnds):
    """Gated DeltaNet from both ends."""

    one = GatedDelta


WORDS = {"gated_delta": GatedDelta, "bigated_delta": BiGatedDelta}
