"""Requests leave no objects or memory behind, however many there are."""

import asyncio
import gc
import json
import os
from pathlib import Path

import numpy as np
import pytest
from server.conftest import stand_in
from server.test_limits import SCOPE, Paced, until

from transformer_jax.server.app import application

LEAVES = {499, 200}  # a client that does not wait for its answer
REQUESTS = [
    ("/api/translate", {"text": "a dog"}, {200}),
    ("/api/translate", {"texts": ["a", "dog"], "timeout": 1e-9}, {504, 200}),
    ("/api/translate", {"text": "a dog", "n_best": 9}, {400}),
    ("/api/translate", {"text": "a dog"}, LEAVES),
    ("/api/batches", {"texts": ["a", "dog"]}, {200}),
    ("/api/batches", {"texts": ["a", "dog"]}, LEAVES),
    ("/translate", {"q": "a\ndog", "target": "de"}, {200}),
    ("/nowhere", {}, {404}),
]


class Instant(Paced):
    """A stream that finishes texts at once."""

    def turn(self, waiting=(), watched=()):
        yield from ((number, np.ones((1, 2), int), np.zeros(1)) for number, _ in waiting)


@pytest.fixture
def service():
    found = stand_in(Instant(), queue=256)
    found.ready = True
    yield found
    found.worker.close()


async def ask(app, path: str, body: dict, statuses: set) -> None:
    """Send a request, and check that its answer has one of the statuses."""
    given = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    sent, answered = [], asyncio.Event()

    async def receive():
        if given:
            return given.pop()
        if statuses != LEAVES:
            await answered.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)
        if message["type"] == "http.response.body" and not message.get("more_body"):
            answered.set()

    await app(SCOPE | {"path": path}, receive, send)
    assert sent[0]["status"] in statuses


def after(service, count: int, measure) -> list[int]:
    """Return a measure before and after `count` more requests, a few at a time; a tenth as many go
    first, to create what is created once.
    """
    app, found = application(service), []

    async def client(places) -> None:
        for place in places:
            await ask(app, *REQUESTS[place % len(REQUESTS)])

    async def main() -> None:
        for many in (count // 10, count):
            places = iter(range(many))
            await asyncio.gather(*(client(places) for _ in range(16)))
            await asyncio.to_thread(until, lambda: not service.worker.running)
            gc.collect()
            found.append(measure())

    asyncio.run(main())
    assert not service.active
    until(lambda: not service.worker.waiting)
    return found


def test_requests_leak_no_objects(service):
    """One object leaked by each request of a single kind would make 250."""
    before, behind = after(service, 250 * len(REQUESTS), lambda: len(gc.get_objects()))
    assert behind - before < 125


STATM = Path("/proc/self/statm")


@pytest.mark.e2e
@pytest.mark.skipif(not STATM.exists(), reason="the memory of a process is read as Linux has it")
def test_resident_size_is_bounded(service):
    """A hundred thousand requests; 100 bytes leaked by each would be 10 MB."""
    before, behind = after(service, 100_000, lambda: int(STATM.read_text().split()[1]))
    assert (behind - before) * os.sysconf("SC_PAGE_SIZE") < 10e6
