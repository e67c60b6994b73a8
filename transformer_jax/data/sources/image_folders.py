"""Picture files in one folder per label, PART/LABEL/FILE, or with their labels in tar files."""

import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from transformer_jax.base.disk import user_path
from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig
from transformer_jax.data.sources import webdataset

# What Pillow raises for a file that is no picture, a damaged one, or one of too many pixels.
_DAMAGED = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)


class Picture(np.ndarray):
    """Pixels [H W C] of uint8, with the name of their file."""

    name: str

    @classmethod
    def of(cls, pixels: np.ndarray, name: str) -> "Picture":
        """Return pixels as a picture."""
        picture = pixels.view(cls)
        picture.name = name
        return picture

    def __array_finalize__(self, whole: Any) -> None:
        self.name = getattr(whole, "name", "")


def load(config: DataConfig, split: str) -> tuple[list[np.ndarray], list[str]]:
    """Return the pictures of a split in the order of their paths, uint8 [H W C], and their labels.

    They are greyscale if the first one is, else RGB. With `image_size` each is resized to it, after
    a centre crop to its aspect ratio.

    Raises:
      UserError: if there are none, one cannot be read, or one differs in size from the first.
    """
    values: list[np.ndarray] = []
    labels: list[str] = []
    mode = ""
    for part in getattr(config, split):
        for path, file, label in _pictures(config, split, part):
            with open_picture(file, path) as opened:
                mode = mode or mode_of(opened)
                picture = pixels_of(opened, config.image_size, mode, path)
            if values and picture.shape != values[0].shape:
                raise UserError(
                    f"{path}: has {picture.shape[0]} x {picture.shape[1]} pixels, but the first "
                    f"has {values[0].shape[0]} x {values[0].shape[1]}; set config.data.image_size"
                )
            values.append(Picture.of(picture, path))
            labels.append(label)
    return values, labels


def _pictures(
    config: DataConfig, split: str, part: str
) -> Iterator[tuple[str, Path | IO[bytes], str]]:
    """Yield the name, the file and the label of each picture of a part."""
    samples = webdataset.samples_of(config, split, part)
    if samples is None:
        for path in _files(config, split, part):
            yield str(path), path, path.parent.name
        return
    source, target = (webdataset.column(config, *x) for x in (("source", ""), ("target", "cls")))
    usual = {ending.removeprefix(".") for ending in picture_endings()}
    for sample in samples:
        name, content = sample.content(source, usual)
        yield name, io.BytesIO(content), sample.text(target)


def picture_endings() -> set[str]:
    """Return how the names of picture files end, in lower case."""
    return {ending for ending, form in Image.registered_extensions().items() if form != "PDF"}


def _files(config: DataConfig, split: str, part: str) -> list[Path]:
    folder = user_path(config.directory or ".") / part
    endings = picture_endings()
    files = sorted(path for path in folder.glob("*/*") if path.suffix.lower() in endings)
    if not files:
        raise UserError(
            f"config.data.{split}: no pictures in {folder.absolute()}/LABEL/; set "
            f"--config.data.directory to the parent of {part}, or --config.data.{split} to the "
            "names of its folders"
            + (f". Get it with: {config.how_to_get}" if config.how_to_get else "")
        )
    return files


def open_picture(file: str | os.PathLike | IO[bytes], name: str | None = None) -> Image.Image:
    """Return the picture in a file, whose pixels are read later; `name` is for messages, by default
    its path.

    Raises:
      UserError: if it cannot be read.
    """
    try:
        return Image.open(file)
    except _DAMAGED as error:
        reason = _reason(error)
        if isinstance(error, UnidentifiedImageError) and not isinstance(file, str | os.PathLike):
            reason = "of no known format"  # Pillow's message would name the object
        raise UserError(f"{name or file}: cannot be read as a picture ({reason})") from None


def mode_of(picture: Image.Image) -> str:
    """Return the mode in which a picture is read: greyscale if it is, else RGB."""
    return "L" if picture.mode in ("L", "1") else "RGB"


def pixels_of(picture: Image.Image, size: Sequence[int], mode: str, name: str) -> np.ndarray:
    """Return a picture as training reads it, uint8 [H W C]: upright, in this mode, and unless
    `size` is empty, cropped to its aspect ratio and resized to it.

    Raises:
      UserError: if it is damaged, or has more than 8 bits per pixel; begins with `name`.
    """
    try:
        upright = ImageOps.exif_transpose(picture)
        if upright.mode[0] in "IF":  # which Pillow would clip at 255
            raise ValueError(f"its pixels have more than 8 bits, mode {upright.mode}")
        if not min(upright.size):
            raise ValueError("it has no pixels")
        upright = upright.convert(mode)
    except _DAMAGED as error:
        raise UserError(f"{name}: cannot be read as a picture ({_reason(error)})") from None
    if size:
        upright = ImageOps.fit(upright, (size[1], size[0]), Image.Resampling.BICUBIC)
    pixels = np.asarray(upright, np.uint8)
    return pixels.reshape(*pixels.shape[:2], -1)


def _reason(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
