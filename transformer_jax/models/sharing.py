"""Which layers of a stack share parameters, and what is added before each of them."""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, Int, Size
from transformer_jax.config import ModelConfig
from transformer_jax.config.registry import pick
from transformer_jax.nn.positions import POSITIONS

Enter = Callable[[Array, int | Array], Array]  # (x, number of the layer, from 0) -> its input


class Sharing(NamedTuple):
    """How many layers of a stack are stored, and what changes x before each application."""

    shared: bool
    # From the positions of x, a bound that they are below, and the stack's depth.
    enter: Callable[[ModelConfig, Int[Array, "B T"], Size, int], Enter]
    numbered: bool = False  # whether `enter` differs from layer to layer

    def kept(self, period: int, num_layers: int) -> int:
        """Return how many layers have their own parameters: one period of them if shared."""
        return min(period, num_layers) if self.shared else num_layers


def nothing(config: ModelConfig, pos: Int[Array, "B T"], limit: Size, depth: int) -> Enter:
    """Add nothing."""
    return lambda x, number: x


def steps(config: ModelConfig, pos: Int[Array, "B T"], limit: Size, depth: int) -> Enter:
    """Add the vectors of the position and of the step t = 1, 2, ... before each layer.

    Both use the scheme `config.positions` (Dehghani et al. 2018, arXiv:1807.03819, section 2.1).
    """
    scheme = pick(POSITIONS, config.positions, "config.model.positions")(config, parent=None)
    table = jnp.asarray(scheme.table(max(limit, depth + 1)))
    places = table[pos]

    def enter(x: Float[Array, "B T D"], number: int | Array) -> Float[Array, "B T D"]:
        return x + (places + table[number + 1].reshape(1, 1, -1)).astype(x.dtype)

    return enter


SHARINGS = {
    "none": Sharing(False, nothing),
    # ALBERT (Lan et al. 2019, arXiv:1909.11942).
    "all": Sharing(True, nothing),
    # The Universal Transformer without its per-position halting (ACT): every position takes every
    # step.
    "universal": Sharing(True, steps, numbered=True),
}
