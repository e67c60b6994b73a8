"""Misbehaving clients and failing threads: others are answered, and nobody waits for ever."""

import concurrent.futures
import contextlib
import http.client
import json
import math
import socket
import threading
import time

import pytest
from server.conftest import listening, served, stand_in
from server.test_limits import Paced, until

from transformer_jax.decoding.batching.rows import Sentence
from transformer_jax.server import uvicorn_server
from transformer_jax.server.tickets import Ticket

TEXT = json.dumps({"text": "a dog"})
HEAD = "POST /api/translate HTTP/1.1\r\nhost: x\r\ncontent-length: 999\r\n\r\n"
SLOW = ["", "POST /api", "GET / HTTP/1.1\r\nx: ", HEAD, HEAD + "{", HEAD.replace("api", "nowhere")]


def post(port: int, path: str = "/api/translate", body: str = TEXT) -> tuple[int, dict]:
    """Return the status and the answer of a request."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as client:
        client.request("POST", path, body)
        answer = client.getresponse()
        return answer.status, json.loads(answer.read())


def slow_clients(port: int, count: int) -> list[socket.socket]:
    """Return connections that have begun a request and do not finish it."""
    found = [socket.create_connection(("127.0.0.1", port), timeout=30) for _ in range(count)]
    for number, client in enumerate(found):
        client.sendall(SLOW[number % len(SLOW)].encode())
    return found


def answered_beside(clients: list[socket.socket], ask, seconds: float) -> None:
    """Keep asking while slow clients send a byte now and then, until all are cut off."""
    left, end = set(clients), time.monotonic() + seconds
    while left:
        assert time.monotonic() < end, f"{len(left)} are not cut off"
        assert ask()[0] == 200
        for client in list(left):
            try:
                client.sendall(b"x")
            except OSError:
                left.discard(client)
                client.close()


def port_of(address: str) -> int:
    return int(address.rstrip("/").rpartition(":")[2])


@pytest.fixture
def quick():
    """A stream that finishes texts at once."""
    stream = Paced(rows=8)
    stream.open = True
    return stream


def test_slow_connections_are_cut_off(quick, monkeypatch):
    """Whichever part of a request they are slow to send, they are cut off in time."""
    monkeypatch.setattr(uvicorn_server, "_HEADERS", 0.5)
    with listening(stand_in(quick, patience=0.5)) as (address, service):
        port = port_of(address)
        answered_beside(slow_clients(port, 90), lambda: post(port), 15)
        until(lambda: not service.active)


class Sparing(Paced):
    """A stream that finishes one text each time it is opened."""

    def turn(self, waiting=(), watched=()):
        for found in super().turn(waiting, watched):
            self.open = False
            yield found


def test_a_disconnect_during_a_stream_cancels_the_remaining_texts():
    """Other requests are still answered."""
    stream = Sparing(rows=8)
    with listening(stand_in(stream)) as (address, service):
        port = port_of(address)
        body = json.dumps({"texts": ["a dog"] * 20})
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        client.request("POST", "/api/batches", body)
        until(lambda: len(stream.here) == stream.rows)
        stream.open = True
        assert json.loads(client.getresponse().readline())["translations"]
        client.close()
        until(lambda: not service.active)
        until(lambda: not service.worker.running and not service.worker.waiting)
        stream.open = True
        assert post(port)[0] == 200


def test_a_full_queue_refuses_texts_before_reading_them(monkeypatch):
    service = stand_in(Paced(), queue=2)
    held = Ticket(service._model, "translate", [Sentence((3,), 1)] * 2, math.inf, lambda _: None)
    monkeypatch.setattr(service._model, "translation", lambda *_: pytest.fail("it was read"))
    with contextlib.contextmanager(served)(service) as client:
        service.worker.submit(held)
        until(lambda: service.worker.running == 1)
        for path, body in (("/api/translate", {"texts": ["a", "dog"]}),
                           ("/translate", {"q": ["a", "dog"], "target": "de"})):  # fmt: skip
            answer = client.post(path, json=body)
            assert (answer.status_code, "retry-after" in answer.headers) == (429, True)


class Dying(Paced):
    """A stream whose search fails as soon as `let` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.entered, self.let = threading.Event(), threading.Event()

    def turn(self, waiting=(), watched=()):
        self.entered.set()
        self.let.wait(20)
        raise MemoryError("/secret/path")
        yield


@pytest.fixture
def dying(monkeypatch):
    """A service whose search thread dies once `let` is set: its stream cannot be renewed."""
    service = stand_in(Dying())

    def renew(kind):
        raise MemoryError("/secret/path")

    monkeypatch.setattr(service._model, "renew", renew)
    return service


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_requests_fail_after_the_search_thread_dies(dying):
    """Waiting texts and calls end with an error, and so do later requests."""
    stream, worker = dying._model.streams["translate"], dying.worker
    one, pair = {"text": "a dog"}, {"sources": ["a"], "targets": ["a"]}
    asked = [("/api/translate", one)] * 4 + [("/translate", {"q": "a", "target": "de"})]
    asked += [("/api/score", pair)] * 2
    with contextlib.contextmanager(served)(dying) as client:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = [pool.submit(client.post, path, json=body) for path, body in asked]
            batch = pool.submit(client.post, "/api/batches", json={"texts": ["a", "dog"]})
            until(lambda: stream.entered.is_set() and worker.waiting + len(worker._calls) == 9)
            stream.let.set()
            answers = [future.result(20) for future in found]
        answers += [client.post(path, json=body) for path, body in asked]
        answers += [client.get("/ready"), client.get("/health")]
        assert {answer.status_code for answer in answers} == {503}
        rows = [json.loads(row) for row in batch.result(20).text.splitlines()]
        assert [row["error"]["type"] for row in rows] == ["unavailable"] * 2
        assert not any("secret" in answer.text for answer in [*answers, batch.result()])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_server_exits_when_its_search_thread_dies(dying, caplog):
    """It exits once waiting requests are answered."""
    with listening(dying) as (address, _):
        port = port_of(address)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            asked = pool.submit(post, port)
            until(dying._model.streams["translate"].entered.is_set)
            dying._model.streams["translate"].let.set()
            assert asked.result(20)[0] == 503
        until(lambda: refused(port))
    assert "the search thread has ended; the server exits" in caplog.text


def refused(port: int) -> bool:
    """Return whether nobody listens."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) != 0
