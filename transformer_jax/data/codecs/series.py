"""Time series: numbers as they are, in standard deviations from the mean of each channel."""

import json
from collections.abc import Sequence

import numpy as np

from transformer_jax.config import DataConfig, SourceConfig
from transformer_jax.data.batch import Read
from transformer_jax.data.codecs.codec import VectorCodec, hashed
from transformer_jax.data.random import Draw
from transformer_jax.errors import UserError


class Series(VectorCodec):
    """A series [rows channels] is a vector a row. A model reads the channels one by one, as series
    of their own (channel independence: Nie et al. 2023, arXiv:2211.14730, section 3.1).
    """

    file = "series{}.json"
    stored = np.dtype(np.float32)
    size = 1

    def __init__(self, model: bytes) -> None:
        self.model = model
        self.mean, self.deviation = _read(model)
        self.channels = len(self.mean)

    @property
    def digest(self) -> str:
        """A hash of the model's bytes."""
        return hashed(self.model)

    def encode(
        self, values: Sequence[np.ndarray], bos: bool = False, eos: bool = True
    ) -> list[np.ndarray]:
        """Return each series in standard deviations, float32 [rows channels].

        Raises:
          UserError: if one has other channels than those of training; says which, from 1 on.
        """
        for number, series in enumerate(values, 1):
            if series.ndim != 2 or series.shape[1] != self.channels:
                raise UserError(
                    f"series {number}: has the shape {series.shape}; those of training have "
                    f"{self.channels} channels, [rows channels]"
                )
        return [self.scaled(series).astype(np.float32) for series in values]

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Return values [... channels] in standard deviations from the mean."""
        return (values - self.mean) / self.deviation

    def unscaled(self, values: np.ndarray) -> np.ndarray:
        """Return values [... channels] in their own unit: the way back."""
        return values * self.deviation + self.mean

    def reader(self, config: DataConfig | None = None) -> Read:
        """See VectorCodec: they are read as they are stored."""

        def read(
            vectors: np.ndarray, lengths: np.ndarray, numbers: np.ndarray, draw: Draw
        ) -> np.ndarray:
            return vectors

        return read


def _read(model: bytes) -> tuple[np.ndarray, np.ndarray]:
    try:
        found = json.loads(model)
        mean, deviation = (np.array(found[x], np.float64) for x in ("mean", "deviation"))
        both = np.stack([mean, deviation])
        if both.ndim == 2 and both.size and np.isfinite(both).all() and (deviation > 0).all():
            return mean, deviation
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise ValueError("not the scale of series")


def train(source: SourceConfig, values: Sequence[np.ndarray]) -> Series:
    """Return the codec of the scale that the channels have in all rows of training.

    Raises:
      UserError: if a channel has one value alone, or parts have others.
    """
    for number, part in enumerate(values, 1):
        if part.shape[1] != values[0].shape[1]:
            raise UserError(
                f"config.data.train: part {number} has {part.shape[1]} channels, the first one "
                f"{values[0].shape[1]}; all must have the same"
            )
    rows = np.concatenate(values)
    mean, deviation = rows.mean(0), rows.std(0)
    if not deviation.all():
        column = int(deviation.argmin()) + 1
        raise UserError(
            f"config.data.train: channel {column} is {mean[column - 1]:g} in all {len(rows)} rows, "
            "and nothing can be learned of it; leave it out"
        )
    return Series(json.dumps({"mean": mean.tolist(), "deviation": deviation.tolist()}).encode())
