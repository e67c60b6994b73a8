"""What Mamba-2 and gated DeltaNet share: heads with a state that decays, after a short convolution.

R heads of values share the keys and queries of a group, K groups in all. A head's state is a sum of
keys times values, [F P], that each token multiplies by a factor of its own before it adds to it.
"""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, Int, at_least_float32
from transformer_jax.config import ModelConfig
from transformer_jax.nn.convolutions import ShortConvolution
from transformer_jax.nn.initializers import (
    before_softplus,
    log_of,
    named,
    parameter,
    time_steps,
    uniform,
)
from transformer_jax.nn.linear import Project, project_together
from transformer_jax.nn.mixers import triangular
from transformer_jax.nn.mixers.linear_attention import chunked
from transformer_jax.nn.mixers.recurrence import Recurrence, Step, trailed
from transformer_jax.nn.roles import INWARD, OUTWARD, PLAIN
from transformer_jax.nn.view import View

Tokens = tuple[Array, ...]  # queries, keys [B T K F], values [B T K R P], decays [B T K R] ...


class Convolved(Recurrence):
    """A Recurrence whose inputs first pass short convolutions along the sequence."""

    @property
    def convolutions(self) -> Sequence[ShortConvolution]:
        """Return those of the inputs, in their order."""
        raise NotImplementedError

    def enter(self, x: Float[Array, "B T D"]) -> tuple[Sequence[Array], Any]:
        """See Recurrence: inputs of the convolutions, and the rest."""
        raise NotImplementedError

    def tokens(self, convolved: Sequence[Array], rest: Any) -> Any:
        """Return what changes the state, a tuple of arrays [B T ...], and the rest, from what the
        convolutions returned.
        """
        raise NotImplementedError

    def blank_memory(self, batch: int) -> Any:
        """Return the blank state behind the convolutions [B ...]."""
        raise NotImplementedError

    def sequence(self, tokens: Any, seg: Int[Array, "B T"]) -> tuple[Any, Any]:
        """Return the outputs for whole sequences, and the last state behind the convolutions."""
        raise NotImplementedError

    def blank(self, batch: int) -> Any:
        """See Recurrence: the last inputs of convolutions, and the state behind them."""
        return tuple(c.blank(batch) for c in self.convolutions), self.blank_memory(batch)

    @nn.nowrap
    def _wide(self, tokens: tuple[Tokens, Any]) -> tuple[Tokens, Any]:
        """Return them in the dtype of the state, whatever that of the parameters is."""
        entering, rest = tokens
        wide = jnp.promote_types(self.dtype, jnp.float32)
        return tuple(x.astype(wide) for x in entering), rest

    def through(self, entering: Any, view: View) -> tuple[Any, Any]:
        """See Recurrence."""
        assert view.order == "causal", "it runs from left to right"
        (inputs, rest), seg = entering, view.q_seg
        pairs = list(zip(self.convolutions, inputs, strict=True))
        tokens = self._wide(self.tokens([convolve(x, seg) for convolve, x in pairs], rest))
        out, memory = self.sequence(tokens, seg)
        return out, (tuple(convolve.newest(x, seg) for convolve, x in pairs), memory)

    def further(self, state: Any, entering: Any) -> tuple[Any, Any]:
        """See Recurrence: convolutions at once, then step by step."""
        (pasts, memory), (inputs, rest) = state, entering
        found = [
            convolve.after(past, x)
            for convolve, past, x in zip(self.convolutions, pasts, inputs, strict=True)
        ]
        tokens = self._wide(self.tokens([x for x, _ in found], rest))
        out, trail = trailed(self.step(), memory, tokens)
        return out, (tuple(past for _, past in found), trail)


def head_axis(config: ModelConfig) -> str:
    """Return the name of the axis of heads with a state: that of queries if they are as many."""
    return "heads" if config.inner_heads == config.num_heads else "state_heads"


class DecayingHeads(Convolved):
    """Projections to queries, keys, values and gates without biases, and back, and the rates of
    decay: exp(-softplus(W x + b) A) for each token and head.
    """

    convolution_bias = False
    start = staticmethod(log_of(uniform(0.01, 16.0)))  # the initialiser of the logarithms of A

    def setup(self) -> None:
        c, axis = self.config, head_axis(self.config)
        self.groups, self.width = self.group_count(), c.inner_width // c.inner_heads
        by_head = ("embed", axis, None), self.dtype, False, INWARD
        heads = (c.d_model,), (c.inner_heads, self.width), *by_head
        self.value, self.gate = Project(*heads), Project(*heads)
        shared = ("embed", None, None), self.dtype, False, INWARD
        of_groups = (c.d_model,), (self.groups, c.state_size), *shared
        self.query, self.key = Project(*of_groups), Project(*of_groups)
        rate = (c.d_model,), (c.inner_heads,), ("embed", axis), self.dtype, False
        self.rate = Project(*rate, INWARD)
        outward = (c.inner_heads, self.width), (c.d_model,), (axis, None, "embed")
        self.output = Project(*outward, self.dtype, False, OUTWARD)
        of_group, of_head = (self.groups, c.state_size), (c.inner_heads, self.width)
        self.query_convolution = self._convolution(of_group, (None, None))
        self.key_convolution = self._convolution(of_group, (None, None))
        self.value_convolution = self._convolution(of_head, (axis, None))
        for name, init in (("rate_bias", before_softplus(time_steps)), ("log_decay", self.start)):
            init = named(init, axis, role=PLAIN)
            setattr(self, name, parameter(self, name, init, (c.inner_heads,)))

    def _convolution(
        self, shape: tuple[int, int], names: tuple[str | None, None]
    ) -> ShortConvolution:
        width, bias = self.config.state_conv, self.convolution_bias
        return ShortConvolution(width, shape, names, self.dtype, bias)

    def group_count(self) -> int:
        """K."""
        raise NotImplementedError

    @property
    def convolutions(self) -> Sequence[ShortConvolution]:
        """See Convolved: of queries, keys and values."""
        return self.query_convolution, self.key_convolution, self.value_convolution

    def enter(self, x: Float[Array, "B T D"]) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """See Convolved; the rest are time steps [B T N] and gates [B T N P]."""
        value, gate = project_together(x, [self.value, self.gate])
        query, key = project_together(x, [self.query, self.key])
        rate = at_least_float32(self.rate(x)) + at_least_float32(self.rate_bias)[None, None]
        return (query, key, value), (jax.nn.softplus(rate), gate)

    def decays(self, rate: Float[Array, "B T N"]) -> Float[Array, "B T K R"]:
        """Return the logarithms of the factors of the states."""
        return self.grouped(-rate * jnp.exp(at_least_float32(self.log_decay))[None, None])

    def grouped(self, x: Float[Array, "B T N *P"]) -> Float[Array, "B T K R *P"]:
        """Return what heads have, by groups."""
        return x.reshape(*x.shape[:2], self.groups, -1, *x.shape[3:])

    def blank_memory(self, batch: int) -> Float[Array, "B K F V"]:
        """See Convolved."""
        c, wide = self.config, jnp.promote_types(self.dtype, jnp.float32)
        return jnp.zeros((batch, self.groups, c.state_size, c.inner_width // self.groups), wide)

    def sequence(self, tokens: tuple[Tokens, Any], seg: Int[Array, "B T"]) -> tuple[Any, Array]:
        """See Convolved: in chunks."""
        entering, rest = tokens
        out, memory = chunked(forget, entering, seg, self.blank_memory(seg.shape[0]))
        return (out, rest), memory

    def step(self) -> Step:
        """See Recurrence."""

        def step(state: Array, token: tuple[Tokens, Any]) -> tuple[Array, Any]:
            (q, k, v, decay, *strength), rest = token
            heads = (*state.shape[:3], *v.shape[2:])
            state = state.reshape(heads) * jnp.exp(decay)[:, :, None, :, None]
            if strength:
                v = strength[0][..., None] * (v - jnp.einsum("BKF,BKFRP->BKRP", k, state))
            state = state + k[..., None, None] * v[:, :, None]
            out = jnp.einsum("BKF,BKFRP->BKRP", q, state)
            return state.reshape(*heads[:3], -1), (out, rest)

        return step


def forget(given: Sequence[Array], state: Array, same: Array, goes_on: Array) -> tuple:
    """Return what a chunk gathers and adds, for `linear_attention.chunked`: each pair's product,
    times the factors of all tokens between the two.

    With strengths [B T K R], a value is first reduced by what its key finds, in the state and in
    what earlier tokens of the chunk added: a triangular system of equations, as in the chunked form
    of the delta rule (Yang et al. 2024, arXiv:2406.06484).
    """
    q, k, v, decay, *strength = given
    state = state.reshape(*state.shape[:3], *v.shape[3:])
    real = same.any(-1)[..., None, None]
    so_far = jnp.cumsum(jnp.where(real, decay, 0), axis=1)  # [B T K R]
    by_pair = (so_far[:, :, None] - so_far[:, None]).transpose(0, 3, 4, 1, 2)  # [B K R T S]
    since = jnp.exp(jnp.where(jnp.tril(same)[:, None, None], by_pair, -jnp.inf))
    before = jnp.where(goes_on[..., None, None], jnp.exp(so_far), 0)[..., None]
    if strength:
        found = before * jnp.einsum("BTKF,BKFRP->BTKRP", k, state)
        pairs = jnp.einsum("BTKF,BSKF->BKTS", k, k)[:, :, None] * jnp.tril(since, -1)
        beta = strength[0].transpose(0, 2, 3, 1)[..., None]  # [B K R T 1]
        right = beta * (v - found).transpose(0, 2, 3, 1, 4)
        v = triangular.solve(beta * pairs, right).transpose(0, 3, 1, 2, 4)
    scores = jnp.einsum("BTKF,BSKF->BKTS", q, k)[:, :, None] * since
    out = jnp.einsum("BKRTS,BSKRP->BTKRP", scores, v)
    out = out + before * jnp.einsum("BTKF,BKFRP->BTKRP", q, state)
    left = v * jnp.exp(so_far[:, -1:] - so_far)[..., None]
    stays = jnp.repeat(jnp.exp(so_far[:, -1]), v.shape[-1], axis=-1)  # [B K V], V = R P
    return out, left.reshape(*left.shape[:3], -1), stays
