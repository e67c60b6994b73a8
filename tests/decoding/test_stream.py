"""How sentences flow through batches changes nothing but the speed."""

import functools
import itertools

import jax
import pytest
from decoding.plainly import assert_same, run, scored
from decoding.toy import Toy
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh

from transformer_jax.config import DecodingConfig
from transformer_jax.decoding import stream as room
from transformer_jax.decoding.beam import BeamSearch
from transformer_jax.decoding.engine import Engine
from transformer_jax.decoding.ladder import Rung, ladder
from transformer_jax.decoding.stream import Sentence, stream
from transformer_jax.decoding.walk import Walk
from transformer_jax.vocabulary import UNK

TOY, LONGEST, MOST = Toy(vocab=9), 6, 9
SEARCHES = {
    "beam": BeamSearch.of(
        DecodingConfig(beam_size=3, coverage_penalty=0.2, no_repeat_ngram=2, alpha=1.0), 2, (5,)
    ),
    "sample": Walk.of(DecodingConfig(search="sample", num_samples=2, top_p=0.8)),
}
LADDERS = {
    "refilled one by one": [Rung(2, LONGEST, MOST)],
    "paused again and again": [Rung(3, 2, 1), Rung(2, 4, 4), Rung(1, LONGEST, MOST)],
    "growing among others": [Rung(8, 3, 4), Rung(16, LONGEST, MOST)],
    "in shares": [Rung(16, 3, 3), Rung(4, LONGEST, 5), Rung(9, LONGEST, MOST)],
}
WAYS = [
    ("beam", "paused again and again", 2),
    ("beam", "in shares", 1),
    ("beam", "growing among others", 8),
    ("sample", "refilled one by one", 1),
    ("sample", "growing among others", 2),
]

sentences = st.builds(
    Sentence,
    ids=st.lists(st.integers(1, 99), min_size=1, max_size=LONGEST).map(tuple),
    limit=st.integers(0, MOST),
    least=st.integers(0, MOST),
    prefix=st.lists(st.integers(UNK, TOY.vocab - 1), max_size=3).map(tuple),
    seed=st.integers(0, 1000),
)
# Crowds, so that there is much refilling, pausing and moving up; few, so that rows stay empty.
crowds = st.one_of(
    st.lists(sentences, min_size=30, max_size=60), st.lists(sentences, min_size=1, max_size=5)
)
# Two that are always there: one with a prefix, and one that fills the last rung's room.
ALWAYS = [Sentence((3, 1), 5, 0, (4,), 7), Sentence((9,) * LONGEST, MOST, MOST, (), 8)]


@functools.cache
def engine(devices: int) -> Engine:
    mesh = Mesh(jax.devices()[:devices], "rows")
    return Engine(lambda params: TOY, mesh)


def streamed(name: str, devices: int, rungs, sentences):
    """Return what is found for each sentence, by way of the given rungs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "ladder", lambda *_: rungs)
        found = list(stream(engine(devices), SEARCHES[name], (), sentences, 1))
    assert sorted(item.number for item in found) == list(
        range(len(sentences))
    )  # none lost, none twice
    found.sort()
    return [scored(item.tokens, item.scores) for item in found]


@pytest.mark.parametrize(("name", "way", "devices"), WAYS)
def test_ways_do_not_matter(name, way, devices):
    """Refilled, paused, moved up, shared among devices: all find what one batch at a time finds."""

    @settings(max_examples=8, deadline=None, derandomize=True)
    @given(crowds)
    def test(some):
        some = ALWAYS + some
        found = streamed(name, devices, LADDERS[way], some)
        expected = []
        for start in range(0, len(some), 16):
            part = [*some[start : start + 16], *[Sentence((1,), 0)] * 16][:16]
            expected += run(SEARCHES[name], part, TOY, LONGEST, MOST, prefix=8)
        assert_same(found, expected[: len(some)])

    test()


def test_streams_of_their_own():
    """One stream after another, of none and of some, leave nothing behind for the next."""
    assert streamed("beam", 1, LADDERS["in shares"], []) == []
    twice = [streamed("beam", 1, LADDERS["in shares"], ALWAYS * 9) for _ in range(2)]
    assert twice[0] == twice[1]
    assert all(row == twice[0][place % 2] for place, row in enumerate(twice[0]))


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
