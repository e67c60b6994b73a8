"""Correlations are SciPy's."""

import math

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from transformer_jax.evaluation.values import correlation, ranks


@pytest.mark.parametrize("decimals", [0, 6])
def test_correlations_are_those_of_scipy(decimals):
    """With ties and without."""
    generator = np.random.default_rng(decimals)
    one = generator.normal(size=40).round(decimals)
    other = (one + generator.normal(size=40)).round(decimals)
    assert correlation(one, other) == pytest.approx(pearsonr(one, other)[0])
    assert correlation(ranks(one), ranks(other)) == pytest.approx(spearmanr(one, other)[0])


def test_numbers_that_are_all_the_same_have_none():
    assert math.isnan(correlation(np.ones(3), np.arange(3.0)))
