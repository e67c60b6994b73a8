"""Searches in other processes find what they find here, whatever happens to these processes."""

import dataclasses
import multiprocessing
import os
import signal
import threading
import time
import types

import jax
import numpy as np
import pytest
from decoding.lines import LINES, parts

from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.batching.rows import Sentence
from transformer_jax.decoding.text.live import live_translation, numbered
from transformer_jax.decoding.text.translate import Translator
from transformer_jax.server.processes import spread
from transformer_jax.server.processes.child import Searcher, Texts
from transformer_jax.server.processes.pool import SearchPool
from transformer_jax.server.processes.spread import SpreadStream

KEY = 1, "k"
MANY = [line for line in LINES if line.strip()] * 4


# --- a stream alone, with processes that only note what they are sent ---


class Process:
    def __init__(self) -> None:
        self.models, self.texts, self.sent, self.ended = {KEY[0]}, 0, [], False

    def send(self, *message):
        self.sent.append(message)

    @property
    def admitted(self):
        items = [message[3] for message in self.sent if message[0] == "admit"]
        return [number for some in items for number, _ in some]


class Pool:
    def __init__(self, count: int) -> None:
        self.processes = [Process() for _ in range(count)]
        self.news = threading.Event()

    def forget(self):
        pass


PLAN = types.SimpleNamespace(shapes=[types.SimpleNamespace(rows=2)])


def made(count: int = 2) -> tuple[SpreadStream, list[Process]]:
    pool = Pool(count)
    return SpreadStream(pool, *KEY, PLAN), pool.processes


def texts(*numbers):
    return [(number, Sentence((3,), 1)) for number in numbers]


def found(number):
    return number, np.full((1, 2), number), np.zeros(1)


def test_sentences_go_to_the_process_with_the_fewest():
    stream, (one, two) = made()
    assert not list(stream.turn(texts(1, 2, 3)))
    assert (one.admitted, two.admitted) == ([1, 3], [2])
    stream.hear(one, "found", *found(1))
    stream.hear(one, "found", *found(3))
    assert [number for number, *_ in stream.turn()] == [1, 3]
    assert stream.numbers == {2}
    list(stream.turn(texts(4, 5)))
    assert (one.admitted, two.admitted) == ([1, 3, 4, 5], [2])
    stream.release(4)
    assert one.sent[-1] == ("release", *KEY, 4)
    list(stream.turn(texts(6)))
    assert one.admitted[-1] == 6
    assert (one.texts, two.texts) == (2, 1)


def test_each_process_gets_at_most_twice_its_rows():
    """The others stay where they can still be overtaken."""
    stream, (one, two) = made()
    list(stream.turn(texts(*range(20))))
    assert (len(one.admitted), len(two.admitted)) == (4, 4)
    assert stream.numbers == set(range(8))


def test_only_processes_with_the_model_get_sentences():
    stream, (one, two) = made()
    one.models.clear()
    list(stream.turn(texts(1, 2)))
    assert (one.admitted, two.admitted) == ([], [1, 2])
    two.models.clear()
    list(stream.turn(texts(3)))
    assert stream.numbers == {1, 2}


@pytest.mark.parametrize("how", ["failed", "ended"])
def test_sentences_of_a_failed_search_start_again_once(how):
    """If it fails again, nobody knows which of them is to blame."""
    stream, (one, two) = made()
    list(stream.turn(texts(1, 2)))
    stream.hear(one, how, "it failed")
    two.models.clear()
    list(stream.turn())
    assert stream.numbers == {1, 2}
    list(stream.turn())
    assert one.admitted == [1, 1]
    list(stream.turn(texts(3)))
    stream.hear(two, how, "it failed")  # 2 has not failed before
    list(stream.turn())
    stream.hear(one, how, "it failed")
    with pytest.raises(RuntimeError, match="it failed"):
        list(stream.turn())


def test_late_messages_are_ignored():
    """Of released sentences, and of those that were searched twice."""
    stream, (one, two) = made()
    list(stream.turn(texts(1, 2)))
    stream.release(1)
    stream.hear(one, "found", *found(1))
    stream.hear(one, "written", [(1, np.ones((1, 1), int)), (2, np.ones((1, 1), int))])
    assert not list(stream.turn())
    assert [number for number, _ in stream.written()] == [2]
    assert not list(stream.written())
    stream.hear(one, "found", *found(2))
    stream.hear(two, "found", *found(2))
    assert len(list(stream.turn())) == 1
    assert (one.texts, two.texts) == (0, 0)


def test_watched_sentences_are_named():
    stream, (one,) = made(1)
    list(stream.turn(texts(1, 2), {2, 7}))
    assert one.sent[0][-1] == [2]


def test_without_processes_a_turn_fails():
    stream, _ = made(0)
    with pytest.raises(RuntimeError, match="all search processes have ended"):
        list(stream.turn(texts(1)))


def test_a_turn_ends_when_it_is_woken(monkeypatch):
    stream, _ = made()
    list(stream.turn(texts(1)))
    monkeypatch.setattr(spread, "_MOMENT", 600.0)
    threading.Timer(0.01, stream.wake).start()
    began = time.monotonic()
    list(stream.turn())
    assert time.monotonic() - began < 300


class Failing:
    """A stream that fails if it has anything to do."""

    numbers = frozenset()

    def turn(self, waiting, watched):
        raise MemoryError("no room")
        yield


def test_a_failed_search_is_reported_and_restarted():
    """What its stream had is for the parent to send again."""
    _, connection = multiprocessing.Pipe()
    searcher, plan = Searcher(connection), types.SimpleNamespace(stream=lambda: "renewed")
    searcher._loaded(1, {"k": plan}, {"k": Texts(Failing())})
    searcher._admit(*KEY, texts(1, 2), [])
    searcher._turn(KEY, searcher._texts[KEY])
    assert searcher._outbox.get() == ("loaded", 1, None)
    name, *key, reason = searcher._outbox.get()
    assert (name, tuple(key)) == ("failed", KEY)
    assert "no room" in reason
    assert searcher._texts[KEY] == Texts("renewed")


# --- real processes ---


@pytest.fixture(scope="module")
def pool():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
        found = SearchPool(2)
        yield found
        found.close()


@pytest.fixture(scope="module")
def translator():
    model, params, tokenizers = parts()
    one = jax.local_devices()[:1]
    return Translator(model, tokenizers, DecodingConfig(beam_size=2), devices=one), params


@pytest.fixture(scope="module")
def streams(pool, translator):
    found = pool.add({"translate": live_translation(*translator, 2)})
    found.compile()
    return found


def sentences(translator: Translator) -> list[Sentence]:
    return [numbered(part, translator.config, 1) for part in translator.sentences(MANY, None, 1)]


def go(stream, some, after=lambda done: None) -> dict[int, np.ndarray]:
    """Return the tokens of each sentence; `after` is called with how many are found."""
    waiting, done, end = list(enumerate(some)), {}, time.monotonic() + 120
    while len(done) < len(some):
        assert time.monotonic() < end
        done |= {number: tokens for number, tokens, _ in stream.turn(waiting)}
        waiting = [(n, s) for n, s in waiting if n not in done and n not in stream.numbers]
        after(len(done))
    return done


def texts_of(translator: Translator, found: dict[int, np.ndarray]) -> list[str]:
    ids = [found[number][0].tolist() for number in sorted(found)]
    return [translator.translations(np.array([one]), np.zeros(1))[0].text for one in ids]


@pytest.mark.thorough
def test_processes_translate_as_this_one_does(translator, streams):
    who, params = translator
    expected = [found.text for found in who.translate(params, MANY)]
    assert texts_of(who, go(streams.streams["translate"], sentences(who))) == expected


@pytest.mark.thorough
def test_a_killed_process_is_replaced_and_nothing_is_lost(translator, streams, pool, caplog):
    who, params = translator
    expected = [found.text for found in who.translate(params, MANY)]
    before, left = pool.processes, [1]

    def kill(done: int) -> None:
        if done and left:
            os.kill(pool.processes[left.pop()]._process.pid, signal.SIGKILL)

    assert texts_of(who, go(streams.streams["translate"], sentences(who), kill)) == expected
    end = time.monotonic() + 60
    while len(pool.processes) < 2 or not all(process.models for process in pool.processes):
        assert time.monotonic() < end
        time.sleep(0.05)
    assert "a search process ended, exit code -9; starting another" in caplog.text
    assert pool.processes != before
    assert texts_of(who, go(streams.streams["translate"], sentences(who))) == expected


@pytest.mark.thorough
def test_a_model_that_nobody_uses_is_dropped(translator, streams, pool):
    other = pool.add({"translate": live_translation(*translator, 1)})
    other.compile()
    assert all(len(process.models) == 2 for process in pool.processes)
    del other
    list(streams.streams["translate"].turn())
    assert all(len(process.models) == 1 for process in pool.processes)
    assert len(pool._plans) == 1


@pytest.mark.thorough
def test_a_model_that_cannot_be_made_is_an_error(translator, pool):
    plan = dataclasses.replace(live_translation(*translator, 1), params=[])
    broken = pool.add({"translate": plan})
    with pytest.raises(RuntimeError, match="Error"):
        broken.compile()
