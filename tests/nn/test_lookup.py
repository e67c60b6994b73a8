"""Sums of a table's gradients by index, in the order of a GPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.base import arrays
from transformer_jax.nn import lookup


@pytest.mark.parametrize("positions", [1, 127, 128, 129, 1000])
@pytest.mark.parametrize("size", [1, 7, 3000])
def test_sums_equal_those_of_numpy(positions, size):
    """Whether an index occurs once, several times in a block, or through several blocks; indices
    beyond the table count for nothing.
    """
    chance = np.random.default_rng(positions * size)
    index = chance.integers(0, size + 1, positions)
    index[chance.random(positions) < 0.4] = size // 2
    rows = chance.normal(size=(positions, 3))
    expected = np.zeros((size + 1, 3))
    np.add.at(expected, index, rows)
    with jax.enable_x64(True):
        sums = jax.jit(lookup.sums_by_index, static_argnums=2)
        found = sums(jnp.asarray(index), jnp.asarray(rows), size)
        assert found.dtype == jnp.float64
    np.testing.assert_allclose(found, expected[:size], rtol=0, atol=1e-12)


def test_the_gradient_is_that_of_indexing(monkeypatch):
    """On a GPU, too; of a bfloat16 gradient, sums are float32."""
    monkeypatch.setattr(lookup, "on_gpu", lambda: True)
    chance = np.random.default_rng(0)
    table = jnp.asarray(chance.normal(size=(9, 4)), jnp.float32)
    index = jnp.asarray(chance.integers(0, 9, (30, 20)))
    away = jnp.asarray(chance.normal(size=(30, 20, 4)), jnp.bfloat16)

    def total(look_up, table):
        return (look_up(table, index).astype(jnp.bfloat16) * away).astype(jnp.float32).sum()

    found = jax.jit(jax.grad(lambda table: total(lookup.look_up, table)))(table)
    expected = jax.grad(lambda table: total(lambda table, index: table[index], table))(table)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_rows_are_copied_bit_for_bit(dtype):
    """Infinities, NaN and negative zeros too; rows past the end are dropped."""
    chance = np.random.default_rng(0)
    values = np.where(chance.random((9, 5)) < 0.3, -0.0, chance.normal(size=(9, 5)))
    values[3], values[4] = np.inf, np.nan
    table = jnp.asarray(values, dtype)
    found = jax.jit(arrays.take_rows)(table, jnp.asarray([[3, 8], [4, 0]]))
    bits = lambda x: np.asarray(x).tobytes()  # noqa: E731
    assert bits(found) == bits(np.asarray(table)[[[3, 8], [4, 0]]])
    put = jax.jit(arrays.put_rows)(table, table[3:5], jnp.asarray([0, 9]))
    expected = np.asarray(table).copy()
    expected[0] = expected[3]
    assert bits(put) == bits(expected)


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="other compilers convert nothing")
def test_copying_rows_converts_no_table():
    table, rows = jnp.ones((1000, 8), jnp.bfloat16), jnp.ones((2, 8), jnp.bfloat16)
    index = jnp.asarray([1, 2])
    for copied in (
        jax.jit(arrays.take_rows).lower(table, index),
        jax.jit(arrays.put_rows).lower(table, rows, index),
    ):
        assert "f32[1000,8]" not in copied.compile().as_text()
    assert "f32[1000,8]" in jax.jit(lambda x, i: x[i]).lower(table, index).compile().as_text()
