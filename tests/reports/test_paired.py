"""Paired tests against enumeration, SciPy and their nominal error rate."""

import itertools

import numpy as np
import pytest
from scipy import stats

from transformer_jax.config.metrics import PREDICTION, TRANSLATION
from transformer_jax.reports import paired
from transformer_jax.reports.paired import blocks, half_interval, of_sums, resampled, value
from transformer_jax.reports.units import UNITS, correlation, ranks

RATIO = of_sums(lambda sums: sums[:, 0] / np.maximum(sums[:, 1], 1))


def counted(values) -> np.ndarray:
    return np.stack([values, np.ones(len(values))], 1)


def drawn(seed: int, count: int, k: int = 2) -> list[np.ndarray]:
    return [*np.random.default_rng(seed).integers(1, 9, (2, count, k)).astype(float)]


@pytest.mark.parametrize("seed", range(4))
def test_approximate_randomisation_matches_enumeration(seed):
    """All 256 exchanges are tried; the tolerance is four standard deviations of 10,000 draws."""
    one, other = drawn(seed, 8)
    seen = abs(value(other, RATIO) - value(one, RATIO))
    found = []
    for kept in itertools.product([True, False], repeat=8):
        sides = (np.where(np.array(x)[:, None], one, other) for x in (kept, ~np.array(kept)))
        first, second = (side[:, 0].sum() / side[:, 1].sum() for side in sides)
        found.append(abs(first - second) >= seen - 1e-12)
    exact = np.mean(found)
    p = resampled(one, other, RATIO, ["ar"]).p_values["ar"]
    assert p == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 10_000) ** 0.5 + 1e-4)


def test_bootstrap_intervals_match_scipy():
    """Both are random; bounds from 1000 resamples are accurate to some 5 % of the width."""
    one, other = drawn(5, 200)
    found = resampled(one, other, RATIO, ["bs"])
    whole = lambda i: (other[i].sum(0) @ [1, 0] / other[i, 1].sum()  # noqa: E731
                       - one[i].sum(0) @ [1, 0] / one[i, 1].sum())  # fmt: skip
    expected = stats.bootstrap(
        (np.arange(200),), whole, vectorized=False, n_resamples=4000, method="percentile", rng=0
    ).confidence_interval
    width = expected.high - expected.low
    assert found.difference[1:] == pytest.approx((expected.low, expected.high), abs=0.08 * width)
    mean = counted(one[:, 0])
    normal = 1.96 * one[:, 0].std() / 200**0.5
    assert half_interval(mean, RATIO) == pytest.approx(normal, rel=0.08)


def test_a_better_system_is_detected_and_an_equal_one_is_not():
    one, other = (counted(x[:, 0]) for x in drawn(6, 300))
    for units, least, most in ((other + np.array([2, 0]), 0, 0.01), (one, 1, 1)):
        found = resampled(one, units, RATIO)
        assert all(least <= p <= most for p in found.p_values.values())
    assert found.difference == (0, 0, 0)
    # A gain of one in a single unit shows nothing, however often the others agree.
    other = one.copy()
    other[7, 0] += 1
    assert resampled(one, other, RATIO, ["ar"]).p_values == {"ar": 1.0}


def test_equal_systems_are_seldom_called_different():
    """One in twenty are; over 200 cases the tolerance is three standard deviations."""
    chance = np.random.default_rng(7)
    called = 0
    for _ in range(200):
        one, other = (counted(x) for x in chance.normal(size=(2, 40)))
        called += max(resampled(one, other, RATIO, samples=200).p_values.values()) < 0.05
    assert called <= 10 + 3 * 3.1


def test_overlapping_windows_are_drawn_in_blocks():
    """Each sums 20 of the same numbers: taken as independent, they look like far more evidence."""
    chance = np.random.default_rng(8)
    wrong = {1: 0, 20: 0}
    for _ in range(60):
        numbers = chance.normal(size=(2, 619))
        sides = [counted(np.convolve(x, np.ones(20), "valid")) for x in numbers]
        for length in wrong:
            one, other = (blocks(side, length) for side in sides)
            wrong[length] += resampled(one, other, RATIO, ["ar"], 200).p_values["ar"] < 0.05
    assert wrong[20] <= 9  # three expected
    assert wrong[1] >= 30
    assert blocks(np.arange(10.0).reshape(5, 2), 2).tolist() == [[2, 4], [10, 12], [8, 9]]


def test_drawing_a_few_at_a_time_gives_the_same_result(monkeypatch):
    one, other = drawn(9, 33)
    found = resampled(one, other, RATIO)
    monkeypatch.setattr(paired, "_AT_A_TIME", 33 * 64)
    assert resampled(one, other, RATIO) == found


def test_correlations_of_repeated_units_match_scipy():
    chance = np.random.default_rng(10)
    x, y = chance.integers(0, 6, (2, 30)).astype(float)
    counts = chance.integers(0, 4, (5, 30)).astype(float)
    pearson = correlation(counts, x, y)
    spearman = correlation(counts, ranks(counts, x), ranks(counts, y))
    for row, one, other in zip(counts.astype(int), pearson, spearman, strict=True):
        repeated = np.repeat(x, row), np.repeat(y, row)
        assert one == pytest.approx(stats.pearsonr(*repeated).statistic)
        assert other == pytest.approx(stats.spearmanr(*repeated).statistic)


def test_every_unit_has_a_direction():
    """The exception is the share of numbers in an interval, which should equal the nominal one."""
    known = {**TRANSLATION, **PREDICTION}.keys() | {"coverage"}
    assert known >= {name for table in UNITS.values() for name in table}
