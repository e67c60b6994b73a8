"""SpecAugment: random masks on audio features as they are read (Park et al. 2019,
arXiv:1904.08779, without time warping), a function of the seed, the epoch and the sound.

Masked values become the mean of the sound, which is 0 in the paper.
"""

from collections.abc import Callable

import numpy as np

from transformer_jax.config import DataConfig
from transformer_jax.config.registry import pick
from transformer_jax.data.batches.batch import Read
from transformer_jax.data.random import Draw, uniform

# Maps the vectors [N C] of sounds of some lengths [n], the config, and the keys of the random
# numbers, arrays [n], to a mask, bool [N C] or broadcastable to it.
Mask = Callable[[np.ndarray, np.ndarray, DataConfig, tuple], np.ndarray]


def frequency_mask(
    vectors: np.ndarray, lengths: np.ndarray, config: DataConfig, keys: tuple
) -> np.ndarray:
    """Return a mask of adjacent bands, from 0 to `frequency_mask_size` of them."""
    bands = vectors.shape[1]
    most = np.full(len(lengths), min(config.frequency_mask_size, bands))
    first, count = _drawn(most, np.full(len(lengths), bands), keys)
    away = np.arange(bands) - first[:, None]
    return np.repeat((away >= 0) & (away < count[:, None]), lengths, axis=0)


def time_mask(
    vectors: np.ndarray, lengths: np.ndarray, config: DataConfig, keys: tuple
) -> np.ndarray:
    """Return a mask of adjacent frames, from 0 to `time_mask_size` of them, and at most the share
    `time_mask_share` of a sound's frames.
    """
    most = np.minimum(config.time_mask_size, (config.time_mask_share * lengths).astype(np.int64))
    first, count = (np.repeat(x, lengths) for x in _drawn(most, lengths, keys))
    within = np.arange(len(vectors)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return ((within >= first) & (within < first + count))[:, None]


MASKS: dict[str, Mask] = {"frequency_mask": frequency_mask, "time_mask": time_mask}


def masking(config: DataConfig | None) -> Read:
    """Return the function that reads sounds in training, with the masks that a config names; as
    they are without one.
    """

    def read(
        vectors: np.ndarray, lengths: np.ndarray, numbers: np.ndarray, draw: Draw
    ) -> np.ndarray:
        if config is None or not config.augment:
            return vectors
        return masked(vectors, lengths, config, numbers, draw)

    return read


def masked(
    vectors: np.ndarray, lengths: np.ndarray, config: DataConfig, numbers: np.ndarray, draw: Draw
) -> np.ndarray:
    """Return the vectors [N C] of sounds, given their lengths and numbers [n], with all masks that
    the config names, as often as it names them.
    """
    hidden = np.zeros(vectors.shape, bool)
    for place, name in enumerate(config.augment):
        mask = pick(MASKS, name, "config.data.augment")
        hidden |= mask(vectors, lengths, config, (*draw, numbers, place))
    means = np.zeros(len(lengths))
    np.add.at(means, np.repeat(np.arange(len(lengths)), lengths), vectors.mean(1, dtype=np.float64))
    means = np.repeat(means / np.maximum(lengths, 1), lengths).astype(vectors.dtype)
    return np.where(hidden, means[:, None], vectors)


def _drawn(most: np.ndarray, size: np.ndarray, keys: tuple) -> tuple[np.ndarray, np.ndarray]:
    """Return the start and the size of a mask, of 0 to `most` out of `size` positions."""
    count = (uniform(*keys, 0) * (most + 1)).astype(np.int64)
    return (uniform(*keys, 1) * (size - count + 1)).astype(np.int64), count
