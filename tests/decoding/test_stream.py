"""The way sentences flow through batches changes nothing but speed."""

import functools
import itertools

import jax
import pytest
from decoding.plainly import assert_same, run, scored
from decoding.toy import Toy
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh

from transformer_jax.base.vocabulary import BOS, UNK
from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.batching import stream as room
from transformer_jax.decoding.batching.batch_shapes import BatchShape, batch_shapes
from transformer_jax.decoding.batching.engine import Engine
from transformer_jax.decoding.batching.stream import Sentence, stream
from transformer_jax.decoding.search.beam import BeamSearch
from transformer_jax.decoding.search.sampling import Sampling
from transformer_jax.decoding.search.speculative import ByModel, Speculative
from transformer_jax.decoding.stepper import Drafted

TOY, LONGEST, MOST = Toy(vocab=9), 6, 9
SEARCHES = {
    "beam": BeamSearch.of(
        DecodingConfig(beam_size=3, coverage_penalty=0.2, no_repeat_ngram=2, alpha=1.0), 2, (5,)
    ),
    "sample": Sampling.of(DecodingConfig(search="sample", num_samples=2, top_p=0.8)),
    "drafted": Speculative(Sampling.of(DecodingConfig(search="sample")), ByModel(), 2),
}
SEARCHES["shortlisted"] = SEARCHES["beam"]
STEPPERS = {"drafted": Drafted(TOY, Toy(vocab=9, salt=1))}
SHAPES = {
    "paused again and again": [
        BatchShape(3, 2, 1),
        BatchShape(2, 4, 4),
        BatchShape(1, LONGEST, MOST),
    ],
    "growing among others": [BatchShape(8, 3, 4), BatchShape(16, LONGEST, MOST)],
    "in shares": [BatchShape(16, 3, 3), BatchShape(9, LONGEST, MOST)],
}
WAYS = [
    ("beam", "paused again and again", 2),
    ("beam", "in shares", 1),
    ("sample", "growing among others", 8),
    pytest.param("drafted", "paused again and again", 2, marks=pytest.mark.thorough),
    pytest.param("shortlisted", "paused again and again", 2, marks=pytest.mark.thorough),
]

sentences = st.builds(
    Sentence,
    ids=st.lists(st.integers(1, 99), min_size=1, max_size=LONGEST).map(tuple),
    limit=st.integers(0, MOST),
    least=st.integers(0, MOST),
    prefix=st.lists(st.integers(UNK, TOY.vocab - 1), max_size=3).map(tuple),
    seed=st.integers(0, 1000),
    first=st.just(BOS),
    words=st.integers(0, 9),
    shortlist=st.none(),
)
# Many, for much refilling, pausing and moving up; or few, so that rows stay empty.
crowds = st.one_of(
    st.lists(sentences, min_size=30, max_size=60), st.lists(sentences, min_size=1, max_size=5)
)
# Two that are always present: one with a prefix, and one that fills the last shape.
ALWAYS = [Sentence((3, 1), 5, 0, (4,), 7), Sentence((9,) * LONGEST, MOST, MOST, (), 8)]


@functools.cache
def engine(devices: int, name: str) -> Engine:
    mesh = Mesh(jax.devices()[:devices], "rows")
    return Engine(lambda params: STEPPERS.get(name, TOY), mesh)


def shortlisted(sentence: Sentence) -> Sentence:
    """Return a sentence with its own shortlist: the special pieces, two others and its prefix."""
    own = {*range(UNK + 1), *sentence.prefix, 4 + sum(sentence.ids) % 5, 4 + sum(sentence.ids) % 4}
    others = [piece for piece in range(UNK, TOY.vocab) if piece not in own]
    return sentence._replace(shortlist=sorted([*own, *others][: UNK + 4]))


def streamed(name: str, devices: int, shapes, sentences):
    """Return what is found for each sentence when streamed through the given shapes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(room, "batch_shapes", lambda *_: shapes)
        found = list(stream(engine(devices, name), SEARCHES[name], (), sentences, 1))
    found.sort(key=lambda item: item[0])
    assert [number for number, *_ in found] == list(range(len(sentences)))  # none lost, none twice
    return [scored(tokens, scores) for _, tokens, scores in found]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("name", "way", "devices"), WAYS)
def test_streaming_matches_one_batch_at_a_time(name, way, devices):
    """Even if sentences are refilled, paused, moved up and distributed over devices."""

    @settings(max_examples=8, deadline=None, derandomize=True)
    @given(crowds)
    def test(some):
        some = ALWAYS + some
        if name == "shortlisted":
            some = [shortlisted(sentence) for sentence in some]
        found = streamed(name, devices, SHAPES[way], some)
        expected = []
        for start in range(0, len(some), 16):
            part = [*some[start : start + 16], *[some[0]._replace(limit=0)] * 16][:16]
            stepper = STEPPERS.get(name, TOY)
            expected += run(SEARCHES[name], part, stepper, LONGEST, MOST, prefix=8)
        assert_same(found, expected[: len(some)])

    test()


@pytest.mark.thorough
def test_successive_streams_are_independent():
    """A stream, empty or not, leaves nothing behind for the next."""
    assert streamed("beam", 1, SHAPES["in shares"], []) == []
    twice = [streamed("beam", 1, SHAPES["in shares"], ALWAYS * 9) for _ in range(2)]
    assert twice[0] == twice[1]
    assert all(row == twice[0][place % 2] for place, row in enumerate(twice[0]))


@pytest.mark.parametrize("budget", [1, 64, 4096])
@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("few", [False, True])
def test_batch_shapes(budget, devices, few):
    """Every sentence fits some shape; rooms grow; the last one holds the longest output."""
    for lengths in ([3], [40, 2, 17], [5] * 1000, range(1, 900)):
        limits = [n + 50 for n in lengths]
        shapes = batch_shapes(list(lengths), limits, 4, budget, devices, few=few)
        assert len(shapes) <= 2 or not few
        assert shapes[-1].src_length >= max(lengths)
        assert shapes[-1].room >= max(limits)
        for below, above in itertools.pairwise(shapes):
            assert below.src_length <= above.src_length
            assert below.room <= above.room
        for shape in shapes:
            assert shape.rows == 1 or shape.rows * shape.src_length * 4 <= budget
            assert shape.rows * devices < len(lengths) + 8 * devices
