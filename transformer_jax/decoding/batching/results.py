"""The results of a batch."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from transformer_jax.base.arrays import Array, Float, Int
from transformer_jax.decoding.search.state import SearchState


@struct.dataclass
class Results:
    """The results of sentences, by their places in a batch or in a queue."""

    position: Int[Array | np.ndarray, "N"]
    tokens: Int[Array | np.ndarray, "N W L"]
    scores: Float[Array | np.ndarray, "N W"]
    drafts: Int[Array | np.ndarray, "N 3"] | None

    @classmethod
    def of(cls, state: SearchState) -> "Results":
        """Return the results of rows so far."""
        return cls(state.position, state.finished, state.scores, state.drafts)

    def room(self, count: int) -> "Results":
        """Return empty results like these, for `count` sentences."""
        return jax.tree.map(lambda x: jnp.zeros((count, *x.shape[1:]), x.dtype), self)
