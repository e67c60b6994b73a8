"""Slots in chunks: writes reach the right one, and those without a filled slot are not read."""

import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.nn import chunks
from transformer_jax.nn.cache import KeysValues, Lanes
from transformer_jax.nn.chunks import Chunks
from transformer_jax.nn.mixers import dense

RNG, FLOAT = np.random.default_rng(0), jnp.dtype("float32")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(chunks, "_SMALL", 4)


def numbers(*shape: int):
    return jnp.asarray(RNG.normal(size=shape), FLOAT)


def test_writes_are_those_of_one_piece():
    """Slots of several chunks at once, and one beyond the last, which is dropped."""
    ours = Chunks.empty(2, 10, 1, 3, 2, FLOAT)
    whole = KeysValues(ours.keys, ours.values)
    for slots in ([[0, 4, 9], [5, 1, 10]], [[1, 2, 3], [9, 8, 7]]):
        new = KeysValues(numbers(2, 1, 3, 3), numbers(2, 1, 3, 2))
        ours, whole = (x.write(jnp.array(slots), new) for x in (ours, whole))
    assert [part.keys.shape[3] for part in ours.parts] == [5, 5]
    np.testing.assert_array_equal(ours.keys, whole.keys)
    np.testing.assert_array_equal(ours.values, whole.values)


@pytest.mark.parametrize(("slots", "sizes"), [(0, [0]), (7, [7]), (9, [5, 4]), (100, [34, 34, 32])])
def test_there_are_few_chunks(slots, sizes):
    cache = Chunks.empty(1, slots, 1, 2, 2, FLOAT)
    assert [part.keys.shape[3] for part in cache.parts] == sizes


def test_chunks_without_a_filled_slot_are_not_read():
    """What they hold does not matter, not even NaN, until a token is written to them."""
    lanes, cache = Lanes.empty(2, 2, 4), Chunks.empty(2, 8, 1, 3, 2, FLOAT)
    first, second = cache.parts
    poison = KeysValues(second.keys + jnp.nan, second.values + jnp.nan)
    cache, active, found = Chunks((first, poison)), jnp.array([True, False]), []
    for position in range(3):
        pos = jnp.array([[position], [3]])  # the second sentence is done
        lanes, slots = lanes.fill(pos, active, "causal")
        cache = cache.write(slots.number, KeysValues(numbers(2, 1, 3, 2), numbers(2, 1, 2, 2)))
        found.append(dense.mix_parts(numbers(2, 1, 2, 3), cache.parts, slots.view, lambda w: w)[0])
    assert np.isfinite(found[0][0]).all()
    assert np.isfinite(found[1][0]).all()
    assert np.isnan(found[2][0]).all()
