"""What clients of LibreTranslate's protocol, browsers and old HTTP clients rely on."""

import asyncio
import contextlib
import json
import socket

import pytest
import uvicorn
from server.conftest import listening, served, stand_in, translator
from server.test_faults import port_of
from server.test_limits import Paced

from transformer_jax.base.errors import UserError
from transformer_jax.cli import serve
from transformer_jax.decoding.text.translation import Translation
from transformer_jax.server import libretranslate, uvicorn_server
from transformer_jax.server.model import Served
from transformer_jax.server.service import Service
from transformer_jax.server.settings import Settings


class Noting(Paced):
    """A stream that finishes texts at once, and notes what their samples depend on."""

    def __init__(self) -> None:
        super().__init__(rows=8)
        self.open, self.seeds = True, {}  # by the number of the text in the queue

    def turn(self, waiting=(), watched=()):
        self.seeds |= {number: sentence.seed for number, sentence in waiting}
        return super().turn(waiting, watched)


@pytest.fixture(scope="module")
def client():
    """A client of a server whose translations are those of a stand-in; nothing is compiled."""
    yield from served(stand_in(Noting(), queue=64, max_texts=64))


@pytest.fixture
def echoed(monkeypatch):
    """Translate lines to upper case, and return the list of those that are asked for."""
    lines = []

    async def translations(service, model, given, patience, n_best):
        lines.extend(given)
        return [[Translation(line.upper() + "!" * n, [], 0.0) for n in range(n_best)]
                for line in given]  # fmt: skip

    monkeypatch.setattr(libretranslate, "translations", translations)
    return lines


LINES = [[""], ["a"], ["a", "b"], ["a", "", "b"], ["a", ""], ["", "a"], ["", ""]]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_in_the_translation_as_in_the_text(client, echoed, end):
    """The same lines are translated, however they end: alternatives and lists, too."""
    texts = [end.join(lines) for lines in LINES]
    body = {"q": texts, "target": "de", "alternatives": 1}
    answer = client.post("/translate", json=body).json()
    assert answer["translatedText"] == [text.upper() for text in texts]
    wanted = [[end.join(line.upper() + "!" for line in lines)] for lines in LINES]
    assert answer["alternatives"] == wanted
    assert echoed == [line for lines in LINES for line in lines]


MIXED = "multipart/form-data; boundary=x"


def in_parts(*fields: tuple[str, str]) -> bytes:
    """Return a form in parts, as browsers write it."""
    head = '--x\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    return ("".join(head.format(*field) for field in fields) + "--x--\r\n").encode()


@pytest.mark.parametrize("kind", ["encoded", "parts"])
def test_forms_equal_json(client, echoed, kind):
    """Of both kinds: fields once, repeated, empty, with line breaks and non-ASCII text."""

    def post(*fields):
        if kind == "parts":
            return client.post("/translate", content=in_parts(*fields),
                               headers={"content-type": MIXED.replace("m", "M", 1)})  # fmt: skip
        data = {}
        for name, value in fields:
            data.setdefault(name, []).append(value)
        return client.post("/translate", data=data)

    for several in (["a"], ["a", "b"], ["x\r\ny", ""], ["-- é\r\n\r\n", "=&%41"]):
        answer = post(*(("q", q) for q in several), ("source", "en"), ("target", "de"))
        q = several[0] if len(several) == 1 else several
        same = client.post("/translate", json={"q": q, "source": "en", "target": "de"})
        assert answer.status_code == 200, answer.text
        assert answer.json() == same.json()
    twice = post(("q", "a"), ("target", "de"), ("target", "fr"))
    assert (twice.status_code, "target" in twice.json()["error"]) == (400, True)


@pytest.mark.parametrize(
    ("body", "kind", "said"),
    [(b"", MIXED, "boundary"), (b"--x\r\n", MIXED, "boundary"), (b"--x--", "multipart/form-data",
     "boundary"), (b"--x\r\n\r\na\r\n--x--", MIXED, "no name"), (b"--x\r\na: b\r\n--x--", MIXED,
     "no name"), (in_parts(("q", "\xff")).replace("\xff".encode(), b"\xff"), MIXED, "UTF-8"),
     (in_parts(*[("q", "a")] * 101), MIXED, "101"), (in_parts(("q", "a"), ("target", "de")).replace(
         b'"q"', b'"q"; filename="a.txt"'), MIXED, "file")],
    ids=range(8),
)  # fmt: skip
def test_malformed_forms_in_parts_are_refused_by_what_is_wrong(client, body, kind, said):
    answer = client.post("/translate", content=body, headers={"content-type": kind})
    assert (answer.status_code, list(answer.json())) == (400, ["error"])
    assert said in answer.json()["error"]


@pytest.mark.parametrize("name", ["api_key", "source", "format", "alternatives"])
def test_null_means_left_out(client, echoed, name):
    body = {"q": "a", "target": "de"}
    answers = [client.post("/translate", json=body | extra) for extra in ({}, {name: None})]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert client.post("/detect", json={"q": "a", "api_key": None}).status_code == 200


@pytest.mark.parametrize(
    ("text", "wanted", "lines"),
    [("", "", [""]), ("a  dog", "A DOG", ["a dog"]),
     ("<p>Tom &amp; <b>Al</b>\n run</p> ", "<p>TOM &amp; <b>AL</b>\n RUN</p> ",
      ["", "Tom &", "Al", "run", ""]),
     ("<script>x<y</script><!-- <p>no</p> -->end<br/>",
      "<script>x<y</script><!-- <p>no</p> -->END<br/>", ["", "end", ""])],
    ids=range(4),
)  # fmt: skip
def test_html_keeps_its_tags(client, echoed, text, wanted, lines):
    body = {"q": [text, text], "target": "de", "format": "html"}
    assert client.post("/translate", json=body).json()["translatedText"] == [wanted] * 2
    assert echoed == lines * 2


@pytest.mark.parametrize(
    ("source", "target", "status"),
    [("en-US", "de_AT", 200), ("EN", "DE", 200), ("end", "de", 400), ("en", "fr", 400)],
)
def test_languages_may_have_a_region(client, echoed, source, target, status):
    body = {"q": "a", "source": source, "target": target}
    assert client.post("/translate", json=body).status_code == status


def test_what_libretranslates_own_page_asks(client):
    settings = client.get("/frontend/settings").json()
    assert settings["language"]["target"]["code"] == "de"
    assert (settings["charLimit"], settings["keyRequired"]) == (400, False)
    spec = client.get("/spec").json()
    assert {"/translate", "/detect", "/languages"} <= spec["paths"].keys()
    assert spec["components"]["schemas"]["Translate"]["required"] == ["q", "target"]


ERRORS = {  # paths, known and unknown, and the JSON types of an error and what is in it
    ("/translate", "/detect", "/languages", "/suggest", "/translate_file", "/frontend/nowhere"):
        (str, None),
    ("/v1/completions", "/v1/chat/completions", "/v1/models", "/v1/nowhere", "/tokenize"):
        (dict, {"message", "type", "param", "code"}),
    ("/api/translate", "/api/nowhere", "/nowhere", "/reload"): (dict, {"type", "message"}),
}  # fmt: skip


@pytest.mark.parametrize(("paths", "wanted"), ERRORS.items(), ids=range(len(ERRORS)))
def test_errors_have_the_form_of_their_paths_protocol(client, paths, wanted):
    """Whatever is wrong: the path, the method or the body."""
    kind, keys = wanted
    for path in paths:
        for answer in (client.put(path), client.post(path, content=b"{"), client.get(path)):
            if answer.status_code != 200:
                error = answer.json()["error"]
                assert isinstance(error, kind), (path, answer.text)
                assert keys is None or set(error) == keys


def test_pages_of_other_origins_may_use_the_server_if_allowed(client):
    """All by default; errors are theirs to read, too, and a preflight needs no key."""
    asks = {"origin": "https://a.org", "access-control-request-method": "POST",
            "access-control-request-headers": "authorization,content-type,x-own"}  # fmt: skip

    def allowed(client, path, **headers):
        answers = client.options(path, headers=asks | headers), client.post(path, headers=asks
                                                                           | headers)  # fmt: skip
        return [answer.headers.get("access-control-allow-origin") for answer in answers]

    for path in ("/translate", "/languages", "/v1/completions", "/api/generate", "/nowhere"):
        assert allowed(client, path) == ["*", "*"]
    answer = client.options("/translate", headers=asks)
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-headers"] == asks["access-control-request-headers"]
    few = stand_in(Noting(), key="k", allow_origins=("https://a.org",))
    with contextlib.contextmanager(served)(few) as other:
        assert allowed(other, "/translate") == ["https://a.org"] * 2
        assert allowed(other, "/translate", origin="https://b.org") == [None, None]
    assert serve._origins(None) == Settings.allow_origins
    assert serve._origins([""]) == ()
    for wrong in ("example.org", "https://a.org/", "https://a.org/x"):
        with pytest.raises(UserError, match=f"--allow-origin={wrong}: "):
            serve._origins([wrong])


# --- HTTP itself ---


def test_streams_to_clients_of_http_1_0_are_not_chunked():
    """They end with the connection; answers of a known length are as ever."""
    body = json.dumps({"texts": ["a dog", "a man"]})
    with listening(stand_in(Noting())) as (address, _):
        for path, kind, stream in (("/api/batches", "x-ndjson", True),
                                   ("/api/translate", "json", False)):  # fmt: skip
            for version, chunked in (("1.0", False), ("1.1", stream)):
                with socket.create_connection(("127.0.0.1", port_of(address)), 30) as client:
                    head = f"POST {path} HTTP/{version}\r\nhost: x\r\nconnection: close\r\n"
                    head += f"content-length: {len(body)}\r\n\r\n"
                    client.sendall(head.encode() + body.encode())
                    answer = b"".join(iter(lambda c=client: c.recv(1 << 16), b""))
                head, _, answer = answer.partition(b"\r\n\r\n")
                assert (b"200 OK" in head, kind.encode() in head) == (True, True)
                assert (b"transfer-encoding" in head.lower()) == chunked
                assert (b"content-length" in head.lower()) == (not stream)
                if not chunked:
                    rows = [json.loads(line) for line in answer.splitlines()]
                    assert len(rows) == (2 if stream else 1)


class Wire(asyncio.Transport):
    """A transport to nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.sent, self.closed = b"", False

    def write(self, data):
        self.sent += data

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed

    def pause_reading(self):
        """It has no reader."""

    resume_reading = pause_reading


async def _silent(scope, receive, send):
    await asyncio.Event().wait()


def answered(pieces: list[bytes]) -> bytes:
    """Return what a server answers at once to bytes that arrive in pieces."""

    async def main():
        config = uvicorn.Config(_silent, log_config=None, lifespan="off", ws="none")
        config.load()
        wire, state = Wire(), uvicorn.server.ServerState()
        connection = uvicorn_server._Patient(config, state, {})
        connection.connection_made(wire)
        for piece in pieces:
            if not wire.closed:
                connection.data_received(piece)
        for task in state.tasks:
            task.cancel()
        await asyncio.gather(*state.tasks, return_exceptions=True)
        connection._stop()
        return wire.sent

    return asyncio.run(main())


@pytest.mark.parametrize("size", [1000, 4096, 65_536, 10**6])
def test_headers_are_limited_however_they_arrive(size):
    """What came before them on the connection does not count, and what follows does not, either."""
    whole = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 40000\r\n\r\n" + b"a" * 40_000
    for length, refused in ((100, False), (30_000, False), (45_000, True)):
        head = b"POST / HTTP/1.1\r\ncontent-length: 60000\r\nx: " + b"y" * length
        ends = (b"\r\n\r\n" + b"b" * 50_000,) if refused else (b"", b"\r\n\r\n" + b"b" * 50_000)
        for before in (b"", whole, whole * 2):
            for end in ends:
                text = before + head + end
                pieces = [text[n : n + size] for n in range(0, len(text), size)]
                assert (b"headers of more than" in answered(pieces)) == refused


# --- numbers of texts ---


def test_samples_of_a_server_do_not_repeat():
    """Each line has its own number: across requests of any size, protocols, and a reload."""
    trained, stream = translator(), Noting()

    def load():
        model = Served(trained, trained.experiment.decoding, Settings())
        model.streams, model.compile = {"translate": stream}, lambda: None
        return model

    service = Service(load, Settings(allow_reload=True))
    with contextlib.contextmanager(served)(service) as client:
        for _ in range(2):
            for texts in (["a", "a", "a"], ["a"], ["a", "a"]):
                assert client.post("/api/translate", json={"texts": texts}).status_code == 200
                body = {"q": "\n".join(texts), "target": "de"}
                assert client.post("/translate", json=body).status_code == 200
                assert client.post("/api/batches", json={"texts": texts}).status_code == 200
            assert client.post("/reload").status_code == 200
        assert len(stream.seeds) == len(set(stream.seeds.values())) == 36
        stream.seeds.clear()
        for _ in range(2):  # those asked for by number do
            client.post("/api/translate", json={"texts": ["a", "a"], "line": 5})
        assert list(stream.seeds.values()) == [5, 6, 5, 6]
