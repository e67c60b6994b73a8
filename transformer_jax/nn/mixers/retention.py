"""Retention: linear attention whose heads forget at fixed rates."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float, Int, at_least_float32
from transformer_jax.nn.linear import Project, project_together
from transformer_jax.nn.mixers.decaying import forget, head_axis
from transformer_jax.nn.mixers.linear_attention import chunked
from transformer_jax.nn.mixers.recurrence import FromBothEnds, Recurrence, Step
from transformer_jax.nn.roles import INWARD, KEY, OUTWARD, QUERY
from transformer_jax.nn.view import View

State = tuple[Float[Array, "B N F P"], Int[Array, "B"]]


class Retention(Recurrence):
    """S = g S + k v, y = q S for head n, with g = 1 - 2^(-5 - n) and queries and keys rotated by
    their positions; then an RMS norm of each head without parameters, times silu(z), and a map
    (RetNet: Sun et al. 2023, arXiv:2307.08621). Causal only.

    Its sums are not divided by those of decays and scores, as in its code: the norm removes that.
    A state counts its tokens, so that it can rotate the next one.
    """

    def setup(self) -> None:
        c, axis = self.config, head_axis(self.config)
        heads, width = c.inner_heads, c.inner_width // c.inner_heads
        by_head = ("embed", axis, None), self.dtype, False
        narrow, wide = (((c.d_model,), (heads, size), *by_head) for size in (c.state_size, width))
        self.query, self.key = Project(*narrow, QUERY), Project(*narrow, KEY)
        self.value, self.gate = Project(*wide, INWARD), Project(*wide, INWARD)
        outward = (heads, width), (c.d_model,), (axis, None, "embed"), self.dtype, False
        self.output = Project(*outward, OUTWARD)

    def enter(self, x: Float[Array, "B T D"]) -> tuple[Array, ...]:
        """See Recurrence: queries, keys [B T N F], not yet rotated, values, gates [B T N P]."""
        query, key = project_together(x, [self.query, self.key])
        value, gate = project_together(x, [self.value, self.gate])
        query, key, value = map(at_least_float32, (query, key, value))
        return query, key * self.config.state_size**-0.5, value, gate

    def blank(self, batch: int) -> State:
        """See Recurrence."""
        c, wide = self.config, jnp.promote_types(self.dtype, jnp.float32)
        width = c.inner_width // c.inner_heads
        state = jnp.zeros((batch, c.inner_heads, c.state_size, width), wide)
        return state, jnp.zeros(batch, jnp.int32)

    def decays(self) -> np.ndarray:
        """Return the logarithms of g [N]."""
        return np.log1p(-(2.0 ** (-5 - np.arange(self.config.inner_heads))))

    def step(self) -> Step:
        """See Recurrence."""
        kept = jnp.asarray(np.exp(self.decays()).reshape(1, -1, 1, 1))

        def step(state: State, token: tuple[Array, ...]) -> tuple[State, Any]:
            (memory, count), (q, k, v, gate) = state, token
            q, k = (rotated(x[:, None], count[:, None])[:, 0] for x in (q, k))
            memory = kept.astype(memory.dtype) * memory + k[..., None] * v[:, :, None]
            return (memory, count + 1), (jnp.einsum("BNF,BNFP->BNP", q, memory), gate)

        return step

    def through(self, entering: tuple[Array, ...], view: View) -> tuple[Any, State]:
        """See Recurrence: in chunks."""
        assert view.order == "causal", "it runs from left to right"
        (q, k, v, gate), seg = entering, view.q_seg
        count = jnp.cumsum(seg > 0, axis=1)
        q, k = (rotated(x, count - 1) for x in (q, k))
        decays = jnp.asarray(self.decays(), v.dtype).reshape(1, 1, -1, 1)
        decays = jnp.broadcast_to(decays, (*v.shape[:3], 1))
        blank, _ = self.blank(len(seg))
        out, state = chunked(forget, (q, k, v[:, :, :, None], decays), seg, blank)
        return (out[:, :, :, 0], gate), (state, count[:, -1].astype(jnp.int32))

    def leave(self, out: tuple[Array, Array]) -> Float[Array, "B T D"]:
        """See Recurrence."""
        mixed, gate = out
        square = jnp.square(mixed).mean(-1, keepdims=True)
        normal = mixed * jax.lax.rsqrt(square + self.config.norm_epsilon)
        return self.output((normal * jax.nn.silu(at_least_float32(gate))).astype(self.dtype))


class BiRetention(FromBothEnds):
    """Retention from both ends."""

    one = Retention


def rotated(x: Float[Array, "B T N F"], position: Int[Array, "B T"]) -> Float[Array, "B T N F"]:
    """Return vectors with channels 2i and 2i + 1 rotated by position x 10000^(-i / (F / 2 - 1))."""
    frequencies = 10000.0 ** -np.linspace(0, 1, x.shape[-1] // 2)
    angles = position[:, :, None, None] * jnp.asarray(frequencies, x.dtype)[None, None, None]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    one, other = x[..., 0::2], x[..., 1::2]
    return jnp.stack([one * cos - other * sin, one * sin + other * cos], -1).reshape(x.shape)


WORDS = {"retention": Retention, "biretention": BiRetention}
