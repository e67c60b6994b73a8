"""The scale of a window of a time series, which normalises the input and denormalises predictions
(RevIN, Kim et al. 2022, https://openreview.net/forum?id=cGDAkQo1C0p, without trained parameters).
"""

from typing import NamedTuple

import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, at_least_float32

_EPSILON = 1e-5  # added to the variance; RevIN's value


class Scale(NamedTuple):
    """Mean and standard deviation of each window."""

    mean: Float[Array, "B 1 1"]
    deviation: Float[Array, "B 1 1"]

    def scaled(self, values: Float[Array, "B L 1"]) -> Float[Array, "B L 1"]:
        """Return values in standard deviations from the mean, at least float32."""
        return (at_least_float32(values) - self.mean) / self.deviation


def scale_of(inputs: Float[Array, "B L 1"]) -> Scale:
    """Return the scale of each window, at least float32."""
    wide = at_least_float32(inputs)
    mean = wide.mean(1, keepdims=True)
    variance = jnp.square(wide - mean).mean(1, keepdims=True)
    return Scale(mean, jnp.sqrt(variance + _EPSILON))
