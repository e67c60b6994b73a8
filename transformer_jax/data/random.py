"""Counter-based random numbers: functions of the seed, the epoch and the item."""

from typing import Any, NamedTuple

import numpy as np


class Draw(NamedTuple):
    """The random stream of examples: that of a training epoch, or by default of validation."""

    seed: int = 0
    epoch: int = 0


VALIDATION = Draw()


def random(*numbers: Any) -> np.ndarray:
    """Return 64 random bits for each tuple of integers, from arrays that broadcast.

    Uses the finaliser of splitmix64 (Steele et al. 2014, https://doi.org/10.1145/2714064.2660195).
    """
    state = np.zeros(1, np.uint64)
    for number in numbers:
        state = (state ^ np.asarray(number).astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        state ^= state >> np.uint64(31)
    return state


def uniform(*numbers: Any) -> np.ndarray:
    """Return a number in [0, 1) for each tuple of integers; see `random`."""
    return (random(*numbers) >> np.uint64(11)) * 2.0**-53


def normal(count: int, *numbers: Any) -> np.ndarray:
    """Return `count` standard normal numbers, float32 [n count], for each tuple of integers, from
    arrays [n] that broadcast (Box and Muller 1958): two of each 64 random bits.
    """
    half = -(-count // 2)
    bits = random(*(np.asarray(x)[..., None] for x in numbers), np.arange(half))
    high, low = bits >> np.uint64(32), bits & np.uint64(2**32 - 1)
    length = np.sqrt(-2 * np.log((high + 0.5) * 2.0**-32))
    angle = low * (2 * np.pi * 2.0**-32)
    both = np.concatenate([length * np.cos(angle), length * np.sin(angle)], -1)
    return both[..., :count].astype(np.float32)
