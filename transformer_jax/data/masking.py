"""Frames of sound masked at random as they are read (SpecAugment: Park et al. 2019,
arXiv:1904.08779, without its warping of time): functions of the seed, the epoch and the sound.

What is masked becomes the mean of the sound, which is 0 in the paper.
"""

from collections.abc import Callable

import numpy as np

from transformer_jax.choices import pick
from transformer_jax.config import DataConfig
from transformer_jax.data.random import Draw, uniform

# Which of the vectors [N C] of sounds of some lengths [n] are masked, bool [N C] or what broadcasts
# to it; and what the draws depend on, which arrays [n] are.
Mask = Callable[[np.ndarray, np.ndarray, DataConfig, tuple], np.ndarray]


def frequency_mask(
    vectors: np.ndarray, lengths: np.ndarray, config: DataConfig, keys: tuple
) -> np.ndarray:
    """Return bands that lie together, from 0 to `frequency_mask_size` of them."""
    bands = vectors.shape[1]
    most = np.full(len(lengths), min(config.frequency_mask_size, bands))
    first, count = _drawn(most, np.full(len(lengths), bands), keys)
    away = np.arange(bands) - first[:, None]
    return np.repeat((away >= 0) & (away < count[:, None]), lengths, axis=0)


def time_mask(
    vectors: np.ndarray, lengths: np.ndarray, config: DataConfig, keys: tuple
) -> np.ndarray:
    """Return frames that lie together, from 0 to `time_mask_size` of them, and no more than the
    share of a sound's that `time_mask_share` is.
    """
    most = np.minimum(config.time_mask_size, (config.time_mask_share * lengths).astype(np.int64))
    first, count = (np.repeat(x, lengths) for x in _drawn(most, lengths, keys))
    within = np.arange(len(vectors)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return ((within >= first) & (within < first + count))[:, None]


MASKS: dict[str, Mask] = {"frequency_mask": frequency_mask, "time_mask": time_mask}


def masked(
    vectors: np.ndarray, lengths: np.ndarray, config: DataConfig, numbers: np.ndarray, draw: Draw
) -> np.ndarray:
    """Return the vectors [N C] of sounds of some lengths and numbers [n] with all masks that the
    config names, each time that it does.
    """
    found = np.zeros(vectors.shape, bool)
    for place, name in enumerate(config.augment):
        mask = pick(MASKS, name, "config.data.augment")
        found |= mask(vectors, lengths, config, (*draw, numbers, place))
    means = np.zeros(len(lengths))
    np.add.at(means, np.repeat(np.arange(len(lengths)), lengths), vectors.mean(1, dtype=np.float64))
    means = np.repeat(means / np.maximum(lengths, 1), lengths).astype(vectors.dtype)
    return np.where(found, means[:, None], vectors)


def _drawn(most: np.ndarray, size: np.ndarray, keys: tuple) -> tuple[np.ndarray, np.ndarray]:
    """Return the first place and the number of places of a mask, of 0 to `most` of `size`."""
    count = (uniform(*keys, 0) * (most + 1)).astype(np.int64)
    return (uniform(*keys, 1) * (size - count + 1)).astype(np.int64), count
