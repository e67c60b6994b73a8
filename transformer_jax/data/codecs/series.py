"""Time series, standardised by each channel's mean and standard deviation."""

import json
from collections.abc import Sequence

import numpy as np

from transformer_jax.config import DataConfig, SourceConfig
from transformer_jax.data.batch import Read
from transformer_jax.data.codecs.codec import VectorCodec, hashed
from transformer_jax.data.random import Draw
from transformer_jax.errors import UserError


class Series(VectorCodec):
    """A series [rows channels] becomes one vector per row. A model reads each channel as a separate
    series (channel independence: Nie et al. 2023, arXiv:2211.14730, section 3.1).
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
        """Return each series standardised, float32 [rows channels].

        Raises:
          UserError: if a series differs in channels from training; gives its number, from 1.
        """
        for number, series in enumerate(values, 1):
            if series.ndim != 2 or series.shape[1] != self.channels:
                raise UserError(
                    f"series {number}: has shape {series.shape}; those of training have "
                    f"{self.channels} channels, [rows channels]"
                )
        return [self.scaled(series).astype(np.float32) for series in values]

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Return values [... channels] standardised."""
        return (values - self.mean) / self.deviation

    def unscaled(self, values: np.ndarray) -> np.ndarray:
        """Return standardised values [... channels] in their original unit."""
        return values * self.deviation + self.mean

    def reader(self, config: DataConfig | None = None) -> Read:
        """See VectorCodec: vectors are read as stored."""

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
    """Return the codec with the scale of the channels over all training rows.

    Raises:
      UserError: if a channel is constant, or the parts differ in channels.
    """
    for number, part in enumerate(values, 1):
        if part.shape[1] != values[0].shape[1]:
            raise UserError(
                f"config.data.train: part {number} has {part.shape[1]} channels, but the first has "
                f"{values[0].shape[1]}; all must have the same number"
            )
    rows = np.concatenate(values)
    mean, deviation = rows.mean(0), rows.std(0)
    constant = (rows == rows[0]).all(0) | (deviation == 0)  # rounding may leave a deviation
    if constant.any():
        column = int(constant.argmax()) + 1
        raise UserError(
            f"config.data.train: channel {column} is {mean[column - 1]:g} in all {len(rows)} rows, "
            "so nothing can be learned from it; remove it"
        )
    return Series(json.dumps({"mean": mean.tolist(), "deviation": deviation.tolist()}).encode())
