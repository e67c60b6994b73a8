"""Schedule-free learning (Defazio et al. 2024, arXiv:2405.15682): averages in place of a decaying
learning rate.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from transformer_jax.base.arrays import Array, Float, Int
from transformer_jax.nn.roles import name_of


class ScheduleFreeState(NamedTuple):
    """What is known of the three sequences of the paper beside y, where gradients are taken."""

    steps: Int[Array, ""]
    squares: Float[Array, ""]  # the sum of squares of learning rates
    offset: Any  # x - y: from there to the mean


def schedule_free(schedule: optax.Schedule, b1: float) -> optax.GradientTransformation:
    """Return the last part of an optimizer, which turns steps u into those of schedule-free
    learning at the rate r of each update, with y as the parameters:

        z' = z - r u,  x' = (1 - c) x + c z',  y' = (1 - b1) z' + b1 x',  c = r^2 / (sum of r^2)

    The paper's x, of which a model is made, is given by `mean_of`. With y and x - y alone, nothing
    is lost to rounding, as all of it starts at zero: z - y = -b1 / (1 - b1) (x - y).
    """

    def init(params: Any) -> ScheduleFreeState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        return ScheduleFreeState(jnp.zeros((), jnp.int32), jnp.zeros(()), zeros)

    def update(
        updates: Any, state: ScheduleFreeState, params: Any = None
    ) -> tuple[Any, ScheduleFreeState]:
        rate = jnp.asarray(schedule(state.steps), float)
        squares = state.squares + jnp.square(rate).astype(state.squares.dtype)
        c = jnp.where(squares > 0, jnp.square(rate) / jnp.maximum(squares, 1e-37), 0)

        def moved(u: Array, offset: Array) -> Array:
            step = -rate * (1 - b1 * (1 - c)) * u - c * b1 / (1 - b1) * offset
            return step.astype(u.dtype)

        def beside(u: Array, offset: Array) -> Array:
            return ((1 - c) * (offset + rate * (1 - b1) * u)).astype(offset.dtype)

        steps = optax.safe_increment(state.steps)
        offset = jax.tree.map(beside, updates, state.offset)
        return jax.tree.map(moved, updates, state.offset), ScheduleFreeState(steps, squares, offset)

    return optax.GradientTransformation(init, update)


def mean_of(params: Any, opt_state: Any) -> Any:
    """Return the paper's x, given y and the state of an optimizer that ends in `schedule_free`;
    frozen parameters as they are.
    """
    (state,) = (x for x in jax.tree.leaves(opt_state, is_leaf=_is_ours) if _is_ours(x))
    offsets = {name_of(path): leaf for path, leaf in jax.tree.leaves_with_path(state.offset)}
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: leaf + offsets.get(name_of(path), 0), params
    )


def _is_ours(part: Any) -> bool:
    return isinstance(part, ScheduleFreeState)
