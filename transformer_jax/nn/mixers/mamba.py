"""Mamba: a state space for each channel whose steps of time, inputs and outputs tokens select."""

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, Int, at_least_float32
from transformer_jax.nn.convolutions import ShortConvolution
from transformer_jax.nn.initializers import (
    before_softplus,
    named,
    parameter,
    time_steps,
    uniform,
)
from transformer_jax.nn.linear import Project, project_together
from transformer_jax.nn.mixers.decaying import Convolved
from transformer_jax.nn.mixers.in_order import in_chunks
from transformer_jax.nn.mixers.recurrence import FromBothEnds, Step
from transformer_jax.nn.roles import INWARD, OUTWARD, OWN_MAP, PLAIN

CHUNK = 64  # tokens whose states exist at a time

Tokens = tuple[Array, ...]  # queries, keys [B T F], values, steps of time [B T E]


class Mamba(Convolved):
    """h = exp(-dt A) h + dt B x, y = C h + D x for each of E = `state_width` channels, each with a
    state of F = `state_size` numbers. x comes from the input by a map, a convolution of
    `state_conv` positions and SiLU; B, C and dt, by way of d_model / 16 numbers, from x. Then
    y silu(z), and a map (Gu and Dao 2023, arXiv:2312.00752). Causal only.
    """

    def setup(self) -> None:
        c = self.config
        width, size = c.inner_width, c.state_size
        rank = math.ceil(c.d_model / 16)
        inward = (c.d_model,), (width,), ("embed", None), self.dtype, False, INWARD
        self.value, self.gate = Project(*inward), Project(*inward)
        self.value_convolution = ShortConvolution(c.state_conv, (width,), (None,), self.dtype)
        inside = (None, None), self.dtype, False
        self.query = Project((width,), (size,), *inside, INWARD)
        self.key = Project((width,), (size,), *inside, INWARD)
        self.rate_latent = Project((width,), (rank,), *inside, INWARD)
        spread = uniform(-(rank**-0.5), rank**-0.5)
        self.rate = Project((rank,), (width,), *inside, OWN_MAP, spread)
        starts = {
            "rate_bias": (before_softplus(time_steps), (width,)),
            "log_decay": (_ascending, (width, size)),
            "skip": (jax.nn.initializers.ones, (width,)),
        }
        for name, (init, shape) in starts.items():
            init = named(init, *(None,) * len(shape), role=PLAIN)
            setattr(self, name, parameter(self, name, init, shape))
        self.output = Project((width,), (c.d_model,), (None, "embed"), self.dtype, False, OUTWARD)

    @property
    def convolutions(self) -> Sequence[ShortConvolution]:
        """See Convolved."""
        return (self.value_convolution,)

    def enter(self, x: Float[Array, "B T D"]) -> tuple[tuple[Array], Array]:
        """See Convolved; the rest is the gate [B T E]."""
        value, gate = project_together(x, [self.value, self.gate])
        return (value,), gate

    def tokens(self, convolved: Sequence[Array], rest: Array) -> tuple[Tokens, Array]:
        """See Convolved."""
        value = jax.nn.silu(convolved[0])
        read = value.astype(self.dtype)
        query, key = (at_least_float32(x) for x in project_together(read, [self.query, self.key]))
        rate = at_least_float32(self.rate(self.rate_latent(read)))
        rate = jax.nn.softplus(rate + at_least_float32(self.rate_bias)[None, None])
        return (query, key, value, rate), rest

    def blank_memory(self, batch: int) -> Float[Array, "B E F"]:
        """See Convolved."""
        shape = batch, self.config.inner_width, self.config.state_size
        return jnp.zeros(shape, jnp.promote_types(self.dtype, jnp.float32))

    def step(self) -> Step:
        """See Recurrence."""
        decay = jnp.exp(at_least_float32(self.log_decay))[None]

        def step(state: Array, token: tuple[Tokens, Array]) -> tuple[Array, Any]:
            (q, k, v, rate), rest = token
            stays = jnp.exp(-rate[..., None] * decay.astype(rate.dtype))
            state = state * stays + (rate * v)[..., None] * k[:, None]
            return state, ((state * q[:, None]).sum(-1), v, rest)

        return step

    def sequence(self, tokens: tuple[Tokens, Array], seg: Int[Array, "B T"]) -> tuple[Any, Array]:
        """See Convolved: a prefix sum inside each chunk, from the state before it."""
        (q, k, v, rate), rest = tokens
        decay = jnp.exp(at_least_float32(self.log_decay))[None, None]
        first = seg != jnp.pad(seg, ((0, 0), (1, 0)))[:, :-1]

        def body(state: Array, chunk: tuple[Array, ...]) -> tuple[Array, Array]:
            q, k, v, rate, begins, real = chunk
            rate = jnp.where(real[..., None], rate, 0)  # padding changes nothing
            stays = jnp.exp(-rate[..., None] * decay.astype(rate.dtype))
            stays = jnp.where((begins & real)[..., None, None], 0, stays)
            comes = (rate * v)[..., None] * k[:, :, None]
            kept, added = jax.lax.associative_scan(_then, (stays, comes), axis=1)
            states = kept * state[:, None] + added
            return states[:, -1], (states * q[:, :, None]).sum(-1)

        start, given = self.blank_memory(len(seg)), (q, k, v, rate, first, seg > 0)
        state, out = in_chunks(jax.checkpoint(body), start, given, CHUNK)
        return (out, v, rest), state

    def leave(self, out: tuple[Array, Array, Array]) -> Float[Array, "B T D"]:
        """See Recurrence."""
        mixed, value, gate = out
        mixed = mixed + at_least_float32(self.skip)[None, None] * value
        return self.output((mixed * jax.nn.silu(at_least_float32(gate))).astype(self.dtype))


class BiMamba(FromBothEnds):
    """Mamba from both ends."""

    one = Mamba


def _then(one: tuple[Array, Array], next: tuple[Array, Array]) -> tuple[Array, Array]:
    return one[0] * next[0], one[1] * next[0] + next[1]


def _ascending(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
    """Return the logarithms of 1 to F for each channel."""
    return jnp.broadcast_to(jnp.log(1 + jnp.arange(shape[1], dtype=dtype))[None], shape)


WORDS = {"mamba": Mamba, "bimamba": BiMamba}
