"""How sentences flow through batches changes nothing but the speed."""

import dataclasses
import itertools

import jax
import pytest
from decoding.test_translate import DECODING, LINES, assert_same, parts, translate

from transformer_jax.decoding import stream
from transformer_jax.decoding.ladder import Rung, ladder
from transformer_jax.decoding.translate import Translator


def by_way_of(rungs, mode, devices, monkeypatch):
    """Return translations by way of the given rungs."""
    monkeypatch.setattr(stream, "ladder", lambda *_: rungs)
    model, params, tokenizers = parts()
    config = dataclasses.replace(DECODING[mode])
    return Translator(model, tokenizers, config, devices=jax.devices()[:devices]).translate(
        params, LINES * 3
    )


LONGEST, MOST = 25, 31
PATHS = {
    "refilled one by one": [Rung(2, LONGEST, MOST)],
    "paused again and again": [
        Rung(3, 6, 1), Rung(2, 9, 4), Rung(4, LONGEST, 5), Rung(1, LONGEST, MOST)
    ],
    "growing among others": [Rung(8, 6, 8), Rung(16, LONGEST, MOST)],
    "shares": [Rung(16, 8, 7), Rung(4, LONGEST, 9), Rung(9, LONGEST, MOST)],
}  # fmt: skip


@pytest.mark.parametrize("mode", DECODING)
@pytest.mark.parametrize(("path", "devices"), [*((p, 1) for p in PATHS), ("shares", 4)])
def test_ways_do_not_matter(path, devices, mode, monkeypatch):
    """Refilling, pausing, moving up and sharing among devices lead to the same translations."""
    found = by_way_of(PATHS[path], mode, devices, monkeypatch)
    expected = translate(mode, 1000, LINES) * 3
    assert max(len(item.ids) for item in expected) > 9  # or the last rung would never be needed
    assert_same(found, expected)


@pytest.mark.parametrize("budget", [1, 64, 4096])
@pytest.mark.parametrize("devices", [1, 4])
def test_ladder(budget, devices):
    """Every sentence has a rung; rooms grow; the last rung holds the longest output."""
    for lengths in ([3], [40, 2, 17], [5] * 1000, range(1, 900)):
        limits = [n + 50 for n in lengths]
        rungs = ladder(list(lengths), limits, 4, budget, devices)
        assert rungs[-1].src_length >= max(lengths)
        assert rungs[-1].room >= max(limits)
        for below, above in itertools.pairwise(rungs):
            assert below.src_length <= above.src_length
            assert below.room <= above.room
        for rung in rungs:
            assert rung.rows == 1 or rung.rows * rung.src_length * 4 <= budget
            assert rung.rows * devices < len(lengths) + 8 * devices
