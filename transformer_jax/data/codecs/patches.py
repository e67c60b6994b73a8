"""Pictures as square patches, row by row, each a vector (ViT: Dosovitskiy et al. 2021,
arXiv:2010.11929).
"""

import io
import json
import math
from collections.abc import Collection, Iterator, Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ModelConfig, SourceConfig
from transformer_jax.config.choices.codecs import CODECS
from transformer_jax.data.batches.batch import Read
from transformer_jax.data.codecs.codec import Kind, VectorCodec, as_array, hashed
from transformer_jax.data.codecs.picture_augmentation import augmented
from transformer_jax.data.random import Draw
from transformer_jax.data.sources.image_folders import open_picture, picture_endings, pixels_of

_MODES = {1: "L", 3: "RGB"}  # in which images are read, by channels
_MOST_PIXELS = 50_000_000


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
    model reads them standardised by each channel's mean and standard deviation in training, or from
    -1 to 1: see `config.src.pixel_scale`.
    """

    file = "patches{}.json"
    noun = CODECS["patches"].noun
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
            self._check_form(picture, f"picture {number}")
        if not len(values):
            return []
        pictures = np.concatenate([x.reshape(self.form.shape) for x in values])
        return list(self.form.cut(pictures).reshape(len(values), -1, self.channels))

    @property
    def endings(self) -> Collection[str]:  # type: ignore[override]
        """See VectorCodec."""
        return picture_endings()

    def opened(self, content: bytes, name: str) -> Image.Image:
        """See VectorCodec: an image of at most 50 million pixels, as a small file may hold more
        than fits into memory.
        """
        image = open_picture(io.BytesIO(content), name)
        if image.width * image.height > _MOST_PIXELS:
            raise UserError(
                f"{name}: has {image.width:,} x {image.height:,} pixels, more than "
                f"{_MOST_PIXELS:,}; make it smaller"
            )
        return image

    def samples(self, longest: int) -> Iterator[np.ndarray]:
        """See VectorCodec."""
        yield np.zeros(self.form.shape[self.form.pictures == 1 :], np.uint8)

    def is_one(self, given: Any) -> bool:
        """See VectorCodec: a file, an image, or an array of as many dimensions as an example."""
        if isinstance(given, Image.Image) or super().is_one(given):
            return True
        shape, form = getattr(given, "shape", None), self.form
        if shape is None:
            return False
        if form.pictures > 1:
            return len(shape) <= 4
        if len(shape) == 3:  # [rows columns channels], or greyscale pictures [n rows columns]
            grey = form.channels == 1 and tuple(shape[1:]) == (form.height, form.width)
            return not grey and shape[2] in (form.channels, *_MODES, 4)
        return len(shape) <= 2

    def prepared(self, given: Any, name: str, config: DataConfig) -> np.ndarray:
        """See VectorCodec: files and images are resized and cropped if those of training were."""
        if self.form.pictures > 1 and isinstance(given, list | tuple):
            parts = [self._picture(x, f"{name}, {i}", config) for i, x in enumerate(given, 1)]
            if len({part.shape for part in parts}) != 1:
                raise UserError(f"{name}: needs {self.form.pictures} pictures of one size")
            return np.stack(parts)
        return self._picture(given, name, config)

    def _picture(self, given: Any, name: str, config: DataConfig) -> np.ndarray:
        """Return the pixels of one picture."""
        if isinstance(given, str | PathLike):
            name, given = str(given), open_picture(given)
        from_folders = config.source == "folders"  # whose pictures are files of any size
        if not isinstance(given, Image.Image):
            array = as_array(given, name)
            if not from_folders or array.shape[-3:] == self.form.shape[1:]:
                return array
            _check(array, name)
            given = _image(array, name)
        if self.form.channels not in _MODES:
            raise UserError(
                f"{name}: this model reads pictures of {self.form.channels} channels; give an "
                "array of uint8, [rows columns channels]"
            )
        size = config.image_size if from_folders else ()
        pixels = pixels_of(given, size, _MODES[self.form.channels], name)
        if self.form.pictures == 1:
            self._check_form(pixels, name)
        return pixels

    def _check_form(self, picture: np.ndarray, name: str) -> None:
        _check(picture, name)
        if _shape(picture) != self.form.shape:
            several = f"{self.form.pictures} pictures each, with " * (self.form.pictures > 1)
            raise UserError(
                f"{name}: has shape {picture.shape}; those of training have "
                f"{several}{self.form.height} rows, {self.form.width} columns and "
                f"{self.form.channels} channels; bring it to that form"
            )

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


def _image(array: np.ndarray, name: str) -> Image.Image:
    """Return an array of one picture as an image."""
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if array.ndim != 2 and (array.ndim != 3 or array.shape[2] not in (*_MODES, 4)):
        raise UserError(
            f"{name}: has shape {array.shape}; a picture is [rows columns], or [rows columns "
            "channels] with 1, 3 or 4 channels"
        )
    return Image.fromarray(array)


def _check(picture: np.ndarray, name: str) -> None:
    if not isinstance(picture, np.ndarray):
        raise UserError(f"{name}: is {picture!r:.40}, not an array of pixels")
    if picture.dtype != np.uint8 or picture.ndim not in (2, 3, 4):
        raise UserError(
            f"{name}: is an array of {picture.dtype} with shape {picture.shape}; a picture is "
            "uint8, [rows columns] or [rows columns channels], several are [pictures rows "
            "columns channels]"
        )


def _read(model: bytes) -> tuple[Form, np.ndarray, np.ndarray]:
    try:
        fields = json.loads(model)
        form = Form(*(int(fields[name]) for name in Form._fields))
        scale = [np.array(fields[name], np.float32) for name in ("mean", "deviation")]
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
    if source.pixel_scale == "symmetric":  # bytes from 0 to 255 become -1 to 1
        mean, deviation = (np.full(form.channels, 127.5) for _ in range(2))
    scale = {"mean": mean.round(4).tolist(), "deviation": deviation.round(4).tolist()}
    return Patches(json.dumps(form._asdict() | scale).encode())


WORDS = {"patches": Kind(Patches, train, "the form of pictures", vectors=True)}
