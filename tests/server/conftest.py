"""Servers of tiny random models that compile quickly: a translator and a language model."""

import contextlib
import dataclasses
import gc
import threading
import time

import jax
import pytest
from decoding.lines import BEAM, parts
from decoding.test_generate import CODEC, LINES, made
from starlette.testclient import TestClient
from tiny import RUN

from transformer_jax.api.trained import TrainedModel
from transformer_jax.config import DataConfig, DecodingConfig, ObjectiveConfig
from transformer_jax.data.codecs.chat import ChatTemplate
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.server.app import application
from transformer_jax.server.model import Served
from transformer_jax.server.service import Service
from transformer_jax.server.settings import Settings
from transformer_jax.server.uvicorn_server import Server

SETTINGS = Settings(
    name="tiny", rows=2, queue=16, timeout=30.0, max_body=20_000, max_characters=400, max_texts=8,
    max_batch=50, max_prompt=12, max_tokens=10, patience=5.0,
)  # fmt: skip


def translator() -> TrainedModel:
    """Return a model that translates en to de, at most 16 pieces at a time."""
    model, params, tokenizers = parts()
    data = DataConfig(source_language="en", target_language="de", max_length=16)
    experiment = dataclasses.replace(RUN, model=model.config, data=data, decoding=BEAM)
    return TrainedModel(experiment, model, params, tokenizers, [3])


def writer() -> TrainedModel:
    """Return a character-level language model."""
    model, params = made(LINES)
    decoding = DecodingConfig(beam_size=1)
    experiment = dataclasses.replace(
        RUN, model=model.config, objective=LINES, decoding=decoding
    )  # fmt: skip
    return TrainedModel(experiment, model, params, TokenizerPair(CODEC, CODEC), [3])


def chatter() -> TrainedModel:
    """Return a character-level chat model, whose template marks turns by letters and EOS."""
    trained = writer()
    model, _ = made(LINES)
    objective = ObjectiveConfig(name="chat", window=8)
    experiment = dataclasses.replace(trained.experiment, objective=objective)
    template = ChatTemplate(
        "{% for m in messages %}{{ m.role[0] + m.content + eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}a{% if think is defined %}{{ think }}{% endif %}{% endif %}"
    )
    tokenizers = TokenizerPair(CODEC, CODEC, template)
    return TrainedModel(experiment, model, trained.params, tokenizers, [3])


def service_of(trained: TrainedModel, **changes) -> Service:
    settings = dataclasses.replace(SETTINGS, **changes)
    return Service(lambda: Served(trained, trained.experiment.decoding, settings), settings)


def stand_in(stream, **changes) -> Service:
    """Return a service that searches with a test's own stream; nothing is compiled."""
    trained, settings = translator(), dataclasses.replace(SETTINGS, **changes)
    model = Served(trained, trained.experiment.decoding, settings)
    model.streams, model.compile = {"translate": stream}, lambda: None
    return Service(lambda: model, settings)


@contextlib.contextmanager
def listening(service: Service):
    """Run a server in a thread; yield its address and the service."""
    server = Server(application(service), service)
    server.config.port = 0
    thread = threading.Thread(target=server.run)
    thread.start()
    while not service.ready or not server.started:
        assert thread.is_alive()
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/", service
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(autouse=True, scope="session")
def other_tests_stay_frozen():
    """A server that starts collects garbage: not among all programs of earlier tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "unfreeze", lambda: None)
        yield


def served(service: Service):
    """Yield a client of a server once it is ready."""
    with TestClient(application(service), raise_server_exceptions=False) as client:
        while (answer := client.get("/ready")).status_code != 200:
            assert answer.status_code == 503
            assert service.worker.alive
            time.sleep(0.05)
        client.service = service
        yield client


@pytest.fixture(scope="session")
def one_device():
    """Make only one device visible: the server starts before a module's own fixture does so."""
    with pytest.MonkeyPatch.context() as patch:
        one = jax.devices()[:1]
        patch.setattr(jax, "local_devices", lambda *_: one)
        yield


@pytest.fixture(scope="session")
def translating(one_device):
    """A client of a server that translates."""
    yield from served(service_of(translator()))


@pytest.fixture(scope="session")
def writing(one_device):
    """A client of a server that continues prompts."""
    yield from served(service_of(writer()))


@pytest.fixture(scope="session")
def chatting(one_device):
    """A client of a server that chats."""
    yield from served(service_of(chatter()))
