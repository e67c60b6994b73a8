"""The simpler simple recurrent unit, in place of a decoder's self-attention."""

from typing import Any

import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, at_least_float32
from transformer_jax.nn.linear import Project, project_together
from transformer_jax.nn.mixers.recurrence import Recurrence, Step
from transformer_jax.nn.roles import MAP
from transformer_jax.nn.view import View


class Ssru(Recurrence):
    """c = f c + (1 - f) W x with f = sigmoid(W' x + b) and output ReLU(c) (Kim et al. 2019,
    https://aclanthology.org/D19-5632). No matrix product depends on the state, so a whole sequence
    is a prefix sum.
    """

    def setup(self) -> None:
        d = self.config.d_model
        inward = (d,), (d,), ("embed", "state"), self.dtype
        self.forget = Project(*inward, role=MAP)
        self.input = Project(*inward, use_bias=False, role=MAP)

    def enter(self, x: Float[Array, "B T D"]) -> tuple[Array, Array]:
        """See Recurrence: the fraction of the state that stays, and what is added to it."""
        forget, new = map(at_least_float32, project_together(x, [self.forget, self.input]))
        return jax.nn.sigmoid(forget), jax.nn.sigmoid(-forget) * new

    def blank(self, batch: Any) -> Array:
        """See Recurrence."""
        return jnp.zeros((batch, self.config.d_model), jnp.promote_types(self.dtype, jnp.float32))

    def step(self) -> Step:
        """See Recurrence."""

        def step(c: Array, token: tuple[Array, Array]) -> tuple[Array, Array]:
            stays, comes = token
            c = stays * c + comes
            return c, c

        return step

    def through(self, entering: tuple[Array, Array], view: View) -> tuple[Array, Array]:
        """See Recurrence."""
        assert view.order == "causal", "it runs from left to right"
        stays, comes = entering
        seg = view.q_seg[..., None]
        first = seg != jnp.pad(seg, ((0, 0), (1, 0), (0, 0)))[:, :-1]
        stays = jnp.where(seg == 0, 1, jnp.where(first, 0, stays))
        comes = jnp.where(seg == 0, 0, comes)

        def then(one: tuple[Array, Array], next: tuple[Array, Array]) -> tuple[Array, Array]:
            return one[0] * next[0], one[1] * next[0] + next[1]

        _, c = jax.lax.associative_scan(then, (stays, comes), axis=1)
        return c, c[:, -1]

    def leave(self, out: Array) -> Float[Array, "B T D"]:
        """See Recurrence."""
        return jax.nn.relu(out).astype(self.dtype)


WORDS = {"ssru": Ssru}
