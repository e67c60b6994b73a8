"""Chains of points in space."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, SourceConfig
from transformer_jax.config.choices.codecs import CODECS
from transformer_jax.data.codecs.codec import Kind, VectorCodec, as_array, hashed


class Coordinates(VectorCodec):
    """A chain [points 3] becomes one vector per point: its place, from the mean of the chain."""

    file = "coordinates{}.txt"
    noun = CODECS["coordinates"].noun
    endings = (".npy",)
    stored = np.dtype(np.float32)
    size = 3
    channels = 3

    def __init__(self, model: bytes) -> None:
        if model:
            raise ValueError("not empty")
        self.model: bytes = model

    @property
    def digest(self) -> str:
        """A hash of the model's bytes."""
        return hashed(self.model)

    def encode(
        self, values: Sequence[np.ndarray], bos: bool = False, eos: bool = True
    ) -> list[np.ndarray]:
        """Return each chain around its mean, float32 [points 3].

        Raises:
          UserError: if a chain is something else; gives its number, from 1.
        """
        chains = [
            self._checked(chain, f"{self.noun} {number}") for number, chain in enumerate(values, 1)
        ]
        return [(chain - chain.mean(0)).astype(np.float32) for chain in chains]

    def _checked(self, chain: np.ndarray, name: str) -> np.ndarray:
        chain = np.asarray(chain, np.float64)
        if chain.ndim != 2 or chain.shape[1] != 3 or len(chain) < 2:
            raise UserError(
                f"{name}: has shape {chain.shape}; give at least two points, [points 3]"
            )
        if not np.isfinite(chain).all():
            point = int(np.flatnonzero(~np.isfinite(chain).all(1))[0])
            raise UserError(
                f"{name}: point {point + 1} is at {chain[point].tolist()}; leave out points whose "
                "place is not known"
            )
        return chain

    def open(self, path: str) -> np.ndarray:
        """See VectorCodec: a NumPy file with distances; see `prepared`."""
        try:
            return np.load(Path(path), allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise UserError(f"{path}: cannot be read as a .npy file ({error})") from None

    def opened(self, content: bytes, name: str) -> np.ndarray:
        """See VectorCodec."""
        try:
            return np.load(io.BytesIO(content), allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise UserError(f"{name}: cannot be read as a .npy file ({error})") from None

    def is_one(self, given: Any) -> bool:
        """See VectorCodec: a file, or a matrix."""
        return super().is_one(given) or getattr(given, "ndim", 3) == 2

    def prepared(self, given: Any, name: str, config: DataConfig) -> np.ndarray:
        """See VectorCodec: the distances between all points, [points points], NaN where one is not
        known.
        """
        known = as_array(super().prepared(given, name, config), name).astype(np.float64)
        if known.ndim != 2 or known.shape[0] != known.shape[1] or len(known) < 2:
            raise UserError(
                f"{name}: has shape {known.shape}; give the distances between all points, [points "
                "points], NaN where one is not known"
            )
        if (known < 0).any() or np.isinf(known).any():
            raise UserError(f"{name}: has a distance that is negative or infinite")
        if not np.array_equal(known, known.T, equal_nan=True):
            raise UserError(f"{name}: is not symmetric; the distances of i, j and of j, i differ")
        return known


def train(source: SourceConfig, values: Sequence[np.ndarray]) -> Coordinates:
    """Return the codec, which is the same for all chains."""
    return Coordinates(b"")


WORDS = {"coordinates": Kind(Coordinates, train, "the codec of coordinates", vectors=True)}
