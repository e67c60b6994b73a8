"""The noise of gradients, from the slices of accumulated batches (McCandlish et al. 2018,
arXiv:1812.06162, appendix A).
"""

from typing import Any

import jax.numpy as jnp
import optax

from transformer_jax.base.arrays import Array, Float


def part_of(gradient: Any, weight: Float[Array, ""], whole: Float[Array, ""]) -> Array:
    """Return what a slice adds to the mean squared length of gradients of slices, weighted as the
    slices are.

    Args:
      gradient: of the slice's sum of losses, divided by the weight of the whole batch.
      weight: of the slice; one without any adds nothing.
      whole: the weight of the batch.
    """
    square = jnp.square(optax.tree.norm(gradient))
    return jnp.where(weight > 0, square * whole / jnp.maximum(weight, 1e-9), 0)


def measured_noise(
    norm: Float[Array, ""], squares: Float[Array, ""], count: Any, whole: Float[Array, ""]
) -> dict[str, Array]:
    """Return unbiased estimates, by their names in `config.metrics.NOISE`.

    The gradient of w tokens has the expected squared length |G|^2 + S / w, with the true gradient G
    and the sum S of the variances of a single token's. A batch is as long as that of `whole` tokens
    once, and of its `count` slices on average.

    Args:
      norm: the length of the batch's gradient.
      squares: the mean squared length of gradients of slices: the sum of `part_of` of each.
      count: the number of slices.
      whole: the weight of the batch.
    """
    square = jnp.square(norm)
    others = jnp.maximum(count - 1, 1)
    return {
        "gradient_signal": (count * square - squares) / others,
        "gradient_noise": whole * (squares - square) / others,
    }
