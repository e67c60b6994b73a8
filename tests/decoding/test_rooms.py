"""How a search makes room for tokens changes nothing but its speed."""

import pytest
from decoding.test_translate import DECODING, LINES, assert_same, parts, translate

from transformer_jax.decoding import beam, greedy
from transformer_jax.decoding.stepper import rooms
from transformer_jax.decoding.translate import Translator


@pytest.mark.parametrize("mode", DECODING)
def test_growing_changes_nothing(mode, monkeypatch):
    """A cache that grows in the middle of a search leads to the same translations and scores."""
    for module in (beam, greedy):
        monkeypatch.setattr(module, "rooms", lambda src_length, length: [1, 4, 5, length])
    model, params, tokenizers = parts()
    growing = Translator(model, tokenizers, DECODING[mode]).translate(params, LINES)
    assert max(len(item.ids) for item in growing) > 5  # or the last room was never entered
    assert_same(growing, translate(mode, 1000, LINES))


def test_rooms_end_with_the_length():
    """Rooms grow, and the last one holds the longest output."""
    for src_length in (1, 8, 30, 256):
        for length in (1, 8, 40, 300):
            found = rooms(src_length, length)
            assert found[-1] == length
            assert found == sorted(set(found))
