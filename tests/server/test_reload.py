"""A new checkpoint takes over between requests; a damaged one is rejected."""

import asyncio
import concurrent.futures
import dataclasses
import gc
import threading
import time

import jax
import pytest
from server.conftest import SETTINGS, served, translator
from server.test_limits import until

from transformer_jax.api.trained import TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.server.model import Served
from transformer_jax.server.service import Service
from transformer_jax.training import heartbeat

LINE = "a dog runs"


class Shelf:
    """Checkpoints to load: `last` is the newest."""

    def __init__(self) -> None:
        self.last: TrainedModel | Exception = translator()

    def load(self) -> Served:
        if isinstance(self.last, Exception):
            raise self.last
        return Served(self.last, self.last.experiment.decoding, SETTINGS_HERE)


SETTINGS_HERE = dataclasses.replace(SETTINGS, allow_reload=True)


@pytest.fixture(scope="module")
def shelf():
    return Shelf()


@pytest.fixture(scope="module")
def client(one_device, shelf):
    steps = lambda: shelf.last.steps  # noqa: E731
    yield from served(Service(shelf.load, SETTINGS_HERE, steps))


def other(step: int) -> TrainedModel:
    """Return a model with other parameters."""
    model = translator()
    params = jax.tree.map(lambda x: x * (1 + step / 50), model.params)
    return TrainedModel(model.experiment, model.model, params, model.tokenizers, [step])


def texts(client) -> str:
    answer = client.post("/api/translate", json={"text": LINE})
    assert answer.status_code == 200, answer.text
    return answer.json()["results"][0]["translations"][0]["text"]


def test_no_request_is_lost_during_a_reload(client, shelf):
    """Those that arrive meanwhile are answered by the old or the new model."""
    service, before = client.service, texts(client)
    shelf.last = other(20)
    wanted = shelf.last.translate(LINE)
    assert wanted != before
    assert service.stale()
    assert not service.stale()  # once for each checkpoint
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        found = [pool.submit(texts, client) for _ in range(30)]
        answer = client.post("/reload", json={})
        found += [pool.submit(texts, client) for _ in range(5)]
        seen = [future.result() for future in found]
    assert (answer.status_code, answer.json()) == (200, {"steps": [20]})
    assert set(seen) <= {before, wanted}
    assert seen[-5:] == [wanted] * 5


def test_requests_finish_with_the_model_they_started_with(client, shelf, monkeypatch):
    service, before = client.service, texts(client)
    stream = service.model.streams["translate"]
    turn = stream.turn
    monkeypatch.setattr(stream, "turn", lambda *given: (time.sleep(0.3), turn(*given))[1])
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(texts, client)
        while not service.worker.waiting:
            time.sleep(0.001)
        shelf.last = other(0)
        assert client.post("/reload").status_code == 200
        assert asked.result() == before
    assert texts(client) == shelf.last.translate(LINE) != before


@pytest.mark.parametrize("error", [UserError("/secret/3: damaged"), KeyError("/secret")])
def test_a_damaged_checkpoint_leaves_the_old_model_in_use(client, shelf, caplog, error):
    """The log says what is wrong with it; the client sees no path, and is answered as before."""
    before = texts(client)
    shelf.last, kept = error, shelf.last
    try:
        answer = client.post("/reload")
    finally:
        shelf.last = kept
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert "the previous model stays in use" in caplog.text
    assert texts(client) == before
    assert 'reloads_total{outcome="failed"}' in client.get("/metrics").text


def test_a_slow_start_and_a_slow_reload_are_heard_of(monkeypatch, caplog):
    """A line now and then, until they are done; nothing later."""
    caplog.set_level("INFO", "transformer_jax")
    monkeypatch.setattr(heartbeat, "PERIOD", 0.001)
    heard = lambda what: f"{what}: " in caplog.text and " so far" in caplog.text  # noqa: E731

    def slowly(what):
        until(lambda: heard(what))

    class Slow:
        trained = "a model"
        compile = staticmethod(lambda: slowly("compiling, the first time for minutes"))

    def load():
        slowly("loading the model")
        return Slow()

    service = Service(load, SETTINGS)
    asyncio.run(service.start())
    assert "ready, compiled in" in caplog.text
    Slow.compile = staticmethod(lambda: slowly("reloading"))
    assert asyncio.run(service.reload())
    assert not [thread for thread in threading.enumerate() if thread.name == "heartbeat"]
    service.worker.close()


def test_garbage_collection_leaves_the_model_out(client, shelf):
    """It goes through what came later; all requests would wait while it went through programs."""
    for steps in (None, 20):
        if steps is not None:
            shelf.last = other(steps)
            assert client.post("/reload").status_code == 200
        assert not any(found is client.service.model for found in gc.get_objects())
        later = []
        assert any(found is later for found in gc.get_objects())


def test_reload_must_be_allowed(translating):
    assert translating.post("/reload").status_code == 403


def test_shutdown_waits_for_running_requests(client):
    """Last, since it shuts this server down. New requests are refused."""
    service = client.service
    stream = service.model.streams["translate"]
    turn = stream.turn
    stream.turn = lambda *given: (time.sleep(0.3), turn(*given))[1]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        asked = pool.submit(texts, client)
        while not service.worker.waiting:
            time.sleep(0.001)
        ending = pool.submit(lambda: asyncio.run(service.drain(20)))
        while not service.closing:
            time.sleep(0.001)
        refused = client.post("/api/translate", json={"text": LINE})
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        assert client.get("/ready").status_code == 503
        assert client.get("/health").status_code == 200
        assert asked.result()
        ending.result()
    assert service.active == 0
