"""Pictures as square patches, row by row, each a vector (ViT: Dosovitskiy et al. 2021,
arXiv:2010.11929).
"""

import math
from collections.abc import Collection, Iterator, Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ModelConfig, SourceConfig
from transformer_jax.config.choices.codecs import CODECS
from transformer_jax.data.codecs.codec import Kind, as_array
from transformer_jax.data.codecs.pixels import Pixels, uploaded_picture, written
from transformer_jax.data.sources.image_folders import open_picture, picture_endings, pixels_of

_MODES = {1: "L", 3: "RGB"}  # in which images are read, by channels


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
    def whole(self) -> bool:
        """Whether patches divide a picture."""
        return self.height % self.patch == 0 == self.width % self.patch

    @property
    def patches(self) -> int:
        """The number of patches of a picture."""
        return math.prod(self.grid)

    @property
    def pixels(self) -> int:
        """The number of pixels of a patch."""
        return self.patch**2

    def cut(self, pictures: np.ndarray) -> np.ndarray:
        """Cut pictures [n H W C] into patches [n L patch*patch*C], pixels row by row."""
        rows, columns = self.grid
        grid = pictures.reshape(-1, rows, self.patch, columns, self.patch, self.channels)
        return grid.swapaxes(2, 3).reshape(-1, rows * columns, self.pixels * self.channels)

    def joined(self, patches: np.ndarray) -> np.ndarray:
        """Return the pictures of patches; the inverse of `cut`."""
        rows, columns = self.grid
        grid = patches.reshape(-1, rows, columns, self.patch, self.patch, self.channels)
        return grid.swapaxes(2, 3).reshape(-1, self.height, self.width, self.channels)


class Patches(Pixels):
    """A picture [H W] or [H W C] of uint8, or several [N H W C], becomes one vector per patch."""

    file = "patches{}.json"
    noun = CODECS["patches"].noun
    form: Form

    def __init__(self, model: bytes) -> None:
        super().__init__(model, Form)

    @property
    def endings(self) -> Collection[str]:  # type: ignore[override]
        """See VectorCodec."""
        return picture_endings()

    def opened(self, content: bytes, name: str) -> Image.Image:
        """See VectorCodec: an image of at most 50 million pixels, as a small file may hold more
        than fits into memory.
        """
        return uploaded_picture(content, name)

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
            self.check_form(pixels, name)
        return pixels

    def check_form(self, picture: np.ndarray, name: str) -> None:
        """See Pixels."""
        _check(picture, name)
        if _shape(picture) != self.form.shape:
            several = f"{self.form.pictures} pictures each, with " * (self.form.pictures > 1)
            raise UserError(
                f"{name}: has shape {picture.shape}; those of training have "
                f"{several}{self.form.height} rows, {self.form.width} columns and "
                f"{self.form.channels} channels; bring it to that form"
            )

    def _pictures(self, numbers: np.ndarray) -> np.ndarray:
        each = numbers.repeat(self.form.pictures) * self.form.pictures
        return each + np.tile(np.arange(self.form.pictures), len(numbers))

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
    if not form.whole:
        raise UserError(
            f"config.src.patch_size={form.patch}: does not divide pictures of {form.height} x "
            f"{form.width} pixels into whole patches; choose a divisor of both"
        )
    return Patches(written(form, source, values))


WORDS = {"patches": Kind(Patches, train, "the form of pictures", vectors=True)}
