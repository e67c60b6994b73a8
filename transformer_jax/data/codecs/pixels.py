"""What codecs of pictures and of clips share: bytes of pixels as vectors, and their scale."""

import io
import json
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from PIL import Image

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ModelConfig, SourceConfig
from transformer_jax.data.batches.batch import Read
from transformer_jax.data.codecs.codec import VectorCodec, hashed
from transformer_jax.data.codecs.picture_augmentation import augmented
from transformer_jax.data.random import Draw
from transformer_jax.data.sources.image_folders import open_picture

_MOST_PIXELS = 50_000_000
_COUNTED = 256  # values whose pixels are summed at a time


class Grid(Protocol):
    """The size shared by all values, in pixels, and how they are cut into vectors."""

    @property
    def height(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def channels(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a value: pictures or frames, rows, columns, channels."""

    @property
    def grid(self) -> tuple[int, ...]:
        """How many vectors there are along each axis."""

    @property
    def patches(self) -> int:
        """How many vectors there are in all."""

    @property
    def pixels(self) -> int:
        """The pixels of a vector, each of all channels."""

    def cut(self, values: np.ndarray) -> np.ndarray:
        """Cut values into vectors [n L pixels*C], pixels in the order of the axes."""

    def joined(self, patches: np.ndarray) -> np.ndarray:
        """Return what `cut` cuts; its inverse."""


class Pixels(VectorCodec):
    """Values of uint8, each cut into vectors of pixels; a model reads them standardised by each
    channel's mean and standard deviation in training, or from -1 to 1: see
    `config.src.pixel_scale`.
    """

    stored = np.dtype(np.uint8)
    form: Any  # a Grid

    def __init__(self, model: bytes, form: type) -> None:
        self.model = model
        self.form, self.mean, self.deviation = _read(model, form)
        self.channels = self.size  # stored and read values differ only in scale

    @property
    def size(self) -> int:
        """The number of pixels of a vector times channels."""
        return self.form.pixels * self.form.channels

    @property
    def digest(self) -> str:
        """A hash of the model's bytes."""
        return hashed(self.model)

    def encode(
        self, values: Sequence[np.ndarray], bos: bool = False, eos: bool = True
    ) -> list[np.ndarray]:
        """Return the vectors of each value, uint8 [L C].

        Raises:
          UserError: if a value differs in shape from those of training; gives its number, from 1.
        """
        for number, value in enumerate(values, 1):
            self.check_form(value, f"{self.noun} {number}")
        if not len(values):
            return []
        whole = np.stack([x.reshape(self.form.shape) for x in values])
        return list(self.form.cut(whole).reshape(len(values), -1, self.channels))

    def check_form(self, value: np.ndarray, name: str) -> None:
        """Check that a value has the form of those of training.

        Raises:
          UserError: if it has not; begins with `name`.
        """
        raise NotImplementedError

    def reader(self, config: DataConfig | None = None) -> Read:
        """See VectorCodec."""

        def read(
            vectors: np.ndarray, lengths: np.ndarray, numbers: np.ndarray, draw: Draw
        ) -> np.ndarray:
            if config is not None and config.augment:
                pictures = self.form.joined(vectors)
                flat = pictures.reshape(-1, *self.form.shape[1:])
                changed = augmented(flat, config, self._pictures(numbers), draw)
                vectors = self.form.cut(changed.reshape(pictures.shape)).reshape(vectors.shape)
            return ((vectors - self._means) / self._deviations).astype(np.float32)

        return read

    def _pictures(self, numbers: np.ndarray) -> np.ndarray:
        """Return a number for each picture or frame of values with these numbers: those of equal
        numbers are augmented alike.
        """
        raise NotImplementedError

    def check_read_by(self, model: ModelConfig) -> None:
        """See VectorCodec: the model's grid."""
        raise NotImplementedError

    def as_bytes(self, vectors: np.ndarray) -> np.ndarray:
        """Return uint8 pixels [... C] for a model's inputs or outputs [... C]."""
        pixels = vectors * self._deviations + self._means
        return np.clip(np.rint(pixels), 0, 255).astype(np.uint8)

    def values(self, vectors: np.ndarray) -> np.ndarray:
        """Return the pictures or clips of a model's inputs or outputs [n L C], as bytes."""
        return self.form.joined(self.as_bytes(vectors))

    @property
    def _means(self) -> np.ndarray:
        return np.tile(self.mean, self.form.pixels)

    @property
    def _deviations(self) -> np.ndarray:
        return np.tile(self.deviation, self.form.pixels)


def uploaded_picture(content: bytes, name: str) -> Image.Image:
    """Return the picture, or the animated one, in the content of a file.

    Raises:
      UserError: if it cannot be read, or has more than 50 million pixels.
    """
    image = open_picture(io.BytesIO(content), name)
    if image.width * image.height > _MOST_PIXELS:
        raise UserError(
            f"{name}: has {image.width:,} x {image.height:,} pixels, more than "
            f"{_MOST_PIXELS:,}; make it smaller"
        )
    return image


def written(form: Any, source: SourceConfig, values: Sequence[np.ndarray]) -> bytes:
    """Return the content of a codec's file: the form of values, and the mean and deviation of each
    channel.
    """
    # Sums of bytes are exact in 64 bits, so the order does not matter.
    count, total, squares = 0, *np.zeros((2, form.channels), np.int64)
    for start in range(0, len(values), _COUNTED):
        pixels = np.stack(values[start : start + _COUNTED]).reshape(-1, form.channels)
        count += len(pixels)
        total += pixels.astype(np.int64).sum(0)
        squares += (pixels.astype(np.int32) ** 2).astype(np.int64).sum(0)
    mean = total / count
    deviation = np.maximum(np.sqrt(np.maximum(squares / count - mean**2, 0)), 1.0)
    if source.pixel_scale == "symmetric":  # bytes from 0 to 255 become -1 to 1
        mean, deviation = (np.full(form.channels, 127.5) for _ in range(2))
    scale = {"mean": mean.round(4).tolist(), "deviation": deviation.round(4).tolist()}
    return json.dumps(form._asdict() | scale).encode()


def _read(model: bytes, kind: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    try:
        fields = json.loads(model)
        form = kind(*(int(fields[name]) for name in kind._fields))
        scale = [np.array(fields[name], np.float32) for name in ("mean", "deviation")]
        if min(form) > 0 and form.whole and all(x.shape == (form.channels,) for x in scale):
            return form, scale[0], scale[1]
    except (ValueError, TypeError, KeyError, ZeroDivisionError, RecursionError):
        pass
    raise ValueError("not the form of pictures")
