"""Comparison of systems by paired tests over the sentences, texts or windows of a split.

`units` defines what each of them contributes to a score, and the test of that score. The tests
apply to these outputs on similar sentences, not to other seeds of the same recipe: train several
for that.
"""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config.metrics import PREDICTION, TRANSLATION
from transformer_jax.config.registry import pick
from transformer_jax.evaluation.metrics import METRICS, interval, sentence_metric
from transformer_jax.reports.mcnemar import mcnemar
from transformer_jax.reports.paired import TESTS, Tested, blocks, half_interval, resampled, value
from transformer_jax.reports.systems import System, check
from transformer_jax.reports.units import Unit, units

TITLES = {**TESTS, "mcnemar": "McNemar's exact test"}


def shown_p(p: float) -> str:
    """Return a p-value as `compare` and reports print it; one that rounds to 0 is not 0."""
    return "p < 0.0001" if p < 0.00005 else f"p = {p:.4f}"


class Result(NamedTuple):
    """One metric of one system, and the tests of its difference from the baseline."""

    metric: str
    system: str
    score: float
    interval: float  # half the width of its 95 % interval
    p_values: dict[str, float]  # test -> p; {} for the baseline
    # From the baseline, and the ends of its 95 % interval; None for the baseline itself.
    difference: tuple[float, float, float] | None = None

    @property
    def different(self) -> bool:
        """Whether every test finds p < 0.05."""
        return bool(self.p_values) and max(self.p_values.values()) < 0.05


class Difference(NamedTuple):
    """One sentence under two systems."""

    line: int  # from 1
    gain: float  # of the second over the first, in the metric's points; positive is better
    reference: str
    one: str
    other: str


def testable(system: System) -> list[str]:
    """Return the scores written by eval.py that have a paired test.

    Raises:
      UserError: if there are none.
    """
    known = units(system.kind, system.evaluation)
    names = [name for name in system.scores if name in known]
    if not names:
        raise UserError(
            f"{system.name}: has no score that can be tested; set --metric to one of "
            f"{', '.join(known)}"
        )
    return names


def paired_tests(
    systems: Sequence[System], references: Sequence[str] | None, names: Sequence[str],
    tests: Sequence[str] = tuple(TESTS), samples: int = 0,
) -> list[Result]:  # fmt: skip
    """Return the results of each metric and system; the first system is the baseline.

    `tests` are the resampling tests; `samples` 0 uses sacrebleu's defaults: 1000 resamples, 10,000
    trials.

    Raises:
      UserError: if a metric has no test, or eval.py did not store its parts.
    """
    results = []
    for name in names:
        unit = pick(units(systems[0].kind, systems[0].evaluation), name, "--metric")
        numbers = [contributed(system, references, unit) for system in systems]
        for i, (system, own) in enumerate(zip(systems, numbers, strict=True)):
            score = value(own, unit.score)
            if unit.right_or_wrong:
                low, high = interval(own[:, 0].sum(), len(own))
                half = 50 * (high - low)
            else:
                half = half_interval(own, unit.score, samples)
            tested = _tested(numbers[0], own, unit, tests, samples) if i else ({}, None)
            results.append(Result(name, system.name, score, half, *tested))
    return results


def against_first(systems: Sequence[System], samples: int = 0) -> list[Result]:
    """Return the tests of every other system that can be compared with the first, on all scores
    that both have, from the rows that eval.py stored; see `paired_tests`.
    """
    tests = []
    for other in systems[1:]:
        with contextlib.suppress(UserError):
            check([systems[0], other], None)
            names = [name for name in testable(other) if name in systems[0].scores]
            for name in names if systems[0].rows and other.rows else ():
                with contextlib.suppress(UserError):  # an older version did not store its parts
                    pair = [systems[0], other]
                    tests.append(paired_tests(pair, None, [name], samples=samples)[1])
    return tests


def _tested(
    one: np.ndarray, other: np.ndarray, unit: Unit, tests: Sequence[str], samples: int
) -> Tested:
    if unit.right_or_wrong:
        return mcnemar(one[:, 0] > 0, other[:, 0] > 0)
    return resampled(one, other, unit.score, tests, samples)


def contributed(system: System, references: Sequence[str] | None, unit: Unit) -> np.ndarray:
    """Return what each unit of a system contributes to a score [n k].

    Raises:
      UserError: if the system was scored by an older version that did not store it.
    """
    rows = _rows(system, references)
    try:
        return blocks(np.asarray(unit.of([*rows] or [{}]), np.float64), system.block)
    except KeyError as error:
        raise UserError(
            f"{system.name}: was scored by an older version, which did not store {error.args[0]} "
            f"for each text or window; run again: {system.command}"
        ) from None


def _rows(system: System, references: Sequence[str] | None) -> Sequence[dict[str, Any]]:
    if references is None or system.hypotheses is None:
        return system.rows
    pairs = zip(system.hypotheses, references, strict=True)
    texts = [{"hypothesis": said, "reference": true} for said, true in pairs]
    kept = system.rows or [{}] * len(texts)
    return [row | text for row, text in zip(kept, texts, strict=True)]


def differences(
    one: System, other: System, references: Sequence[str] | None, name: str
) -> list[Difference]:
    """Return every sentence with the gain of `other` over `one`, the largest gain first."""
    sides = [_rows(system, references) for system in (one, other)]
    score, gain = _of_row(one, name), {**TRANSLATION, **PREDICTION}[name].gain
    rows = [
        Difference(i, gain(score(b) - score(a)), a["reference"], a["hypothesis"], b["hypothesis"])
        for i, (a, b) in enumerate(zip(*sides, strict=True), 1)
    ]
    return sorted(rows, key=lambda row: -row.gain)


def _of_row(system: System, name: str) -> Callable[[dict[str, Any]], float]:
    """Return a function that scores a single row."""
    if name in METRICS:
        metric = sentence_metric(name, system.evaluation)
        return lambda row: float(metric.sentence_score(row["hypothesis"], [row["reference"]]).score)
    unit = pick(units(system.kind, system.evaluation), name, "--metric")
    return lambda row: value(np.asarray(unit.of([row]), np.float64), unit.score)
