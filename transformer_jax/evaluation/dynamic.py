"""Dynamic evaluation: a language model that goes on learning from the text that it is scored on.

Each window is scored before the model learns from it, by a step of gradient descent (Krause et al.
2018, arXiv:1709.07432; of Transformers 2019, arXiv:1904.08378), so no piece is predicted by a model
that has seen it.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float
from transformer_jax.base.errors import UserError
from transformer_jax.data.batches.batch import Batch
from transformer_jax.data.batches.batching import fixed_batches
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.score import label_log_probs, validation_items
from transformer_jax.models.model import Model


def dynamic_log_probs(
    loaded: Loaded, texts: Sequence[str], rate: float, decay: float
) -> list[np.ndarray]:
    """Return the log-probability of each piece, by window, in the order of the texts.

    After each window the parameters move by -`rate` times the gradient of its mean loss (nats a
    piece), and by the share `decay` of the way back to where they began.

    Raises:
      UserError: if the model diverges.
    """
    items = validation_items(loaded, texts)
    longest = max(int(n) for side in items.lengths for n in side)
    began = jax.tree.map(jnp.asarray, loaded.params)
    params = jax.tree.map(jnp.copy, began)
    rows = [np.zeros(0)] * len(items)
    # One window a batch, all of one shape, in their own order.
    batches = {int(place.pairs[0]): (shape, place)
               for shape, place in fixed_batches(items, [longest], longest, 1)}  # fmt: skip
    for number, item in enumerate(sorted(batches), 1):
        shape, place = batches[item]
        batch = loaded.task.examples(items, place, *shape)
        (said,), params = _step(loaded.model, params, began, batch, rate, decay)
        (weights,) = batch.targets[batch.main].weight
        rows[item] = np.asarray(said)[np.flatnonzero(weights)]
        if not np.isfinite(rows[item]).all():
            raise UserError(
                f"config.evaluation.dynamic_rate={rate}: the model diverged by window {number} of "
                f"{len(batches)}; lower it"
            )
    return rows


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _step(
    model: Model, params: Any, began: Any, batch: Batch, rate: float, decay: float
) -> tuple[Float[Array, "1 T"], Any]:
    """Return the log-probabilities of a window, and parameters that have learned from it."""
    weight = batch.targets[batch.main].weight

    def loss(params: Any) -> tuple[Array, Array]:
        said = label_log_probs(model, params, batch, batch.main)
        return -jnp.sum(said * weight) / jnp.maximum(jnp.sum(weight), 1), said

    gradient, said = jax.grad(loss, has_aux=True)(params)
    moved = jax.tree.map(lambda p, g, b: p - rate * g + decay * (b - p), params, gradient, began)
    return said, moved
