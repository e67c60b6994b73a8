"""Mamba-2: a state space whose heads decay by one number per token, computed in chunks."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, at_least_float32
from transformer_jax.nn.initializers import log_of, named, parameter, uniform
from transformer_jax.nn.mixers.decaying import DecayingHeads, head_axis
from transformer_jax.nn.mixers.recurrence import FromBothEnds
from transformer_jax.nn.roles import PLAIN


class Mamba2(DecayingHeads):
    """h = exp(-dt A) h + dt B x, y = C h + D x for each head, with dt = softplus(W u + b) and B, C
    and x from the input u by maps, convolutions of `state_conv` positions and SiLU; then y silu(z),
    an RMS norm of each group, and a map (Dao and Gu 2024, arXiv:2405.21060). B and C, the keys and
    queries of linear attention, are shared by the heads of a group. Causal only.
    """

    convolution_bias = True
    start = staticmethod(log_of(uniform(1.0, 16.0)))

    def setup(self) -> None:
        super().setup()
        heads, axis = self.config.inner_heads, head_axis(self.config)
        ones = jax.nn.initializers.ones
        self.skip = parameter(self, "skip", named(ones, axis, role=PLAIN), (heads,))
        by_head = named(ones, axis, None, role=PLAIN)
        self.scale = parameter(self, "scale", by_head, (heads, self.width))

    def group_count(self) -> int:
        """See DecayingHeads."""
        return self.config.state_groups or 1

    def tokens(self, convolved: Sequence[Array], rest: tuple[Array, Array]) -> Any:
        """See Convolved."""
        (q, k, v), (rate, gate) = map(jax.nn.silu, convolved), rest
        read = self.grouped(v * rate[..., None])
        return (q, k, read, self.decays(rate)), (self.grouped(v), gate)

    def leave(self, out: tuple[Array, tuple[Array, Array]]) -> Float[Array, "B T D"]:
        """See Recurrence."""
        mixed, (v, gate) = out
        skip = at_least_float32(self.skip).reshape(1, 1, self.groups, -1, 1)
        gated = (mixed + skip * v) * self.grouped(jax.nn.silu(at_least_float32(gate)))
        square = jnp.square(gated).mean((-1, -2), keepdims=True)
        normal = gated * jax.lax.rsqrt(square + self.config.norm_epsilon)
        scaled = normal.reshape(gate.shape) * at_least_float32(self.scale)[None, None]
        return self.output(scaled.astype(self.dtype))


class BiMamba2(FromBothEnds):
    """Mamba-2 from both ends."""

    one = Mamba2


WORDS = {"mamba2": Mamba2, "bimamba2": BiMamba2}
