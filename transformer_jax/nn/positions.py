"""Position encodings that are added to the input."""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float, Int, Size
from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import RESERVED
from transformer_jax.config import ModelConfig
from transformer_jax.config.registry import pick
from transformer_jax.nn import roles
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.lookup import look_up


def without_order(
    ids: Int[Array | np.ndarray, "B S"], pos: Int[Array | np.ndarray, "B S"], count: int
) -> Int[Array, "B S"]:
    """Return the positions of pieces of which the `count` with the first ids after the special ones
    have no order: theirs is 0, and the others count from 1, within each segment, without them (Wu
    et al. 2021, arXiv:2005.10213, section 3).
    """
    ids, pos = jnp.asarray(ids), jnp.asarray(pos)
    ordered = ((ids < RESERVED) | (ids >= RESERVED + count)).astype(pos.dtype)
    before = jnp.cumsum(ordered, axis=1) - ordered
    first = jnp.arange(ids.shape[1])[None] - pos  # where each segment begins
    own = before - jnp.take_along_axis(before, first, axis=1) + 1
    # A text without such pieces, as long as the row, has no room for one more.
    return jnp.where(ordered > 0, jnp.minimum(own, ids.shape[1] - 1), 0)


class NoPositions(nn.Module):
    """No positions: the model is not told the order of its input (Haviv et al. 2022)."""

    config: ModelConfig

    def embed(self, positions: Int[Array, "B T"], limit: Size) -> Float[Array, "B T D"] | None:
        """Return the vectors to add to the input at `positions`, all below the static `limit`."""
        return None


class Sinusoidal(NoPositions):
    """Paper 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos of the same."""

    def embed(self, positions: Int[Array, "B T"], limit: Size) -> Float[Array, "B T D"]:
        return jnp.asarray(self.table(limit))[positions]

    def table(self, limit: int) -> np.ndarray:
        """Return [limit D], float64."""
        width = self.config.d_model
        angles = np.arange(limit)[:, None] * 10000.0 ** (-2 * np.arange(width // 2) / width)
        return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(limit, width)


class SinusoidalTensor2Tensor(Sinusoidal):
    """tensor2tensor's version: all sines, then all cosines; exponents i / (D/2 - 1)."""

    def table(self, limit: int) -> np.ndarray:
        half = self.config.d_model // 2
        angles = np.arange(limit)[:, None] * 10000.0 ** (-np.arange(half) / max(half - 1, 1))
        return np.concatenate([np.sin(angles), np.cos(angles)], -1)


class Learned(NoPositions):
    """A trained vector for each position (paper Table 3, row E)."""

    @nn.compact
    def embed(self, positions: Int[Array, "B T"], limit: Size) -> Float[Array, "B T D"]:
        """See NoPositions.

        Raises:
          UserError: if `limit` exceeds the table.
        """
        rows, width = self.config.max_positions, self.config.d_model
        if limit > rows:
            raise UserError(
                f"config.model.max_positions={rows}: is below {limit}, the number of positions to "
                "read; raise it"
            )
        init = named(nn.initializers.normal(width**-0.5), "length", "embed", role=roles.POSITIONS)
        return look_up(parameter(self, "table", init, (rows, width)), positions)


POSITIONS = {
    "sinusoidal": Sinusoidal,
    "sinusoidal_tensor2tensor": SinusoidalTensor2Tensor,
    "learned": Learned,
    "none": NoPositions,
}


def positions_of(config: ModelConfig) -> NoPositions:
    """Return the scheme to add to the input: none if each layer adds it again."""
    name = "none" if config.layer_sharing == "universal" else config.positions
    return pick(POSITIONS, name, "config.model.positions")(config)
