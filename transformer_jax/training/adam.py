"""Adam (Kingma and Ba 2015, arXiv:1412.6980) with moments updated in place."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from transformer_jax.base.arrays import Array, Int


class AdamState(NamedTuple):
    """Bias-corrected moments of the gradient: weighted means whose weights sum to 1."""

    steps: Int[Array, ""]
    mean: Any  # of the gradient
    square: Any  # of its square


def adam(b1: float, b2: float, epsilon: float) -> optax.GradientTransformationExtraArgs:
    """Return Adam without a learning rate; `finite=False` leaves its state as it is.

    The paper corrects the bias of m_t = b1 m_(t-1) + (1 - b1) g_t afterwards. The corrected moment
    is itself a running mean, m += (g - m) / n with n = (1 - b1^t) / (1 - b1), and stored as such.
    """

    def init(params: Any) -> AdamState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return AdamState(jnp.zeros((), jnp.int32), zeros, zeros)

    def update(
        updates: Any, state: AdamState, params: Any = None, *, finite: Any = True, **_: Any
    ) -> tuple[Any, AdamState]:
        steps = optax.safe_increment(state.steps)
        updates = jax.tree.map(lambda x: jnp.where(finite, x, 0), updates)

        def moment(decay: float, old: Any, new: Any) -> Any:
            n = (1 - decay ** steps.astype(float)) / (1 - decay)
            n, weight = jnp.where(finite, n, 1), jnp.where(finite, n - 1, 1)
            # XLA computes an expression that ends in a division once, in place. It would recompute
            # a sum of products for the update below, which then has to read a copy of the old.
            return jax.tree.map(lambda m, x: (weight * m + x) / n, old, new)

        mean = moment(b1, state.mean, updates)
        square = moment(b2, state.square, jax.tree.map(jnp.square, updates))
        # Not m / (...): XLA merges a quotient of a quotient into one, and recomputes the first.
        updates = jax.tree.map(lambda m, v: m * (1 / (jnp.sqrt(v) + epsilon)), mean, square)
        return updates, AdamState(jnp.where(finite, steps, state.steps), mean, square)

    return optax.GradientTransformationExtraArgs(init, update)
