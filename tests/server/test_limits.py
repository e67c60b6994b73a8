"""Limits of the server: queue, deadlines, request sizes, disconnected clients and shutdown."""

import asyncio
import dataclasses
import json
import time
from types import SimpleNamespace

import numpy as np
import pytest

from transformer_jax.data.codecs.utf8 import Bytes
from transformer_jax.decoding.batching.rows import Sentence
from transformer_jax.server.http import Refusal
from transformer_jax.server.model import Asking
from transformer_jax.server.texts import Answer
from transformer_jax.server.tickets import Closed, Ended, Found, Full, Ticket, TooLarge, Worker

# --- the worker alone, with a stream whose texts finish on demand ---


class Paced:
    """A stream of `rows` rows that finishes one text per turn while `open`."""

    def __init__(self, rows: int = 1) -> None:
        self.rows, self.open, self.order, self.here = rows, False, [], []

    @property
    def numbers(self):
        return set(self.here)

    def takes(self, sentence):
        return True

    def turn(self, waiting=(), watched=()):
        self.watched = watched
        chosen = [n for n, _ in waiting][: self.rows - len(self.here)]
        self.here += chosen
        self.order += [s.line for n, s in waiting if n in chosen]
        time.sleep(0.001)
        if self.open and self.here:
            yield self.here.pop(0), np.ones((1, 2), int), np.zeros(1)

    def written(self):
        yield from ((n, np.ones((1, 1), int)) for n in self.here if n in self.watched)

    def wake(self):
        """A turn is short."""

    def release(self, number):
        self.here.remove(number)


class Model:
    def __init__(self, rows: int = 1) -> None:
        self.streams = {"k": Paced(rows)}
        self.renewed = 0
        self.trained = SimpleNamespace(tokenizers=SimpleNamespace(tgt=Bytes()))

    def renew(self, kind):
        self.renewed += 1
        self.streams[kind] = Paced()


@pytest.fixture
def worker():
    found = Worker(capacity=6)
    yield found
    found.close()


def ticket(model, lines, events, seconds=30.0, **given):
    sentences = [Sentence((3,), 1, line=line) for line in lines]
    return Ticket(model, "k", sentences, time.monotonic() + seconds, events.append, **given)


def until(condition, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_texts_are_searched_in_order_of_arrival(worker):
    """The later texts of a ticket queue further back, and those of low priority come last."""
    model, events = Model(), []
    paced = model.streams["k"]
    worker.submit(ticket(model, [0], events))
    until(lambda: paced.here)
    worker.submit(ticket(model, [1], events, low=True))
    worker.submit(ticket(model, [2, 3, 4], events))
    worker.submit(ticket(model, [5], events))
    paced.open = True
    until(lambda: len(events) == 6)
    assert paced.order == [0, 2, 5, 3, 4, 1]
    assert all(isinstance(event, Found) for event in events)


def test_the_queue_is_bounded(worker):
    model, events = Model(), []
    worker.submit(ticket(model, [0], events))
    until(lambda: worker.running)
    worker.submit(ticket(model, range(1, 6), events))
    with pytest.raises(Full) as full:
        worker.submit(ticket(model, [6, 7], events))
    assert 1 <= full.value.seconds <= 60
    worker.submit(ticket(model, [8], events))
    with pytest.raises(Full):
        worker.call(lambda: None)
    with pytest.raises(TooLarge):  # waiting would not help
        worker.submit(ticket(model, range(7), events))
    model.streams["k"].open = True
    until(lambda: len(events) == 7)


def test_a_deadline_frees_rows_and_places(worker):
    model, late, other = Model(), [], []
    worker.submit(ticket(model, [0, 1], late, seconds=0.05))
    worker.submit(ticket(model, [2], other))
    until(lambda: late)
    assert [event.status for event in late] == [504]
    until(lambda: model.streams["k"].order == [0, 2])
    model.streams["k"].open = True
    until(lambda: other)


def test_a_cancelled_ticket_frees_its_row(worker):
    model, gone, other = Model(), [], []
    leaving = ticket(model, [0, 1], gone)
    worker.submit(leaving)
    until(lambda: worker.running)
    worker.submit(ticket(model, [2], other))
    worker.cancel(leaving)
    until(lambda: model.streams["k"].order == [0, 2] and not worker.waiting)
    assert not gone


def broken(waiting, watched):
    raise ValueError("/secret/path")
    yield


def test_a_failed_search_ends_only_the_texts_being_searched(worker, caplog):
    """Waiting texts go on in the renewed stream."""
    model, events, others = Model(), [], []
    worker.submit(ticket(model, [0], events))
    until(lambda: worker.running)
    worker.submit(ticket(model, [1], others))
    model.streams["k"].turn = broken
    until(lambda: events and model.streams["k"].here)
    assert [event.status for event in events] == [500]
    assert "secret" not in events[0].message
    assert model.renewed == 1
    model.streams["k"].open = True
    until(lambda: others)
    assert isinstance(others[0], Found)
    assert worker.call(lambda: 7).result(20) == 7
    with pytest.raises(ZeroDivisionError):
        worker.call(lambda: 1 // 0).result(20)
    assert "a search failed; 1 texts are lost" in caplog.text


def test_a_waiting_text_gets_at_most_one_renewed_stream(worker):
    model, events = Model(), []

    def renew(kind):
        model.renewed += 1
        model.streams[kind] = Paced()
        model.streams[kind].turn = broken

    model.renew, model.streams["k"].turn = renew, broken
    worker.submit(ticket(model, [0], events))
    until(lambda: events)
    assert [event.status for event in events] == [500]
    assert model.renewed == 2


def test_closing_the_worker_ends_all_tickets(worker):
    events = []
    worker.submit(ticket(Model(), [0, 1], events))
    until(lambda: worker.running)
    worker.close()
    assert [(type(event), event.status) for event in events] == [(Ended, 503)]
    with pytest.raises(Closed):
        worker.submit(ticket(Model(), [0], events))


def test_a_cancelled_or_late_answer_leaves_nothing_running(worker):
    """A missed deadline is reported to the client."""
    model = Model()
    asking = Asking("k", [Sentence((3,), 1)])

    async def ask(seconds):
        with Answer(worker, model, asking, seconds) as answer:
            return await answer.found()

    async def main():
        with pytest.raises(Refusal) as refusal:
            await ask(0.02)
        assert refusal.value.status == 504
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await ask(20)

    asyncio.run(main())
    until(lambda: not worker.running)


# --- over HTTP ---


def post(client, body, path="/api/translate", **headers):
    return client.post(path, content=body, headers={"content-type": "application/json"} | headers)


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 400), (b"{", 400), (b"[1]", 400), (b'{"text": 1}', 400), (b'{"text": "\xff"}', 400),
     (b'{"text": "\\ud800"}', 400), (b'{"texts": ["a"], "text": "a"}', 400), (b"{}", 400),
     (b'{"text": "a", "n_best": 4}', 400), (b'{"text": "a", "n_best": 1e99}', 400),
     (b'{"text": "a", "timeout": 0}', 400), (b'{"text": "a", "nonsense": 1}', 400),
     (b'{"text": NaN}', 400), (b"[" * 9000, 400), (b'{"texts": ' + b"[" * 9000, 400),
     (b'{"text": "' + b"a" * 401 + b'"}', 413), (b'{"texts": ["a"' + b',"a"' * 9 + b"]}", 413),
     (b'{"text": "' + b"a" * 20_000 + b'"}', 413), (b'{"texts": []}', 200),
     (b'{"text": "\\u0000 \\u2028 \xf0\x9f\x98\x80"}', 200)],
    ids=lambda given: given[:20].hex() if isinstance(given, bytes) else None,
)  # fmt: skip
def test_request_bodies_are_validated(translating, body, status):
    answer = post(translating, body)
    assert answer.status_code == status, answer.text
    if status != 200:
        assert answer.json()["error"]["message"]
        assert "jSON" not in answer.text


def test_body_sizes_are_limited(translating):
    """With and without a content-length."""
    chunks = (b" " * 1000 for _ in range(10_000))
    assert translating.post("/api/translate", content=chunks).status_code == 413
    assert translating.post(
        "/api/translate", content=b"x" * 10_000_000
    ).status_code == 413  # fmt: skip
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert (
        translating.post("/translate", content=b"q=%ff&target=de", headers=form).status_code == 400
    )
    assert translating.post("/translate", content=b"a=1&" * 400, headers=form).status_code == 400


def test_unknown_paths_and_methods(translating):
    for path, status in (("/nowhere", 404), ("/api/../../etc/passwd", 404), ("/v1/nowhere", 404)):
        assert translating.get(path).status_code == status
    assert translating.get("/api/translate").status_code == 405
    assert translating.post("/v1/models").json()["error"]["type"] == "invalid_request_error"


SCOPE = {
    "type": "http", "method": "POST", "headers": [], "query_string": b"", "http_version": "1.1",
    "asgi": {"version": "3.0", "spec_version": "2.4"},
}  # fmt: skip


def call(app, body: bytes, path: str, leave):
    """Return what an application sends to a client that disconnects when `leave` says so."""
    sent = []

    async def main():
        given = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            if given:
                return given.pop()
            while not leave(sent):
                await asyncio.sleep(0.001)
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        await app(SCOPE | {"path": path}, receive, send)

    asyncio.run(main())
    return sent


def test_a_disconnect_stops_generation_at_once(writing, monkeypatch):
    """During a stream, and before the answer: the rows are free for others at once."""
    service = writing.service
    stream = service.model.streams["single"]
    turn = stream.turn

    def slowly(waiting, watched):
        time.sleep(0.05)
        stream._each = dict.fromkeys(stream._each, 1.0)  # one step per turn
        return turn(waiting, watched)

    monkeypatch.setattr(stream, "turn", slowly)
    body = {"prompt": "ab", "max_tokens": 10, "n": 4, "sample": True}
    seen = []
    monkeypatch.setattr(service.worker, "_seen", seen.append)
    whole = call(writing.app, json.dumps(body).encode(), "/api/generate", lambda sent: True)
    until(lambda: not service.worker.running and not service.worker.waiting)
    assert not seen
    streamed = call(
        writing.app, json.dumps(body | {"stream": True}).encode(), "/api/generate",
        lambda sent: len(sent) > 1,
    )  # fmt: skip
    until(lambda: not service.worker.running and not service.worker.waiting)
    assert len(seen) < 4
    assert whole[0]["status"] == 499
    assert streamed[0]["status"] == 200
    assert len(streamed) < 12


def test_slow_bodies_time_out(translating, monkeypatch):
    service = translating.service
    quick = dataclasses.replace(service.settings, patience=0.05)
    monkeypatch.setattr(service, "settings", quick)

    async def main():
        async def receive():
            await asyncio.sleep(9)

        sent = []

        async def send(message):
            sent.append(message)

        await translating.app(SCOPE | {"path": "/api/translate"}, receive, send)
        return sent

    assert asyncio.run(main())[0]["status"] == 408


def test_responses_to_a_full_queue_and_a_missed_deadline(writing, monkeypatch):
    """429 with Retry-After, and 504, in the format of the protocol."""
    service = writing.service
    stream = service.model.streams["single"]
    turn = stream.turn
    closed = True

    def slowly(waiting, watched):
        time.sleep(0.01)
        return iter(()) if closed else turn(waiting, watched)

    monkeypatch.setattr(stream, "turn", slowly)
    late = {"prompt": "ab", "timeout": 0.1}
    assert writing.post("/api/generate", json=late).json()["error"]["type"] == "deadline_exceeded"
    monkeypatch.setattr(service.worker, "_capacity", 3)
    waits = dataclasses.replace(ticket(service.model, [0, 1], []), kind="single")
    service.worker.submit(waits)
    body = {"model": "tiny", "prompt": "a", "n": 2}
    answer = writing.post("/v1/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (429, "rate_limit_error")
    assert int(answer.headers["retry-after"]) >= 1
    # With no room at all, before a request is read; others than searches are answered as ever.
    monkeypatch.setattr(service.worker, "_capacity", 2)
    for path, kind in (("/v1/completions", "rate_limit_error"), ("/api/generate", "overloaded")):
        answer = writing.post(path, content=b"not JSON")
        assert (answer.status_code, answer.json()["error"]["type"]) == (429, kind)
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.headers["cache-control"] == "no-store"
        assert writing.get(path).status_code == 405
    with monkeypatch.context() as patch:
        patch.setattr(service, "settings", dataclasses.replace(service.settings, key="k"))
        for given, status in (("Bearer k", 429), ("Bearer x", 401)):
            headers = {"authorization": given}
            assert writing.post("/api/generate", json={}, headers=headers).status_code == status
    assert writing.get("/health").status_code == 200
    monkeypatch.setattr(service.worker, "_capacity", 3)
    service.worker.cancel(waits)
    assert writing.post("/v1/completions", json=body | {"n": 4}).status_code == 413
    closed = False
    assert writing.post("/v1/completions", json=body | {"n": 1}).status_code == 200


def test_metrics(writing):
    """No text is left waiting, once the turn that answered the last one has ended."""
    text = writing.get("/metrics").text
    assert 'transformer_jax_requests_total{endpoint="/v1/completions",status="429"}' in text
    until(lambda: "transformer_jax_waiting_texts 0.0" in writing.get("/metrics").text)
