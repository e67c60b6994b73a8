"""Forecasts by linear maps of a window: DLinear (Zeng et al. 2023, arXiv:2205.13504)."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float
from transformer_jax.config.registry import pick
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.core import Core
from transformer_jax.models.encoder import Forecasted
from transformer_jax.models.model import Output
from transformer_jax.nn.distributions import DISTRIBUTIONS
from transformer_jax.nn.linear import Project
from transformer_jax.nn.roles import HEAD
from transformer_jax.nn.stems import SeriesNorm


class DLinear(Core):
    """A map of a window's moving average plus a map of what differs from it, to all numbers after
    it. All channels share them.
    """

    def setup(self) -> None:
        c = self.config
        assert self.lengths is not None
        self.distribution = pick(DISTRIBUTIONS, c.distribution, "config.model.distribution")
        window, horizon = self.lengths
        shapes = (window,), (horizon, self.distribution.count)
        names = "length", "horizon", "choices"
        self.trend = Project(*shapes, names, self.dtype, role=HEAD)
        self.rest = Project(*shapes, names, self.dtype, role=HEAD)
        self.norm = SeriesNorm(c)

    def __call__(self, batch: Batch, train: bool) -> dict[str, Output]:
        assert batch.src is not None
        scale = self.norm(batch.src.inputs)
        x = scale.scaled(batch.src.inputs)[..., 0]
        trend = moving_average(x, self.config.trend_rows)
        raw = self.trend(trend.astype(self.dtype)) + self.rest((x - trend).astype(self.dtype))
        head: Any = self.distribution
        return {"forecast": Forecasted(head.placed(raw, scale), head)}

    @nn.nowrap
    def stepper(self, params: Any) -> None:
        """See Model: it generates nothing."""

    @nn.nowrap
    def example(self) -> Batch:
        """See Model."""
        assert self.lengths is not None
        ones = np.ones((1, self.lengths[0]), np.int32)
        return Batch(Side(np.ones((*ones.shape, 1), np.float32), ones, ones), None, {})


def moving_average(x: Float[Array, "B L"], rows: int) -> Float[Array, "B L"]:
    """Return the mean of as many rows around each, with the first and the last row repeated beyond
    the ends of a window.
    """
    padded = jnp.pad(x, ((0, 0), (rows // 2, rows // 2)), mode="edge")
    sums = jnp.cumsum(jnp.pad(padded, ((0, 0), (1, 0))), axis=1)
    return (sums[:, rows:] - sums[:, :-rows]) / rows
