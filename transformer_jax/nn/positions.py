"""How a model knows order. An entry answers `embed`; `rotate` and `bias` are the other two hooks
that a relative scheme will need.
"""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from transformer_jax.arrays import Array, Float, Int
from transformer_jax.nn.initializers import named


class Sinusoidal(nn.Module):
    """Paper 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos of the same."""

    d_model: int
    max_positions: int

    def embed(self, positions: Int[Array, "B T"], limit: int) -> Float[Array, "B T D"]:
        """Return the vectors of `positions`, all below the static number `limit`."""
        return jnp.asarray(self.table(limit))[positions]

    def table(self, limit: int) -> np.ndarray:
        """Return [limit D], float64."""
        angles = np.arange(limit)[:, None] * 10000.0 ** (
            -2 * np.arange(self.d_model // 2) / self.d_model
        )
        return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(limit, self.d_model)


class SinusoidalTensor2Tensor(Sinusoidal):
    """tensor2tensor's: all sines, then all cosines; exponents i / (D/2 - 1)."""

    def table(self, limit: int) -> np.ndarray:
        half = self.d_model // 2
        angles = np.arange(limit)[:, None] * 10000.0 ** (-np.arange(half) / max(half - 1, 1))
        return np.concatenate([np.sin(angles), np.cos(angles)], -1)


class Learned(nn.Module):
    """A trained vector for each position (paper Table 3, row E)."""

    d_model: int
    max_positions: int

    @nn.compact
    def embed(self, positions: Int[Array, "B T"], limit: int) -> Float[Array, "B T D"]:
        """Return the vectors of `positions`, all below the static number `limit`.

        Raises:
          ValueError: if `limit` exceeds the table.
        """
        if limit > self.max_positions:
            raise ValueError(
                f"positions up to {limit} exceed config.model.max_positions={self.max_positions}"
            )
        init = named(nn.initializers.normal(self.d_model**-0.5), "length", "embed")
        return self.param("table", init, (self.max_positions, self.d_model))[positions]


POSITIONS = {
    "sinusoidal": Sinusoidal,
    "sinusoidal_tensor2tensor": SinusoidalTensor2Tensor,
    "learned": Learned,
}
