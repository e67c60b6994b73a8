"""Pictures as square patches, row by row, each a vector (ViT: Dosovitskiy et al. 2021,
arXiv:2010.11929).
"""

import json
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transformer_jax.config import DataConfig, ModelConfig, SourceConfig
from transformer_jax.data.augmenting import augmented
from transformer_jax.data.batch import Read
from transformer_jax.data.codecs.codec import VectorCodec, hashed
from transformer_jax.data.random import Draw
from transformer_jax.errors import UserError


class Form(NamedTuple):
    """The size shared by all pictures, in pixels."""

    height: int
    width: int
    channels: int
    patch: int
    pictures: int = 1  # per example; their patches are concatenated

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of an example."""
        return self.pictures, self.height, self.width, self.channels

    @property
    def grid(self) -> tuple[int, int]:
        """The rows and columns of patches of a picture."""
        return self.height // self.patch, self.width // self.patch

    @property
    def patches(self) -> int:
        """The number of patches of a picture."""
        return math.prod(self.grid)

    def cut(self, pictures: np.ndarray) -> np.ndarray:
        """Cut pictures [n H W C] into patches [n L patch*patch*C], pixels row by row."""
        rows, columns = self.grid
        grid = pictures.reshape(-1, rows, self.patch, columns, self.patch, self.channels)
        return grid.swapaxes(2, 3).reshape(len(pictures), rows * columns, -1)

    def joined(self, patches: np.ndarray) -> np.ndarray:
        """Return the pictures of patches; the inverse of `cut`."""
        rows, columns = self.grid
        grid = patches.reshape(-1, rows, columns, self.patch, self.patch, self.channels)
        return grid.swapaxes(2, 3).reshape(-1, self.height, self.width, self.channels)


class Patches(VectorCodec):
    """A picture [H W] or [H W C] of uint8, or several [N H W C], becomes one vector per patch; a
    model reads them standardised by each channel's mean and standard deviation in training.
    """

    file = "patches{}.json"
    stored = np.dtype(np.uint8)

    def __init__(self, model: bytes) -> None:
        self.model = model
        self.form, self.mean, self.deviation = _read(model)
        self.channels = self.size  # stored and read values differ only in scale

    @property
    def size(self) -> int:
        """The number of pixels of a patch times channels."""
        return self.form.patch**2 * self.form.channels

    @property
    def digest(self) -> str:
        """A hash of the model's bytes."""
        return hashed(self.model)

    def encode(
        self, values: Sequence[np.ndarray], bos: bool = False, eos: bool = True
    ) -> list[np.ndarray]:
        """Return the patches of each picture, uint8 [L C].

        Raises:
          UserError: if a picture differs in shape from those of training; gives its number, from 1.
        """
        for number, picture in enumerate(values, 1):
            _check(picture, f"picture {number}")
            if _shape(picture) != self.form.shape:
                several = f"{self.form.pictures} pictures each, with " * (self.form.pictures > 1)
                raise UserError(
                    f"picture {number}: has shape {picture.shape}; those of training have "
                    f"{several}{self.form.height} rows, {self.form.width} columns and "
                    f"{self.form.channels} channels"
                )
        if not len(values):
            return []
        pictures = np.concatenate([x.reshape(self.form.shape) for x in values])
        return list(self.form.cut(pictures).reshape(len(values), -1, self.channels))

    def reader(self, config: DataConfig | None = None) -> Read:
        """See VectorCodec."""

        def read(
            vectors: np.ndarray, lengths: np.ndarray, numbers: np.ndarray, draw: Draw
        ) -> np.ndarray:
            if config is not None and config.augment:
                each = numbers.repeat(self.form.pictures) * self.form.pictures
                each += np.tile(np.arange(self.form.pictures), len(numbers))
                pictures = augmented(self.form.joined(vectors), config, each, draw)
                vectors = self.form.cut(pictures).reshape(vectors.shape)
            return ((vectors - self._means) / self._deviations).astype(np.float32)

        return read

    def check_read_by(self, model: ModelConfig) -> None:
        """See VectorCodec: the model's grid, and whether its stem reads several pictures."""
        if model.grid and model.grid != self.form.grid:
            rows, columns = self.form.grid
            raise UserError(
                f"config.model.grid={model.grid}: pictures have {rows} rows and {columns} columns "
                f"of patches; set it to {self.form.grid}"
            )
        each = model.stem != "convolution" or model.architecture == "prefix_decoder"
        if not each and self.form.pictures > 1:
            raise UserError(
                f"config.model.stem={model.stem!r}: reads one picture, and examples have "
                f"{self.form.pictures}; choose 'linear'"
            )

    def as_bytes(self, vectors: np.ndarray) -> np.ndarray:
        """Return uint8 pixels [... C] for a model's inputs or outputs [... C]."""
        pixels = vectors * self._deviations + self._means
        return np.clip(np.rint(pixels), 0, 255).astype(np.uint8)

    @property
    def _means(self) -> np.ndarray:
        return np.tile(self.mean, self.form.patch**2)

    @property
    def _deviations(self) -> np.ndarray:
        return np.tile(self.deviation, self.form.patch**2)


def _shape(picture: np.ndarray) -> tuple[int, int, int, int]:
    if picture.ndim == 4:
        return picture.shape
    height, width, *channels = picture.shape
    return 1, height, width, channels[0] if channels else 1


def _check(picture: np.ndarray, name: str) -> None:
    if picture.dtype != np.uint8 or picture.ndim not in (2, 3, 4):
        raise UserError(
            f"{name}: is an array of {picture.dtype} with shape {picture.shape}; a picture is "
            "uint8, [rows columns] or [rows columns channels], several are [pictures rows "
            "columns channels]"
        )


def _read(model: bytes) -> tuple[Form, np.ndarray, np.ndarray]:
    try:
        found = json.loads(model)
        form = Form(*(int(found[name]) for name in Form._fields))
        scale = [np.array(found[name], np.float32) for name in ("mean", "deviation")]
        whole = form.height % form.patch == 0 == form.width % form.patch
        if min(form) > 0 and whole and all(x.shape == (form.channels,) for x in scale):
            return form, *scale  # type: ignore[return-value]
    except (ValueError, TypeError, KeyError, ZeroDivisionError, RecursionError):
        pass
    raise ValueError("not the form of pictures")


def train(source: SourceConfig, values: Sequence[np.ndarray]) -> Patches:
    """Return the codec for pictures of this size, with their mean and deviation by channel.

    Raises:
      UserError: if they are not pictures, differ in size, or do not divide into whole patches.
    """
    for number, picture in enumerate(values, 1):
        _check(picture, f"config.data.train: picture {number}")
        if picture.shape != values[0].shape:
            raise UserError(
                f"config.data.train: picture {number} has shape {picture.shape}, but the first has "
                f"{values[0].shape}; make all the same size"
            )
    count, height, width, channels = _shape(values[0])
    form = Form(height, width, channels, source.patch_size, count)
    if form.height % form.patch or form.width % form.patch:
        raise UserError(
            f"config.src.patch_size={form.patch}: does not divide pictures of {form.height} x "
            f"{form.width} pixels into whole patches; choose a divisor of both"
        )
    pixels = np.stack(values).reshape(-1, form.channels)
    # Sums of bytes are exact in 64 bits, so the order does not matter.
    total, squares = (x.astype(np.int64).sum(0) for x in (pixels, pixels.astype(np.int32) ** 2))
    mean = total / len(pixels)
    deviation = np.maximum(np.sqrt(np.maximum(squares / len(pixels) - mean**2, 0)), 1.0)
    scale = {"mean": mean.round(4).tolist(), "deviation": deviation.round(4).tolist()}
    return Patches(json.dumps(form._asdict() | scale).encode())
