"""Whether the best point of a sweep is better by more than the effect of the seed."""

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from transformer_jax.config.metrics import TRANSLATION, VALIDATION, Metric

_SCORES = (*VALIDATION.values(), *TRANSLATION.values())
_PER_CENT = {metric.title for metric in _SCORES} - {VALIDATION["loss"].title}
_NEAR_ZERO = 1.0  # of a score out of 100: below this, hardly a word is right
_SEEDS = 1.0  # how much runs that differ only in the seed may differ, in a score out of 100
_SEEDS_RATIO = 0.03  # the same for any other score, relative


def verdict(rows: Sequence[dict[str, Any]], by: str, metric: Metric) -> dict[str, Any]:
    """Return {"best": the name of the best setting's best point, or None, "why": a sentence}.

    `rows` are those of a sweep's table, the best first, and `by` the column that ranks them. Points
    that differ only in the seed count as one setting, and their spread measures the noise; those
    whose training has not come to its end count only where a setting has no other.
    """
    groups: dict[tuple, list[float]] = defaultdict(list)
    names: dict[tuple, str] = {}
    measured = [row for row in rows if row["measured"].get(by) is not None]
    trained = {_setting(row) for row in measured if row["trained"]}
    for row in measured:
        key = _setting(row)
        if row["trained"] or key not in trained:
            groups[key].append(row["measured"][by])
            names.setdefault(key, row["name"])
    if not groups:
        return {"best": None, "why": f"No point has a {by} yet."}
    order = sorted(groups, key=lambda key: -metric.gain(statistics.fmean(groups[key])))
    ranked = [groups[key] for key in order]
    first = statistics.fmean(ranked[0])
    if metric.title in _PER_CENT and metric.greater_is_better and first < _NEAR_ZERO:
        why = f"No best point is named: no {by} is above {max(map(max, ranked)):.2g}, near zero."
        return {"best": None, "why": why}
    if len(ranked) > 1:
        second, noise = statistics.fmean(ranked[1]), _noise(ranked[0], ranked[1], metric)
        if abs(first - second) <= noise:
            why = (
                f"No best point is named: the first two settings differ by "
                f"{abs(first - second):.2g} {by}, and another seed alone may change it by "
                f"{noise:.2g}."
            )
            return {"best": None, "why": why}
    return {"best": names[order[0]], "why": f"Best by {by}: {names[order[0]]}."}


def _setting(row: dict[str, Any]) -> tuple:
    """Return the settings of a row without its seed."""
    return tuple((path, value) for path, value in row["settings"].items() if path != "seed")


def _noise(one: Sequence[float], other: Sequence[float], metric: Metric) -> float:
    """Return the difference of two means that seeds alone explain in 95 of 100 cases, if there are
    several seeds, else a rule of thumb: what they explain on Multi30k (results/).
    """
    if min(len(one), len(other)) > 1:
        from scipy import stats  # takes long to import

        error = math.sqrt(sum(statistics.variance(x) / len(x) for x in (one, other)))
        return float(stats.t.ppf(0.975, len(one) + len(other) - 2)) * error
    return _SEEDS if metric.title in _PER_CENT else _SEEDS_RATIO * abs(statistics.fmean(one))
