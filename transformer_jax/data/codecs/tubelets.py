"""Clips as tubelets, squares of pixels in several frames, each a vector (ViViT: Arnab et al. 2021,
arXiv:2103.15691, section 3.2).
"""

import io
import math
import os
from collections.abc import Collection, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ModelConfig, SourceConfig
from transformer_jax.config.choices.codecs import CODECS
from transformer_jax.data.codecs.codec import Kind, as_array
from transformer_jax.data.codecs.pixels import Pixels, uploaded_picture, written
from transformer_jax.data.sources import clip_folders

_MODES = {1: "L", 3: "RGB"}  # in which frames are read, by channels


class Form(NamedTuple):
    """The size shared by all clips, in frames and pixels."""

    frames: int
    height: int
    width: int
    channels: int
    patch: int
    tubelet: int  # frames of each

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The shape of a clip."""
        return self.frames, self.height, self.width, self.channels

    @property
    def whole(self) -> bool:
        """Whether tubelets divide a clip."""
        sides = (self.frames, self.tubelet), (self.height, self.patch), (self.width, self.patch)
        return not any(size % part for size, part in sides)

    @property
    def grid(self) -> tuple[int, int, int]:
        """The times, rows and columns of tubelets."""
        return self.frames // self.tubelet, self.height // self.patch, self.width // self.patch

    @property
    def patches(self) -> int:
        """The number of tubelets of a clip."""
        return math.prod(self.grid)

    @property
    def pixels(self) -> int:
        """The number of pixels of a tubelet."""
        return self.tubelet * self.patch**2

    def cut(self, clips: np.ndarray) -> np.ndarray:
        """Cut clips [n T H W C] into tubelets [n L tubelet*patch*patch*C]: by time, then by row and
        column, as are the pixels of each.
        """
        (times, rows, columns), patch = self.grid, self.patch
        sides = times, self.tubelet, rows, patch, columns, patch, self.channels
        return np.moveaxis(clips.reshape(-1, *sides), (3, 5), (2, 3)).reshape(
            -1, self.patches, self.pixels * self.channels
        )

    def joined(self, tubelets: np.ndarray) -> np.ndarray:
        """Return the clips of tubelets; the inverse of `cut`."""
        sides = *self.grid, self.tubelet, self.patch, self.patch, self.channels
        grid = tubelets.reshape(-1, *sides)
        return np.moveaxis(grid, (2, 3), (3, 5)).reshape(-1, *self.shape)


class Tubelets(Pixels):
    """A clip [T H W] or [T H W C] of uint8 becomes one vector per tubelet."""

    file = "tubelets{}.json"
    noun = CODECS["tubelets"].noun
    form: Form

    def __init__(self, model: bytes) -> None:
        super().__init__(model, Form)

    @property
    def endings(self) -> Collection[str]:  # type: ignore[override]
        """See VectorCodec."""
        return clip_folders.ENDINGS

    def is_folder(self, path: Path) -> bool:
        """See VectorCodec: a folder of frames."""
        return bool(clip_folders.frames_in(path))

    def opened(self, content: bytes, name: str) -> Any:
        """See VectorCodec: an animated picture, or the array of a .npy file."""
        if name.endswith(".npy"):
            return _array(io.BytesIO(content), name)
        return uploaded_picture(content, name)

    def samples(self, longest: int) -> Iterator[np.ndarray]:
        """See VectorCodec."""
        yield np.zeros(self.form.shape, np.uint8)

    def is_one(self, given: Any) -> bool:
        """See VectorCodec: a file, a folder, an animated picture, or an array of a clip's axes."""
        if isinstance(given, Image.Image) or super().is_one(given):
            return True
        shape = getattr(given, "shape", None)
        if shape is None:
            return False
        several = self.form.channels == 1 and tuple(shape[1:]) == self.form.shape[:3]
        return len(shape) <= 4 and not several  # [n T H W] are several

    def prepared(self, given: Any, name: str, config: DataConfig) -> np.ndarray:
        """See VectorCodec: as many frames as in training, and resized if those of training were.

        Raises:
          UserError: if there are others; says how many.
        """
        if isinstance(given, str | PathLike):
            name, given = os.fspath(given), Path(given)
            if given.suffix.lower() == ".npy":
                given = _array(given, name)
        from_files = config.source == "clips"  # which may have any number of frames of any size
        if isinstance(given, Path | Image.Image):
            mode = _MODES.get(self.form.channels)
            if mode is None:
                raise UserError(
                    f"{name}: this model reads frames of {self.form.channels} channels; give an "
                    "array of uint8, [frames rows columns channels]"
                )
            few = self.form.frames if from_files else None
            size = config.image_size if from_files else ()
            with clip_folders.opened(given, name) as frames:
                clip = clip_folders.read(frames, few, size, mode, name)
        else:
            clip = as_array(given, name)
        self.check_form(clip, name)
        return clip

    def check_form(self, clip: np.ndarray, name: str) -> None:
        """See Pixels."""
        _check(clip, name)
        if _shape(clip) != self.form.shape:
            frames, height, width, channels = self.form.shape
            raise UserError(
                f"{name}: has shape {clip.shape}; those of training have {frames} frames of "
                f"{height} rows, {width} columns and {channels} channels; bring it to that form"
            )

    def _pictures(self, numbers: np.ndarray) -> np.ndarray:
        return numbers.repeat(self.form.frames)  # the frames of a clip are changed alike

    def check_read_by(self, model: ModelConfig) -> None:
        """See VectorCodec: the model's grid."""
        if model.grid and model.grid != self.form.grid:
            times, rows, columns = self.form.grid
            raise UserError(
                f"config.model.grid={model.grid}: clips have {times} times, {rows} rows and "
                f"{columns} columns of tubelets; set it to {self.form.grid}"
            )


def _array(file: Any, name: str) -> np.ndarray:
    try:
        return np.asarray(np.load(file, allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        raise UserError(f"{name}: cannot be read as .npy ({error})") from None


def _shape(clip: np.ndarray) -> tuple[int, int, int, int]:
    if clip.ndim == 4:
        return clip.shape
    frames, height, width = clip.shape
    return frames, height, width, 1


def _check(clip: np.ndarray, name: str) -> None:
    if not isinstance(clip, np.ndarray):
        raise UserError(f"{name}: is {clip!r:.40}, not an array of pixels")
    if clip.dtype != np.uint8 or clip.ndim not in (3, 4):
        raise UserError(
            f"{name}: is an array of {clip.dtype} with shape {clip.shape}; a clip is uint8, "
            "[frames rows columns] or [frames rows columns channels]"
        )


def train(source: SourceConfig, values: Sequence[np.ndarray]) -> Tubelets:
    """Return the codec for clips of this size, with their mean and deviation by channel.

    Raises:
      UserError: if they are not clips, differ in size, or do not divide into whole tubelets.
    """
    for number, clip in enumerate(values, 1):
        _check(clip, f"config.data.train: clip {number}")
        if clip.shape != values[0].shape:
            raise UserError(
                f"config.data.train: clip {number} has shape {clip.shape}, but the first has "
                f"{values[0].shape}; give all as many frames of the same size"
            )
    form = Form(*_shape(values[0]), source.patch_size, source.tubelet_frames)
    if form.height % form.patch or form.width % form.patch:
        raise UserError(
            f"config.src.patch_size={form.patch}: does not divide frames of {form.height} x "
            f"{form.width} pixels into whole tubelets; choose a divisor of both"
        )
    if not form.whole:
        raise UserError(
            f"config.src.tubelet_frames={form.tubelet}: does not divide clips of {form.frames} "
            "frames into whole tubelets; choose a divisor"
        )
    return Tubelets(written(form, source, values))


WORDS = {"tubelets": Kind(Tubelets, train, "the form of clips", vectors=True)}
