"""Completing the distances between the points of a chain."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.data.objectives.distances import UNKNOWN
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.models.model import Model
from transformer_jax.nn.distributions import Bins

_ROWS = 16  # of a batch, at most


def completed(
    loaded: Loaded, known: Sequence[Float[np.ndarray, "T T"]]
) -> list[Float[np.ndarray, "T T"]]:
    """Return the distances between all points of each chain, given some of them, NaN where one is
    not known: the median of the predicted distribution, 0 on the diagonal.

    Raises:
      UserError: if the model predicts no distances.
    """
    if "distances" not in loaded.task.predicts:
        raise loaded.refusal("predicts no distances")
    order = sorted(range(len(known)), key=lambda i: len(known[i]))
    done: dict[int, np.ndarray] = {}
    for start in range(0, len(order), _ROWS):
        chosen = order[start : start + _ROWS]
        said = _median(loaded, _laid_out([known[i] for i in chosen]))
        for i, matrix in zip(chosen, said, strict=False):
            size = len(known[i])
            done[i] = np.where(np.eye(size, dtype=bool), 0, matrix[:size, :size])
    return [done[i] for i in range(len(known))]


def _laid_out(known: Sequence[np.ndarray]) -> Side:
    """Return matrices as a source side of as many rows as a batch has."""
    size = max(map(len, known))
    inputs = np.full((_ROWS, size, size), UNKNOWN, np.float32)
    seg = np.zeros((_ROWS, size), np.int32)
    for row, matrix in enumerate(known):
        here = len(matrix)
        inputs[row, :here, :here] = np.nan_to_num(matrix, nan=UNKNOWN)
        inputs[row, range(here), range(here)] = UNKNOWN  # as in training
        seg[row, :here] = 1
    return Side(inputs, np.arange(size, dtype=np.int32)[None] * seg, seg)


def _median(loaded: Loaded, side: Side) -> Float[np.ndarray, "B T T"]:
    batch = Batch(jax.tree.map(jnp.asarray, side), None, {})
    said = np.asarray(_said(loaded.model, loaded.params, batch))
    config, size = loaded.model.config, side.seg.shape[1]
    bins = Bins(config.distance_bins, config.nearest_distance, config.farthest_distance)
    return bins.point(said).reshape(-1, size, size)


@functools.partial(jax.jit, static_argnums=0)
def _said(model: Model, params: Any, batch: Any) -> Float[Array, "B P K"]:
    return model.outputs(params, batch, None)["distances"].logits()
