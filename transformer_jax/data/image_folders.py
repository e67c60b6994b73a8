"""Picture files in one folder per label: PART/LABEL/FILE."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from transformer_jax.config import DataConfig
from transformer_jax.disk import user_path
from transformer_jax.errors import UserError


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
        for path in _files(config, split, part):
            picture, mode = _read(path, config.image_size, mode)
            if values and picture.shape != values[0].shape:
                raise UserError(
                    f"{path}: has {picture.shape[0]} x {picture.shape[1]} pixels, but the first "
                    f"has {values[0].shape[0]} x {values[0].shape[1]}; set config.data.image_size"
                )
            values.append(picture)
            labels.append(path.parent.name)
    return values, labels


def _files(config: DataConfig, split: str, part: str) -> list[Path]:
    folder = user_path(config.directory or ".") / part
    endings = {ending for ending, form in Image.registered_extensions().items() if form != "PDF"}
    found = sorted(path for path in folder.glob("*/*") if path.suffix.lower() in endings)
    if not found:
        raise UserError(
            f"config.data.{split}: no pictures in {folder.absolute()}/LABEL/; set "
            f"--config.data.directory to the parent of {part}, or --config.data.{split} to the "
            "names of its folders"
            + (f". Get it with: {config.how_to_get}" if config.how_to_get else "")
        )
    return found


def _read(path: Path, size: Sequence[int], mode: str) -> tuple[np.ndarray, str]:
    """Return a picture and its mode, which is the given one unless that is empty."""
    try:
        with Image.open(path) as image:
            upright = ImageOps.exif_transpose(image)
            if upright.mode[0] in "IF":  # which Pillow would clip at 255
                raise ValueError(f"its pixels have more than 8 bits, mode {upright.mode}")
            mode = mode or ("L" if upright.mode in ("L", "1") else "RGB")
            upright = upright.convert(mode)
    except (OSError, UnidentifiedImageError, SyntaxError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as a picture ({error})") from None
    if size:
        upright = ImageOps.fit(upright, (size[1], size[0]), Image.Resampling.BICUBIC)
    pixels = np.asarray(upright, np.uint8)
    return pixels.reshape(*pixels.shape[:2], -1), mode
