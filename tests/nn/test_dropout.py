"""Dropout: a fair, independent mask that is a function of key and index alone."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import MeshConfig
from transformer_jax.nn.dropout import Dropout, dropped, keep
from transformer_jax.sharding.mesh import make_mesh, rows_over_data

SHAPE = (64, 50, 40)
COUNT = math.prod(SHAPE)
SIGMAS = 4.5  # a fair mask exceeds this in one of 150,000 comparisons; there are about 200 here


def mask(seed: int, rate: float, shape=SHAPE) -> np.ndarray:
    return np.asarray(keep(jax.random.key_data(jax.random.key(seed)), shape, rate))


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.corrcoef(one.ravel(), other.ravel())[0, 1])


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.3, 0.5, 0.9])
def test_the_share_of_zeros_is_the_rate(rate):
    """As a whole, and in each row and column."""
    kept = mask(0, rate)
    for axes in ((0, 1, 2), (1, 2), (0, 2), (0, 1)):
        shares = kept.mean(axes)
        sigma = math.sqrt(rate * (1 - rate) * shares.size / COUNT)
        assert np.abs(shares - (1 - rate)).max() <= SIGMAS * sigma


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_keys_are_independent(rate):
    """Masks of different keys, of neighbouring key words too, do not correlate."""
    words = [(0, 0), (0, 1), (1, 0), (1, 1), (2**31, 0), (0, 2**31), (1234567, 7654321)]
    masks = [np.asarray(keep(jnp.array(pair, jnp.uint32), SHAPE, rate)) for pair in words]
    for number, one in enumerate(masks):
        for other in masks[:number]:
            assert abs(correlation(one, other)) < SIGMAS / math.sqrt(COUNT)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_neighbours_are_independent(rate):
    """An element tells nothing about those one or two steps away along any axis."""
    kept = mask(0, rate)
    for axis in range(3):
        for step in (1, 2):
            size = SHAPE[axis]
            near = correlation(
                kept.take(range(size - step), axis), kept.take(range(step, size), axis)
            )
            assert abs(near) < SIGMAS / math.sqrt(COUNT * (1 - step / size))


def test_the_mask_is_the_same_on_every_mesh():
    """A mask computed in 8 shards is the mask computed whole."""
    rows = rows_over_data(make_mesh(MeshConfig()))
    words = jax.random.key_data(jax.random.key(3))
    sharded = jax.jit(lambda words: keep(words, SHAPE, 0.2), out_shardings=rows)(words)
    assert len(sharded.sharding.device_set) == 8
    np.testing.assert_array_equal(sharded, keep(words, SHAPE, 0.2))


def test_dropout_preserves_the_mean_and_is_off_in_evaluation():
    """In training, elements are zero or scaled to preserve the mean; otherwise nothing happens."""
    x = jnp.asarray(np.random.default_rng(0).normal(1.0, 1.0, SHAPE), jnp.float32)
    rngs = {"dropout": jax.random.key(0)}
    y = np.asarray(Dropout(0.3).apply({}, x, train=True, rngs=rngs))
    kept = y != 0
    assert kept.mean() == pytest.approx(0.7, abs=SIGMAS * math.sqrt(0.21 / COUNT))
    np.testing.assert_allclose(y[kept], np.asarray(x)[kept] / 0.7, rtol=1e-6)
    variance = (1 + 1) / 0.7 - 1  # of an element of y
    assert y.mean() == pytest.approx(1, abs=SIGMAS * math.sqrt(variance / COUNT))
    np.testing.assert_array_equal(Dropout(0.3).apply({}, x, train=False), x)
    np.testing.assert_array_equal(Dropout(0.0).apply({}, x, train=True, rngs=rngs), x)


def test_the_gradient_has_the_same_mask():
    """It is computed again in the backward pass, not stored: only the key's words are."""
    x = jnp.ones((30, 20))
    words = jax.random.key_data(jax.random.key(5))
    y, pull = jax.vjp(lambda x: dropped(x, words, 0.4), x)
    np.testing.assert_array_equal(pull(jnp.ones_like(x))[0], y)
    assert sum(leaf.size for leaf in jax.tree.leaves(pull)) < x.size
