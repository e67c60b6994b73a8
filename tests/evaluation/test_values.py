"""Correlations match those of SciPy."""

import math

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from transformer_jax.evaluation.values import correlation, ranks


@pytest.mark.parametrize("decimals", [0, 6])
def test_correlations_match_scipy(decimals):
    """With and without ties."""
    generator = np.random.default_rng(decimals)
    one = generator.normal(size=40).round(decimals)
    other = (one + generator.normal(size=40)).round(decimals)
    assert correlation(one, other) == pytest.approx(pearsonr(one, other)[0])
    assert correlation(ranks(one), ranks(other)) == pytest.approx(spearmanr(one, other)[0])


def test_constant_values_have_no_correlation():
    assert math.isnan(correlation(np.ones(3), np.arange(3.0)))
