"""Random augmentation of pictures as they are read, from the seed, the epoch and the picture."""

from collections.abc import Callable

import numpy as np

from transformer_jax.config import DataConfig
from transformer_jax.config.registry import pick
from transformer_jax.data.random import Draw, random

# Maps pictures [n H W C], the config, and the keys of the random numbers, arrays [n], to pictures.
Change = Callable[[np.ndarray, DataConfig, tuple], np.ndarray]


def crop(pictures: np.ndarray, config: DataConfig, keys: tuple) -> np.ndarray:
    """Return pictures shifted by up to `crop_padding` pixels, each independently, with 0 outside
    the border.
    """
    (_, height, width, _), most = pictures.shape, config.crop_padding
    padded = np.pad(pictures, ((0, 0), (most, most), (most, most), (0, 0)))
    down, right = ((random(*keys, axis) % np.uint64(2 * most + 1)).astype(int) for axis in (0, 1))
    rows = down[:, None] + np.arange(height)
    columns = right[:, None] + np.arange(width)
    return padded[np.arange(len(pictures))[:, None, None], rows[:, :, None], columns[:, None]]


def flip(pictures: np.ndarray, config: DataConfig, keys: tuple) -> np.ndarray:
    """Return pictures, half of them flipped horizontally."""
    flipped = random(*keys) % np.uint64(2) == 1
    return np.where(flipped[:, None, None, None], pictures[:, :, ::-1], pictures)


def cutout(pictures: np.ndarray, config: DataConfig, keys: tuple) -> np.ndarray:
    """Return pictures, each with a square of zeros centred on a random pixel (DeVries and Taylor
    2017, arXiv:1708.04552).
    """
    _, height, width, _ = pictures.shape
    within = []
    for axis, size in enumerate((height, width)):
        first = (random(*keys, axis) % np.uint64(size)).astype(int) - config.cutout_size // 2
        away = np.arange(size) - first[:, None]
        within.append((away >= 0) & (away < config.cutout_size))
    hidden = within[0][:, :, None] & within[1][:, None]
    return np.where(hidden[..., None], pictures.dtype.type(0), pictures)


AUGMENTATIONS: dict[str, Change] = {"crop": crop, "flip": flip, "cutout": cutout}


def augmented(
    pictures: np.ndarray, config: DataConfig, numbers: np.ndarray, draw: Draw
) -> np.ndarray:
    """Return pictures [n H W C], given their numbers [n], with all augmentations of the config."""
    for place, name in enumerate(config.augment):
        change = pick(AUGMENTATIONS, name, "config.data.augment")
        pictures = change(pictures, config, (*draw, numbers, place))
    return pictures
