"""Forecasting series."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float
from transformer_jax.base.errors import UserError
from transformer_jax.config import ObjectiveConfig
from transformer_jax.data.batches.batch import Ragged, one_per_row
from transformer_jax.data.codecs.series import Series
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.models.model import Model
from transformer_jax.nn.distributions import DISTRIBUTIONS

_ROWS = 512  # of a batch, at most


def forecasts(loaded: Loaded, items: TokenStore) -> Float[np.ndarray, "n T K"]:
    """Return the parameters of the distribution of each number after each window, in standard
    deviations from the training mean; where items have all channels together, for each channel of
    each window in turn.

    Raises:
      UserError: if the model does not forecast.
    """
    config = loaded.objective
    if "forecast" not in loaded.task.predicts:
        raise loaded.refusal("forecasts no series")
    batches, rows = [], min(_ROWS, len(items))
    for start in range(0, len(items), rows):
        placement = one_per_row(np.arange(start, min(start + rows, len(items))))
        batch = loaded.task.examples(items, placement, rows, config.window, config.horizon)
        batch = jax.tree.map(jnp.asarray, batch)
        batches.append(
            np.asarray(_said(loaded.model, loaded.params, batch))[: len(placement.pairs)]
        )
    said = np.concatenate(batches)
    if config.channels == "apart":
        return said
    rows, parameters = config.horizon, said.shape[-1]
    by_row = said.reshape(len(said), rows, -1, parameters)
    return by_row.swapaxes(1, 2).reshape(-1, rows, parameters)


def ahead(
    loaded: Loaded, series: Sequence[np.ndarray]
) -> list[tuple[Float[np.ndarray, "T C"], Float[np.ndarray, "T C 9"] | None]]:
    """Return the forecast after each series [L C], and the deciles of each number if there are any,
    in the unit of the series. Only its last `config.window` rows are read.

    Raises:
      UserError: if the model does not forecast, or a series is too short, has other channels, or a
        gap.
    """
    codec, config = loaded.codecs.tgt, loaded.objective
    if not isinstance(codec, Series):
        raise loaded.refusal("forecasts nothing")
    scaled = codec.encode(series)
    for number, rows in enumerate(scaled, 1):
        if len(rows) < config.window:
            raise UserError(
                f"series {number}: has {len(rows)} rows, and such a model reads {config.window}; "
                "give more"
            )
    kind = DISTRIBUTIONS[loaded.model.config.distribution]
    forecast = []
    for rows in scaled:
        items = _windows(rows[-config.window :], config)
        said = forecasts(loaded, items)
        deciles = kind.quantiles(said)
        if deciles is not None:
            deciles = codec.unscaled(deciles.transpose(1, 2, 0)).transpose(0, 2, 1)
        forecast.append((codec.unscaled(kind.point(said).T.astype(np.float64)), deciles))
    return forecast


def _windows(rows: Float[np.ndarray, "L C"], config: ObjectiveConfig) -> TokenStore:
    """Return a window for each channel, or one with all of them."""
    (window, channels), horizon = rows.shape, config.horizon
    if config.channels == "together":
        one, unread = np.zeros(1, np.int64), np.zeros((horizon, channels), np.float32)
        return TokenStore(Ragged(rows, one, one + window), Ragged(unread, one, one + horizon))
    starts = np.arange(channels, dtype=np.int64) * window
    nothing = np.zeros(horizon, np.float32)  # placeholders: not read
    return TokenStore(
        Ragged(rows.T.reshape(-1)[:, None], starts, np.full_like(starts, window)),
        Ragged(nothing, 0 * starts, np.full_like(starts, horizon)),
    )


@functools.partial(jax.jit, static_argnums=0)
def _said(model: Model, params: Any, batch: Any) -> Float[Array, "B T K"]:
    return model.outputs(params, batch, None)["forecast"].logits()
