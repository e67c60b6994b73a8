"""The head that forecasts a series, from a stack's output for its window."""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float
from transformer_jax.config import ModelConfig
from transformer_jax.config.registry import pick
from transformer_jax.models.model import Output
from transformer_jax.nn.distributions import DISTRIBUTIONS, Distribution
from transformer_jax.nn.linear import Project
from transformer_jax.nn.roles import HEAD
from transformer_jax.nn.window_scale import scale_of


class Forecasted(Output):
    """Parameters [B T K] for each number; the head is their distribution."""

    def logits(self) -> Float[Array, "B T K"]:
        """Return the parameters, at least in float32."""
        return self.hidden


class ForecastHead(nn.Module):
    """One linear map from all patches of a window to all numbers after it, in the unit of the
    series (PatchTST's flatten head: Nie et al. 2023, arXiv:2211.14730, section 3.1). `lengths` are
    those of the window and of the forecast.
    """

    config: ModelConfig
    lengths: tuple[int, int]
    dtype: jnp.dtype

    def setup(self) -> None:
        c, (window, horizon) = self.config, self.lengths
        shapes = (c.patches(window), c.d_model), (horizon, self.distribution.count)
        names = "length", "embed", "horizon", "choices"
        self.output = Project(*shapes, names, self.dtype, role=HEAD)

    @property
    def distribution(self) -> Distribution:
        """The distribution predicted for each number."""
        return pick(DISTRIBUTIONS, self.config.distribution, "config.model.distribution")

    def __call__(self, x: Float[Array, "B S D"], inputs: Float[Array, "B L 1"]) -> Forecasted:
        head: Any = self.distribution
        return Forecasted(head.placed(self.output(x), scale_of(inputs)), head)
