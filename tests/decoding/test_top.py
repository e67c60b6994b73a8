"""`top_k` and `argmax` are those of jax, also where entries are equal."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.decoding.top import argmax, top_k

RNG = np.random.default_rng(0)


def rows_of(size: int) -> np.ndarray:
    """Return rows without equal entries, with many, with none but equal, and mostly forbidden."""
    distinct = RNG.normal(size=(3, size))
    few = RNG.integers(0, 3, (3, size))
    same = np.zeros((1, size))
    forbidden = np.where(np.arange(size) < 2, np.float32(0), np.finfo(np.float32).min)[None]
    return np.concatenate([distinct, few, same, forbidden, forbidden[:, ::-1]]).astype(np.float32)


# One block of 128 or several, as many as k or more, the last one full or not.
@pytest.mark.parametrize(("size", "k"), [(5, 3), (128, 1), (129, 1), (300, 3), (384, 2), (1000, 5)])
def test_top_k(size, k):
    """The same values and the same indices as jax.lax.top_k: of equal entries the first ones."""
    x = jnp.asarray(rows_of(size))
    for ours, theirs in zip(top_k(x, k), jax.lax.top_k(x, k), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_top_k_of_minus_infinity():
    """Indices stay within the row where fewer than k entries are above minus infinity."""
    x = jnp.full((1, 300), -jnp.inf).at[0, [0, 299]].set(0.0)
    np.testing.assert_array_equal(top_k(x, 2)[1], [[0, 299]])
    x = x.at[0, 0].set(-jnp.inf)
    np.testing.assert_array_equal(top_k(x, 2)[1], [[299, 0]])


@pytest.mark.parametrize("size", [5, 300])
def test_argmax(size):
    """The same index as jnp.argmax: of equal entries the first one."""
    x = rows_of(size)
    np.testing.assert_array_equal(argmax(jnp.asarray(x)), x.argmax(-1))
    stacked = np.stack([x, x[::-1]])
    np.testing.assert_array_equal(argmax(jnp.asarray(stacked)), stacked.argmax(-1))
