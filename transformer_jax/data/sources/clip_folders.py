"""Clips: folders of frames, PART/LABEL/CLIP/FRAME, or animated pictures, PART/LABEL/FILE."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image, ImageSequence

from transformer_jax.base.disk import user_path
from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig
from transformer_jax.data.sources.image_folders import (
    Picture,
    mode_of,
    open_picture,
    picture_endings,
    pixels_of,
)

ANIMATED = (".gif", ".webp")  # files that hold a whole clip
ENDINGS = (*ANIMATED, ".npy")  # the same, and arrays [T H W] or [T H W C]
Frames = Sequence[Path] | Image.Image  # files, or one that holds them all


def load(config: DataConfig, split: str) -> tuple[list[np.ndarray], list[str]]:
    """Return the clips of a split in the order of their paths, uint8 [T H W C], and their labels.

    Of each, `num_frames` evenly spaced frames are read. They are greyscale if the first clip is,
    else RGB. With `image_size` each frame is resized to it, after a centre crop to its aspect
    ratio.

    Raises:
      UserError: if there are none, one cannot be read or has too few frames, or its frames differ
        in size from its first or from those of the first clip.
    """
    values: list[np.ndarray] = []
    labels: list[str] = []
    mode = ""
    for part in getattr(config, split):
        for path in _clips(config, split, part):
            name = str(path)
            with opened(path, name) as frames:
                mode = mode or _mode_of(frames)
                clip = read(frames, config.num_frames, config.image_size, mode, name)
            if values and clip.shape != values[0].shape:
                raise UserError(
                    f"{path}: has frames of {clip.shape[1]} x {clip.shape[2]} pixels, but those of "
                    f"the first clip have {values[0].shape[1]} x {values[0].shape[2]}; set "
                    "config.data.image_size"
                )
            values.append(Picture.of(clip, name))
            labels.append(path.parent.name)
    return values, labels


def _mode_of(frames: Frames) -> str:
    """Return the mode in which clips are read: greyscale if the first frame of this one is, whose
    colours a .gif has in a palette, else RGB.
    """
    if not isinstance(frames, Image.Image):
        with open_picture(frames[0]) as first:
            return _mode_of(first)
    colours = np.array(frames.getpalette("RGB") or [], np.uint8).reshape(-1, 3)
    grey = frames.mode == "P" and (colours == colours[:, :1]).all()
    return "L" if grey else mode_of(frames)


def _clips(config: DataConfig, split: str, part: str) -> Iterator[Path]:
    """Yield the folders and files of the clips of a part, by label and name."""
    folder = user_path(config.directory or ".") / part
    found = 0
    for path in sorted(folder.glob("*/*")):
        if path.name.startswith("."):
            continue
        if path.is_dir() or path.suffix.lower() in ANIMATED:
            found += 1
            yield path
    if not found:
        raise UserError(
            f"config.data.{split}: no clips in {folder.absolute()}/LABEL/, neither folders of "
            f"frames nor files named *{' or *'.join(ANIMATED)}; set --config.data.directory to the "
            f"parent of {part}, or --config.data.{split} to the names of its folders"
            + (f". Get it with: {config.how_to_get}" if config.how_to_get else "")
        )


def frames_in(folder: Path) -> list[Path]:
    """Return the files of frames in a folder, by name, in which numbers count as such."""
    endings = picture_endings() - {*ANIMATED}
    if not folder.is_dir():
        return []
    files = (path for path in folder.iterdir() if not path.name.startswith("."))
    return sorted((path for path in files if path.suffix.lower() in endings), key=_numbered)


def _numbered(path: Path) -> list[tuple[int, str]]:
    """Return a key that puts frame2.png before frame10.png."""
    parts = re.split(r"(\d+)", path.name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


@contextmanager
def opened(clip: Path | Image.Image, name: str) -> Iterator[Frames]:
    """Give the frames of a folder, of an animated picture, or of its file, unread.

    Raises:
      UserError: if there are none; begins with `name`.
    """
    if isinstance(clip, Image.Image):
        yield clip
        return
    if not clip.is_dir():
        with open_picture(clip) as picture:
            yield picture
        return
    files = frames_in(clip)
    if not files:
        raise UserError(
            f"{name}: holds no frames, files of pictures; a clip is a folder of them, or a file "
            f"named *{' or *'.join(ANIMATED)}"
        )
    yield files


def read(
    frames: Frames, count: int | None, size: Sequence[int], mode: str, name: str
) -> np.ndarray:
    """Return a clip as training reads it, uint8 [T H W C]: `count` evenly spaced frames, the middle
    ones of as many equal parts; None: all.

    Raises:
      UserError: if there are too few, one cannot be read, or they differ in size.
    """
    many = getattr(frames, "n_frames", 1) if isinstance(frames, Image.Image) else len(frames)
    if count is not None and many < count:
        raise UserError(
            f"{name}: has {many} frame{'s' * (many != 1)}, fewer than config.data.num_frames="
            f"{count}; lower that before training, or leave the clip out"
        )
    chosen = spaced(many, many if count is None else count)
    pictures: list[np.ndarray] = []
    for number, (place, frame) in enumerate(_opened(frames, chosen, name), 1):
        with frame:
            picture = pixels_of(frame, size, mode, place)
        if pictures and picture.shape != pictures[0].shape:
            raise UserError(
                f"{place}: has {picture.shape[0]} x {picture.shape[1]} pixels, but the first frame "
                f"of its clip has {pictures[0].shape[0]} x {pictures[0].shape[1]}; make frame "
                f"{number} as large, or set config.data.image_size"
            )
        pictures.append(picture)
    return np.stack(pictures)


def spaced(many: int, count: int) -> list[int]:
    """Return `count` of `many` places, from 0: the middle ones of as many equal parts."""
    return [(2 * i + 1) * many // (2 * count) for i in range(count)]


def _opened(frames: Frames, chosen: Sequence[int], name: str) -> Iterator[tuple[str, Image.Image]]:
    """Yield the name and the picture of each chosen frame."""
    if not isinstance(frames, Image.Image):
        for place in chosen:
            yield str(frames[place]), open_picture(frames[place])
        return
    wanted = {*chosen}
    for place, frame in enumerate(ImageSequence.Iterator(frames)):
        if place in wanted:
            yield f"{name}, frame {place + 1}", frame.copy()
