"""Random chains of points in space, each a distance of 1 from the last, that avoid themselves: a
stand-in for the chains of proteins, whose distances follow from few of them by triangles alone.
"""

from functools import cache

import numpy as np

from transformer_jax.config import DataConfig
from transformer_jax.data.sources.spelled_numbers import SPLITS

_SEED = 20210715  # the corpus is the same for every experiment
_APART = 1.0  # of points that are not neighbours, at least
_TRIES = 100  # directions of a step, before a chain begins anew


def load(config: DataConfig, split: str) -> tuple[list[np.ndarray], list[str]]:
    """Return the chains of a split, float32 [points 3], each around its mean, and no labels."""
    sizes, number = config.num_examples, SPLITS.index(split)
    least, most = config.example_lengths
    made = list(_drawn(number, sizes[number], least, most))
    return made, [""] * len(made)


@cache
def _drawn(split: int, count: int, least: int, most: int) -> tuple[np.ndarray, ...]:
    """Return `count` chains whose numbers of points are between the bounds."""
    chance = np.random.default_rng((_SEED, split, least, most))
    lengths = chance.integers(least, most, count, endpoint=True)
    points = np.zeros((count, most, 3))
    built = np.ones(count, np.int64)  # points of each chain; the first is the origin
    tries = np.zeros(count, np.int64)
    while (open_ := np.flatnonzero(built < lengths)).size:
        step = chance.standard_normal((len(open_), 3))
        step /= np.linalg.norm(step, axis=1, keepdims=True)
        tip = points[open_, built[open_] - 1] + step
        apart = np.linalg.norm(points[open_] - tip[:, None], axis=2)
        earlier = np.arange(most) < built[open_, None] - 1
        free = (np.where(earlier, apart, np.inf) >= _APART).all(1)
        chosen = open_[free]
        points[chosen, built[chosen]] = tip[free]
        built[chosen] += 1
        tries[open_] = np.where(free, 0, tries[open_] + 1)
        stuck = open_[tries[open_] > _TRIES]
        built[stuck], tries[stuck] = 1, 0
    return tuple(
        (chain[:length] - chain[:length].mean(0)).astype(np.float32)
        for chain, length in zip(points, lengths, strict=True)
    )
