"""Latents of pictures, from an autoencoder, with unit variance (Rombach et al. 2022,
arXiv:2112.10752, section 3.2 and appendix G).
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ModelConfig, SourceConfig
from transformer_jax.config.choices.codecs import CODECS
from transformer_jax.data.batches.batch import Read
from transformer_jax.data.codecs.codec import Kind, VectorCodec, hashed
from transformer_jax.data.random import Draw


class Form(NamedTuple):
    """The size shared by all latents."""

    rows: int
    columns: int
    channels: int

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows, self.columns

    @property
    def patches(self) -> int:
        """The number of vectors of a picture."""
        return self.rows * self.columns


class Latents(VectorCodec):
    """The latents of a picture, float32 [rows columns C], become a vector each, row by row; a model
    reads them with mean 0 and deviation 1 in training, by channel. `autoencoder` is the digest of
    the one that made them; "" if it is not known.
    """

    file = "latents{}.json"
    noun = CODECS["latents"].noun
    stored = np.dtype(np.float32)

    def __init__(self, model: bytes) -> None:
        self.model = model
        self.form, self._mean, self._deviation, self.autoencoder = _read(model)
        self.size = self.channels = self.form.channels

    @property
    def digest(self) -> str:
        """A hash of the model's bytes."""
        return hashed(self.model)

    def made_by(self, autoencoder: str) -> "Latents":
        """Return the same codec with the digest of the autoencoder whose latents these are."""
        return Latents(json.dumps(json.loads(self.model) | {"autoencoder": autoencoder}).encode())

    def encode(
        self, values: Sequence[np.ndarray], bos: bool = False, eos: bool = True
    ) -> list[np.ndarray]:
        """Return the vectors of each value, float32 [L C].

        Raises:
          UserError: if a value differs in shape from those of training; gives its number, from 1.
        """
        for number, value in enumerate(values, 1):
            _check(value, f"{self.noun} {number}")
            if value.shape != tuple(self.form):
                raise UserError(
                    f"{self.noun} {number}: its latents have shape {value.shape}, those of "
                    f"training {tuple(self.form)}; encode all with one autoencoder"
                )
        return [np.asarray(x, np.float32).reshape(-1, self.channels) for x in values]

    def reader(self, config: DataConfig | None = None) -> Read:
        """See VectorCodec; nothing is augmented."""

        def read(
            vectors: np.ndarray, lengths: np.ndarray, numbers: np.ndarray, draw: Draw
        ) -> np.ndarray:
            return ((vectors - self._mean) / self._deviation).astype(np.float32)

        return read

    def values(self, vectors: np.ndarray) -> np.ndarray:
        """Return the latents [n rows columns C] of a model's inputs or outputs [n L C]."""
        return (vectors * self._deviation + self._mean).reshape(-1, *self.form)

    def is_one(self, given: Any) -> bool:
        """See VectorCodec: an array of a picture's axes."""
        return super().is_one(given) or getattr(given, "ndim", 4) == 3

    def check_read_by(self, model: ModelConfig) -> None:
        """See VectorCodec: the model's grid."""
        if model.grid and model.grid != self.form.grid:
            raise UserError(
                f"config.model.grid={model.grid}: pictures have {self.form.rows} rows and "
                f"{self.form.columns} columns of latents; set it to {self.form.grid}"
            )


def _check(value: Any, name: str) -> None:
    kind = getattr(value, "dtype", np.dtype(object)).kind
    if kind != "f" or value.ndim != 3:
        raise UserError(
            f"{name}: is no array [rows columns channels] of latents; write those of an "
            "autoencoder with `transformer-jax pictures encode`, or read pictures with codec="
            "'patches'"
        )
    if not np.isfinite(value).all():
        raise UserError(f"{name}: has latents that are not finite; encode it again")


def train(source: SourceConfig, values: Sequence[np.ndarray]) -> Latents:
    """Return the codec for latents of this size, with their mean and deviation by channel.

    Raises:
      UserError: if they are no latents, or differ in size.
    """
    for number, value in enumerate(values, 1):
        name = f"config.data.train: {Latents.noun} {number}"
        _check(value, name)
        if value.shape != values[0].shape:
            raise UserError(
                f"{name} has latents of shape {value.shape}, but the first of {values[0].shape}; "
                "encode all with one autoencoder"
            )
    count, total = sum(x.shape[0] * x.shape[1] for x in values), 0.0
    mean = sum((x.sum((0, 1), dtype=np.float64) for x in values), total) / count
    squares = sum((np.square(x - mean, dtype=np.float64).sum((0, 1)) for x in values), total)
    deviation = np.maximum(np.sqrt(squares / count), 1e-6)
    scale = {"mean": mean.tolist(), "deviation": deviation.tolist(), "autoencoder": ""}
    form = Form(*values[0].shape)
    return Latents(json.dumps(form._asdict() | scale).encode())


def _read(model: bytes) -> tuple[Form, np.ndarray, np.ndarray, str]:
    try:
        fields = json.loads(model)
        form = Form(*(int(fields[name]) for name in Form._fields))
        scale = [np.array(fields[name], np.float32) for name in ("mean", "deviation")]
        if min(form) > 0 and all(x.shape == (form.channels,) for x in scale) and scale[1].min() > 0:
            return form, scale[0], scale[1], str(fields["autoencoder"])
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise ValueError("not the form of latents")


WORDS = {"latents": Kind(Latents, train, "the form of latents", vectors=True)}
