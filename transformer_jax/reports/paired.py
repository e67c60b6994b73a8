"""Paired significance tests that resample the units of a split: sentences, texts, windows,
pictures.

Paired bootstrap resampling (Koehn 2004) and paired approximate randomisation (Riezler and Maxwell
2005), with the draws and p-values of sacrebleu's command line, except that draws equal to the
observed difference also count: with scores of few units there are many, and a system must not
differ from itself. They come with the interval of the difference.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from transformer_jax.base.arrays import Float

# The count of each unit [T n] and the contributions of units [n k] -> T scores.
Score = Callable[[np.ndarray, np.ndarray], np.ndarray]

TESTS = {"bs": "paired bootstrap", "ar": "approximate randomisation"}  # sacrebleu's names
_DRAWS = {"bs": 1000, "ar": 10_000}  # sacrebleu's defaults
_SEED = 12345  # sacrebleu's
_AT_A_TIME = 2**22  # random numbers drawn at a time
_ROUNDING = 1e-9  # relative: treats sums in another order as equal


class Tested(NamedTuple):
    """The tests of a difference from a baseline."""

    p_values: dict[str, float]  # test -> p
    difference: tuple[float, float, float]  # and the ends of its 95 % interval


def of_sums(score: Callable[[np.ndarray], np.ndarray]) -> Score:
    """Return a score given as a function of sums over units, [T k] -> [T]."""
    return lambda counts, units: score(counts @ units)


def value(units: Float[np.ndarray, "n k"], score: Score) -> float:
    """Return the score of all units, each counted once."""
    return float(score(np.ones((1, len(units))), units)[0])


def half_interval(units: Float[np.ndarray, "n k"], score: Score, samples: int = 0) -> float:
    """Return half the width of the 95 % bootstrap interval of a score."""
    low, high = _ends(_bootstrap([units], score, samples)[0])
    return (high - low) / 2


def resampled(
    one: Float[np.ndarray, "n k"], other: Float[np.ndarray, "n k"], score: Score,
    tests: Sequence[str] = tuple(TESTS), samples: int = 0,
) -> Tested:  # fmt: skip
    """Return the tests of the difference of `other` from `one`, on the same units.

    `samples` 0 uses sacrebleu's defaults: 1000 resamples, 10,000 trials.
    """
    seen = value(other, score) - value(one, score)
    first, second = _bootstrap([one, other], score, samples)
    gaps = {"bs": np.abs(second - first) - np.nanmean(np.abs(second - first))}
    if "ar" in tests:
        gaps["ar"] = _exchanged(one, other, score, samples)
    p_values = {test: _p_value(gaps[test], abs(seen)) for test in tests}
    return Tested(p_values, (seen, *_ends(second - first)))


def blocks(units: Float[np.ndarray, "n k"], length: int) -> Float[np.ndarray, "m k"]:
    """Return the sums over blocks of `length` consecutive units, the last of which may be shorter.

    Windows of a series overlap, so their errors are correlated, as if there were fewer. Resampling
    therefore draws blocks of as many windows as one predicts rows (Kuensch 1989,
    https://doi.org/10.1214/aos/1176347265): windows of blocks that are not adjacent share no
    predicted row.
    """
    return units if length == 1 else np.add.reduceat(units, np.arange(0, len(units), length))


def _bootstrap(systems: Sequence[np.ndarray], score: Score, samples: int) -> np.ndarray:
    """Return the scores of each system on the same resamples [systems T]."""
    chance, count = np.random.default_rng(_SEED), len(systems[0])
    parts = []
    for rows in _parts(samples or _DRAWS["bs"], count):
        places = chance.choice(count, (rows, count)) + count * np.arange(rows)[:, None]
        counts = np.bincount(places.ravel(), minlength=rows * count).reshape(rows, count)
        parts.append([score(counts.astype(np.float64), units) for units in systems])
    return np.concatenate(parts, axis=1)


def _exchanged(one: np.ndarray, other: np.ndarray, score: Score, samples: int) -> np.ndarray:
    """Return the absolute differences of two systems whose units are swapped at random [T]."""
    chance, both = np.random.default_rng(_SEED), np.concatenate([one, other])
    parts = []
    for rows in _parts(samples or _DRAWS["ar"], len(one)):
        kept = chance.integers(2, size=(rows, len(one)), dtype=bool)
        sides = (
            np.concatenate(x, axis=1).astype(np.float64) for x in ((kept, ~kept), (~kept, kept))
        )
        first, second = (score(side, both) for side in sides)
        parts.append(np.abs(first - second))
    return np.concatenate(parts)


def _parts(samples: int, count: int) -> Iterator[int]:
    """Yield the numbers of draws per batch, multiples of 32 except the last: no random bits are
    then left over, and the draws equal those made all at once.
    """
    most = max(32, _AT_A_TIME // count // 32 * 32)
    for first in range(0, samples, most):
        yield min(most, samples - first)


def _p_value(gaps: np.ndarray, seen: float) -> float:
    """Return the share of draws, with the observed one, that are at least as large or undefined."""
    return float(np.sum(~(gaps < seen * (1 - _ROUNDING))) + 1) / (len(gaps) + 1)


def _ends(scores: np.ndarray) -> tuple[float, float]:
    """Return the interval that contains 95 % of the scores."""
    outside = len(scores) // 40
    order = np.sort(scores)
    return float(order[outside]), float(order[-1 - outside])
