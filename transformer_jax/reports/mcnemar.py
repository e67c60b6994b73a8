"""McNemar's test of whether one system is right more often than another on a split."""

import math

import numpy as np

from transformer_jax.base.arrays import Bool
from transformer_jax.evaluation.metrics import NORMAL
from transformer_jax.reports.paired import Tested


def mcnemar(one: Bool[np.ndarray, " n"], other: Bool[np.ndarray, " n"]) -> Tested:
    """Return the test of the other system against the first; the difference is in points."""
    better, worse = int((other & ~one).sum()), int((one & ~other).sum())
    return Tested({"mcnemar": p_value(better, worse)}, of_shares(better, worse, len(one)))


def p_value(better: int, worse: int) -> float:
    """Return the probability, if both systems are right equally often, that the texts on which only
    one is right are divided at least as unevenly as these: McNemar's test (1947,
    https://doi.org/10.1007/BF02295996) with the binomial distribution, exact for few texts.
    """
    count, fewer = better + worse, min(better, worse)
    ways = term = 1
    for k in range(fewer):
        term = term * (count - k) // (k + 1)
        ways += term
    return min(ways / 2 ** (count - 1), 1.0) if count else 1.0


def of_shares(better: int, worse: int, count: int) -> tuple[float, float, float]:
    """Return the difference of two accuracies in points, and the ends of its 95 % interval for
    paired data by Bonett and Price (2012, https://doi.org/10.3102/1076998611411915).
    """
    up, down = ((n + 1) / (count + 2) for n in (better, worse))
    half = NORMAL * math.sqrt((up + down - (up - down) ** 2) / (count + 2))
    ends = (max(-1.0, up - down - half), min(1.0, up - down + half))
    return 100 * (better - worse) / count, 100 * ends[0], 100 * ends[1]
