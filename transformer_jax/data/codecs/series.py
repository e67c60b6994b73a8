"""Time series, standardised by each channel's mean and standard deviation."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, SourceConfig
from transformer_jax.config.choices.codecs import CODECS
from transformer_jax.data.codecs.codec import Kind, VectorCodec, as_array, hashed
from transformer_jax.data.sources import series_files
from transformer_jax.data.sources.series_files import Rows, named


class Series(VectorCodec):
    """A series [rows channels] becomes one vector per row. A model reads each channel as a separate
    series (channel independence: Nie et al. 2023, arXiv:2211.14730, section 3.1).
    """

    file = "series{}.json"
    noun = CODECS["series"].noun
    endings = (".csv",)
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
          UserError: if a series differs in channels from training, or has a gap; gives its number,
            from 1.
        """
        for number, series in enumerate(values, 1):
            self._check(series, f"series {number}")
        return [self.scaled(np.asarray(series)).astype(np.float32) for series in values]

    def open(self, path: str) -> Rows:
        """See VectorCodec: a file as in training, a header and a date in the first column."""
        return self._checked(series_files.read(Path(path)), path)

    def opened(self, content: bytes, name: str) -> Rows:
        """See VectorCodec."""
        return self._checked(series_files.parsed(content, name), name)

    def _checked(self, rows: Rows, name: str) -> Rows:
        self._check(rows, name)
        return rows

    def samples(self, longest: int) -> Iterator[np.ndarray]:
        """See VectorCodec: the mean of training."""
        yield np.tile(self.mean, (longest, 1))

    def is_one(self, given: Any) -> bool:
        """See VectorCodec: a file, or numbers in two dimensions."""
        if super().is_one(given):
            return True
        if hasattr(given, "shape"):
            return len(given.shape) < 3
        # A list of its rows, which are lists of numbers.
        rows = given if isinstance(given, list | tuple) else []
        return (
            bool(rows)
            and all(isinstance(row, list | tuple) for row in rows)
            and not any(isinstance(value, list | tuple) for row in rows for value in row)
        )

    def prepared(self, given: Any, name: str, config: DataConfig) -> np.ndarray:
        """See VectorCodec."""
        rows = as_array(super().prepared(given, name, config), name)
        try:
            return rows.astype(np.float64, copy=False)
        except (ValueError, TypeError):
            raise UserError(
                f"{name}: holds more than numbers; give an array [rows channels], without dates, "
                "or the name of a .csv file with a header and dates in its first column"
            ) from None

    def _check(self, series: np.ndarray, name: str) -> None:
        if series.ndim != 2 or series.shape[1] != self.channels:
            raise UserError(
                f"{name}: has shape {series.shape}; those of training have "
                f"{self.channels} channels, [rows channels]"
            )
        if not np.isfinite(series).all():
            row, channel = (int(place[0]) for place in np.nonzero(~np.isfinite(series)))
            raise UserError(
                f"{name}: row {row + 1} has {series[row, channel]} in channel {channel + 1}, not "
                "a finite number; fill in missing values"
            )

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Return values [... channels] standardised."""
        return (values - self.mean) / self.deviation

    def unscaled(self, values: np.ndarray) -> np.ndarray:
        """Return standardised values [... channels] in their original unit."""
        return values * self.deviation + self.mean


def _read(model: bytes) -> tuple[np.ndarray, np.ndarray]:
    try:
        fields = json.loads(model)
        mean, deviation = (np.array(fields[x], np.float64) for x in ("mean", "deviation"))
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
    rows = np.concatenate([np.asarray(part) for part in values])
    mean, deviation = rows.mean(0), rows.std(0)
    constant = (rows == rows[0]).all(0) | (deviation == 0)  # rounding may leave a deviation
    if constant.any():
        column = int(constant.argmax())
        raise UserError(
            f"config.data.train: {named(values[0], column)} is {mean[column]:g} in all "
            f"{len(rows)} rows, so nothing can be learned from it; remove it"
        )
    return Series(json.dumps({"mean": mean.tolist(), "deviation": deviation.tolist()}).encode())


WORDS = {"series": Kind(Series, train, "the scale of series", vectors=True)}
