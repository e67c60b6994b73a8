"""What a model says comes next in a series."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.arrays import Array, Float
from transformer_jax.config import ObjectiveConfig
from transformer_jax.data.batch import one_per_row
from transformer_jax.data.objectives import objective_named
from transformer_jax.data.token_store import TokenStore
from transformer_jax.errors import UserError
from transformer_jax.models.model import Model

_ROWS = 512  # of a batch


def forecasts(
    model: Model, params: Any, config: ObjectiveConfig, items: TokenStore
) -> Float[np.ndarray, "n T K"]:
    """Return the parameters of the distribution of each number behind each window, in deviations
    from the mean of training.

    Raises:
      UserError: if the model does not forecast.
    """
    objective = objective_named(config.name)
    if "forecast" not in objective.predicts:
        raise UserError(f"config.objective.name={config.name!r}: such a model forecasts no series")
    found = []
    for start in range(0, len(items), _ROWS):
        placement = one_per_row(np.arange(start, min(start + _ROWS, len(items))))
        batch = objective.examples(items, placement, _ROWS, config.window, config.horizon)
        batch = jax.tree.map(jnp.asarray, batch)
        found.append(np.asarray(_said(model, params, batch))[: len(placement.pairs)])
    return np.concatenate(found)


@functools.partial(jax.jit, static_argnums=0)
def _said(model: Model, params: Any, batch: Any) -> Float[Array, "B T K"]:
    return model.outputs(params, batch, None)["forecast"].logits()
