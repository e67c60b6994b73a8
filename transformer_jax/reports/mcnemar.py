"""Is one system right more often than another? McNemar's test over the units of a split."""

import math

import numpy as np

from transformer_jax.arrays import Bool
from transformer_jax.evaluation.metrics import NORMAL
from transformer_jax.reports.paired import Tested


def mcnemar(one: Bool[np.ndarray, " n"], other: Bool[np.ndarray, " n"]) -> Tested:
    """Return the test of how much more often the other is right, in points."""
    better, worse = int((other & ~one).sum()), int((one & ~other).sum())
    return Tested({"mcnemar": p_value(better, worse)}, of_shares(better, worse, len(one)))


def p_value(better: int, worse: int) -> float:
    """Return the probability, if both are right equally often, of texts on which one alone is right
    being shared as unevenly as these or more: McNemar's test (1947,
    https://doi.org/10.1007/BF02295996) by the binomial distribution, which is exact for few texts.
    """
    count, fewer = better + worse, min(better, worse)
    ways = term = 1
    for k in range(fewer):
        term = term * (count - k) // (k + 1)
        ways += term
    return min(ways / 2 ** (count - 1), 1.0) if count else 1.0


def of_shares(better: int, worse: int, count: int) -> tuple[float, float, float]:
    """Return the difference of two accuracies in points, and the ends of its 95 % interval, as
    Bonett and Price have it for paired data (2012, https://doi.org/10.3102/1076998611411915).
    """
    up, down = ((n + 1) / (count + 2) for n in (better, worse))
    half = NORMAL * math.sqrt((up + down - (up - down) ** 2) / (count + 2))
    ends = (max(-1.0, up - down - half), min(1.0, up - down + half))
    return 100 * (better - worse) / count, 100 * ends[0], 100 * ends[1]
