"""`top_k` and `argmax` match those of JAX, including ties."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.decoding.search import top_k as searching

RNG = np.random.default_rng(0)
top_k = functools.partial(jax.jit, static_argnums=1)(searching.top_k)
argmax = jax.jit(searching.argmax)


def rows_of(size: int) -> np.ndarray:
    """Return rows without ties, with many, with nothing but ties, and mostly forbidden."""
    distinct = RNG.normal(size=(3, size))
    few = RNG.integers(0, 3, (3, size))
    same = np.zeros((1, size))
    forbidden = np.where(np.arange(size) < 2, np.float32(0), np.finfo(np.float32).min)[None]
    return np.concatenate([distinct, few, same, forbidden, forbidden[:, ::-1]]).astype(np.float32)


def summed(x, offset, banned):
    """Return the G V sums of each row, as float32, the banned ones minus infinity."""
    sums = x + offset[:, :, None]
    sums[:, :, : banned.shape[2]][banned] = -np.inf
    return sums.reshape(len(x), -1)


# Rows in one group and in four, divided into blocks evenly, with a remainder, and not at all.
@pytest.mark.parametrize(
    ("size", "k", "groups"),
    [(5, 3, 1), (5, 3, 4), (128, 1, 4), (129, 2, 1), (300, 3, 4), (384, 8, 1), (1009, 5, 4)],
)
def test_top_k(size, k, groups):
    """The values and places of the greatest sums; the first of equal ones."""
    x = np.stack([np.roll(rows_of(size), g, axis=0) for g in range(groups)], axis=1)
    banned = RNG.random((*x.shape[:2], 3)) < 0.4
    for offset in (np.zeros(x.shape[:2]), RNG.integers(-2, 2, x.shape[:2])):
        offset = offset.astype(np.float32)
        values, group, index = top_k(jnp.asarray(x), k, jnp.asarray(offset), jnp.asarray(banned))
        sums = summed(x, offset, banned)
        place = np.argsort(-sums, axis=-1, kind="stable")[:, :k]
        expected = np.take_along_axis(sums, place, axis=-1)
        np.testing.assert_array_equal(values, expected)
        real = np.isfinite(expected)
        np.testing.assert_array_equal(np.asarray(group * size + index)[real], place[real])


def test_top_k_of_minus_infinity():
    """Indices stay within the row where fewer than k entries are above minus infinity."""
    x = np.full((1, 1, 301), -np.inf, np.float32)
    x[0, 0, 300] = 0.0
    values, group, index = map(np.asarray, top_k(jnp.asarray(x), 4))
    assert (int(group[0, 0]), int(index[0, 0])) == (0, 300)
    assert np.isneginf(values[0, 1:]).all()
    assert (group == 0).all()
    assert (index < 301).all()


@pytest.mark.parametrize("size", [5, 300])
def test_argmax(size):
    """The same index as jnp.argmax: the first of equal entries."""
    x = rows_of(size)
    np.testing.assert_array_equal(argmax(jnp.asarray(x)), x.argmax(-1))
    stacked = np.stack([x, x[::-1]])
    np.testing.assert_array_equal(argmax(jnp.asarray(stacked)), stacked.argmax(-1))
