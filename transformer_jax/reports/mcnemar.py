"""Is one classifier right more often than another? McNemar's test over the texts of a split."""

import math
from collections.abc import Sequence

from transformer_jax.evaluation.metrics import NORMAL, interval
from transformer_jax.reports.compare import Result, System


def accuracy_tests(systems: Sequence[System], references: Sequence[str]) -> list[Result]:
    """Return the accuracy of each system, and the test against the first of them."""
    results = []
    right = [
        [said == true for said, true in zip(system.hypotheses, references, strict=True)]
        for system in systems
    ]
    for system, found in zip(systems, right, strict=True):
        low, high = interval(sum(found), len(found))
        half, p_values, difference = 50 * (high - low), {}, None
        if system is not systems[0]:
            pairs = list(zip(found, right[0], strict=True))
            better, worse = (sum(pair == x for pair in pairs) for x in ((1, 0), (0, 1)))
            p_values = {"mcnemar": p_value(better, worse)}
            difference = of_shares(better, worse, len(pairs))
        accuracy = 100 * sum(found) / len(found)
        results.append(Result("accuracy", system.name, accuracy, half, p_values, difference))
    return results


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
