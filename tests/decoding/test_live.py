"""Sentences that arrive and leave while others are searched get the results they get alone."""

import functools
from collections import deque
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from decoding.plainly import assert_same, run, scored
from decoding.test_stream import ALWAYS, LONGEST, MOST, SEARCHES, STEPPERS, TOY, sentences
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh

from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.batching.batch_shapes import BatchShape, live_shapes
from transformer_jax.decoding.batching.engine import Engine
from transformer_jax.decoding.batching.live import LiveStream
from transformer_jax.decoding.batching.rows import Numbers, Rows
from transformer_jax.decoding.search.request import Form
from transformer_jax.decoding.search.sampling import Sampling
from transformer_jax.decoding.search.speculative import ByModel, Speculative

SHAPES = {
    "beam": [BatchShape(1, 3, 4), BatchShape(4, 3, 4), BatchShape(2, LONGEST, MOST)],
    "asked": [BatchShape(2, LONGEST, MOST)],
    "drafted": [BatchShape(2, LONGEST, MOST)],
    "crowded": [BatchShape(12, LONGEST, MOST)],  # more rows than a turn admits
}
DEVICES = 2
SEARCH = {
    "beam": SEARCHES["beam"],
    "asked": Sampling.of(DecodingConfig(beam_size=1)),  # each sentence with numbers of its own
    "drafted": Speculative(Sampling.of(DecodingConfig(beam_size=1)), ByModel(), 2),
    "crowded": SEARCHES["beam"],
}


@functools.cache
def live(name: str) -> LiveStream:
    mesh = Mesh(jax.devices()[:DEVICES], "rows")
    engine = Engine(lambda params: STEPPERS.get(name, TOY), mesh)
    return LiveStream(engine, mesh, SEARCH[name], (), SHAPES[name], Form(8, asked=True))


def go(stream: LiveStream, arriving, leaving=()):
    """Return results by number, while groups arrive and some numbers leave, turn by turn."""
    queue, found, steps = deque(arriving), {}, deque(leaving)
    waiting = []
    while queue or waiting or stream.numbers:
        if queue:
            waiting += queue.popleft()
        for number, tokens, scores in stream.turn(waiting):
            assert number not in found
            found[number] = scored(tokens, scores)
        waiting = [(n, s) for n, s in waiting if n not in found and n not in stream.numbers]
        for number in steps.popleft() if steps else ():
            stream.release(number)
            assert number not in stream.numbers
    return found


def grouped(some, sizes):
    numbered = list(enumerate(some))
    for size in sizes:
        yield numbered[:size]
        numbered = numbered[size:]
    yield numbered


@pytest.mark.thorough
@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    st.lists(sentences, max_size=12),
    st.lists(st.integers(0, 5), max_size=6),
    st.lists(st.sets(st.integers(0, 13), max_size=3), max_size=6),
)
def test_arrivals_and_departures_do_not_change_results(some, sizes, leaving):
    """Sentences that stay get the results of a batch of their own."""
    some = [s._replace(numbers=Numbers(wanted=2)) for s in ALWAYS + some]
    found = go(live("beam"), grouped(some, sizes), leaving)
    gone = set().union(*leaving)
    assert found.keys() >= set(range(len(some))) - gone
    padded = [*some, *[ALWAYS[0]._replace(limit=0)] * 16][:16]
    expected = run(SEARCHES["beam"], padded, TOY, LONGEST, MOST, prefix=8)
    chosen = sorted(found)
    # The reference search makes the best two exact, which is what is requested here.
    assert_same([found[n][:2] for n in chosen], [expected[n][:2] for n in chosen])


ASKED = [
    {"beam_size": 1},
    {"search": "sample", "temperature": 1.5, "top_k": 3, "top_p": 0.8, "seed": 7},
    {"search": "sample", "top_p": 0.9, "seed": 5, "num_samples": 3},
    {"beam_size": 1, "repetition_penalty": 3.0},
    {"search": "sample", "min_p": 0.1, "repetition_penalty": 0.5, "seed": 3},
]


def numbers_of(config: DecodingConfig, temperature: float, lane: int = 0) -> Numbers:
    """Return the numbers of a sentence that is searched with a config."""
    return Numbers(1, temperature, config.top_k, config.top_p, config.min_p,
                   config.repetition_penalty, config.seed, lane)  # fmt: skip


def step(stream: LiveStream, numbers):
    """Advance by one step, in which nothing finishes, with short sentences of these numbers."""
    stream._each = dict.fromkeys(stream._each, 1.0)
    assert not list(stream.turn((number, ALWAYS[0]) for number in numbers))


@pytest.mark.parametrize(("ratio", "enough"), [(1.5, 4), (3, 8)])
@pytest.mark.parametrize(("more", "rows"), [(-1, 1), (0, 1), (1, 4), (2, 4)])
def test_all_sentences_share_the_smallest_suitable_batch(monkeypatch, ratio, enough, more, rows):
    """One row on each of two devices for up to four, or for eight where a step of the next batch
    takes three times as long as theirs; the others stay empty.
    """
    stream = live("beam")
    monkeypatch.setattr(stream, "_seconds_per_step", lambda batch: ratio ** (batch.shape.rows > 1))
    monkeypatch.setattr(stream, "_enough", dict(stream._enough))
    stream._measure()
    step(stream, range(enough + more))
    used = [batch.shape.rows for batch in stream._batches if (batch.owners >= 0).any()]
    for number in stream.numbers:
        stream.release(number)
    assert used == [rows]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("name", "expected"), [("beam", [0, 0, 3]), ("crowded", [3])])
def test_steps_are_measured_where_there_is_room_for_them(monkeypatch, name, expected):
    """By a clock on which a call takes 7 seconds and each step 3; no sentence is left behind."""
    stream, clock, drain = live(name), [0], Rows.drain

    def timed(rows, queues, size, wake, steps):
        clock[0] += 7 + 3 * steps
        return drain(rows, queues, size, wake, steps)

    monkeypatch.setattr(Rows, "drain", timed)
    now = SimpleNamespace(perf_counter=lambda: clock[0])
    monkeypatch.setattr("transformer_jax.decoding.batching.live.time", now)
    assert [stream._seconds_per_step(batch) for batch in stream._batches] == expected
    assert not stream.numbers


@pytest.mark.parametrize(("crowd", "stay", "joined"), [(9, 2, 4), (9, 1, 1)])
def test_a_new_sentence_joins_the_running_batch(crowd, stay, joined):
    """Even if what remains would fit a smaller one, unless that fills at most a quarter of it."""
    stream = live("beam")
    step(stream, range(crowd))
    for number in range(stay, crowd):
        stream.release(number)
    step(stream, [crowd])
    (there,) = [batch.shape.rows for batch in stream._batches if crowd in batch.owners]
    for number in stream.numbers:
        stream.release(number)
    assert there == joined


@pytest.mark.thorough
def test_each_sentence_has_its_own_sampling_options():
    """Greedy texts and samples of any temperature, side by side, match separate searches."""
    some, expected = [], []
    for number, fields in enumerate(ASKED):
        config = DecodingConfig(**fields)
        source = ALWAYS[0]._replace(seed=number, limit=7)
        (row,) = run(Sampling.of(config), [source._replace(prefix=())], TOY, LONGEST, MOST)
        expected += [[one] for one in row]
        temperature = config.temperature if config.search == "sample" else 0.0
        some += [
            source._replace(
                prefix=(),
                numbers=numbers_of(config, temperature, n),
            )
            for n in range(config.hypotheses)
        ]
    found = go(live("asked"), grouped(some, [1, 3]))
    assert_same([found[n] for n in range(len(some))], expected)


@pytest.mark.thorough
def test_drafts_respect_the_sampling_options_of_each_sentence():
    """Greedy texts match those without a draft; samples match a separate drafted search."""
    some = [ALWAYS[0]._replace(seed=seed, limit=7, prefix=()) for seed in range(4)]
    config = DecodingConfig(search="sample", temperature=1.5, top_k=3, seed=7)
    rule = Sampling.of(config)
    drafted = Speculative(rule, ByModel(), 2), some, STEPPERS["drafted"]
    greedy = Sampling.of(DecodingConfig(beam_size=1)), some, TOY
    expected = [x for search in (drafted, greedy) for x in run(*search, LONGEST, MOST)]
    sampled = numbers_of(config, config.temperature)
    asked = [s._replace(numbers=n) for n in (sampled, Numbers()) for s in some]
    found = go(live("drafted"), grouped(asked, [2, 5]))
    assert_same([found[n] for n in range(8)], expected)


def test_partial_texts_are_available_after_each_step():
    """The final text begins with each of them; a row that is released is free at once."""
    stream = live("asked")
    waiting, done = [(3, ALWAYS[1]._replace(numbers=Numbers()))], []
    seen = [np.zeros(0, int)]
    while not done:
        stream._each = dict.fromkeys(stream._each, 1.0)  # one step a turn
        done, waiting = list(stream.turn(waiting, {3})), []
        for number, tokens in stream.written():
            assert number == 3
            seen.append(tokens[0])
    assert len(seen) >= MOST - 1
    for part in seen:
        np.testing.assert_array_equal(done[0][1][0, : len(part)], part)
    few = [(n, ALWAYS[0]) for n in range(stream.capacity + 3)]
    stream._each = dict.fromkeys(stream._each, 1.0)  # or a fast machine finishes some at once
    list(stream.turn(few))
    assert 0 < len(stream.numbers) <= stream.capacity
    for number in stream.numbers:
        stream.release(number)
    assert not stream.numbers
    stream._each = dict.fromkeys(stream._each, 1.0)  # one step a turn
    assert not list(stream.turn(few[:1]))
    assert stream.numbers == {0}
    stream.release(0)


@pytest.mark.parametrize("positions", [64, 1 << 30])
def test_live_shapes(positions):
    """The last shape holds the longest source and output, so every source fits some shape."""
    for longest, most in ((7, 5), (30, 80), (64, 64), (128, 178)):
        shapes = live_shapes(longest, most, 8, positions)
        assert shapes[-1].src_length >= min(longest, positions)
        assert shapes[-1].room >= min(most, positions)
        assert shapes == sorted(shapes, key=lambda shape: (shape[1:], shape.rows))
        assert len(shapes) <= 6
