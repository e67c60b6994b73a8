"""Fuzzing: every answer is well-formed, never a server error, and never shows a path."""

import json
import random
import re
import string

import pytest
from server.test_limits import until

PATHS = [
    "/api/translate", "/api/batches", "/api/generate", "/api/score", "/translate", "/detect",
    "/v1/completions", "/languages", "/v1/models", "/v1/models/x", "/", "/api/model", "/metrics",
    "/nowhere", "/reload", "/ready", "/health",
]  # fmt: skip
FIELDS = [
    "text", "texts", "n_best", "prefix", "alignments", "line", "priority", "timeout", "prompt", "n",
    "max_tokens", "stop", "stream", "sample", "temperature", "top_k", "top_p", "seed", "beam_size",
    "sources", "targets", "q", "source", "target", "format", "alternatives", "api_key", "model",
    "echo", "logprobs", "suffix", "best_of", "stream_options", "user",
]  # fmt: skip
VALUES = [
    "a dog", "", "en", "de", "auto", "tiny", "\x00", "\u2028\u202e", "😀" * 9, "a\nb\n",
    "../../etc",
    "</script>", "text", "low", 0, 1, 2, 3, -1, 10, 10**30, 0.5, 1e308, True, False, None, [], {},
    ["a", "b"], ["a"], [1], [[]], {"a": 1}, {"include_usage": True}, "x" * 500, ["a"] * 20,
    "a " * 90,
]  # fmt: skip
LIKELY = {
    "/api/translate": {"text": "a dog"}, "/api/batches": {"texts": ["a", "dog"]},
    "/api/generate": {"prompt": "ab", "max_tokens": 3}, "/translate": {"q": "a", "target": "de"},
    "/api/score": {"sources": ["a"], "targets": ["a"]}, "/detect": {"q": "a"},
    "/api/predict": {"text": "a"},
    "/v1/completions": {"model": "tiny", "prompt": "ab", "max_tokens": 3},
}  # fmt: skip
LEAK = re.compile(r"Traceback|/(?:home|work|tmp|usr|root|var|opt)/|\.py\b|File \"|0x[0-9a-f]{6}")
KINDS = ["application/json", "application/x-www-form-urlencoded", "text/plain", "", "multipart/x"]


def request(chance: random.Random) -> tuple:
    """Return a random method, path, headers and body."""
    path = chance.choice([*PATHS, *LIKELY, *LIKELY])
    value = dict(LIKELY.get(path, {})) if chance.random() < 0.7 else {}
    for _ in range(chance.choice([0, 0, 1, 1, 2, 3])):
        value[chance.choice(FIELDS)] = chance.choice(VALUES)
    body = json.dumps(value, ensure_ascii=chance.random() < 0.5).encode()
    if chance.random() < 0.3:  # cut, changed, repeated
        place = chance.randrange(len(body))
        middle = chance.choice([b"", bytes([chance.randrange(256)]), b"[" * 50, b"\\ud800"])
        body = body[:place] + middle + body[place + chance.randrange(3) :]
    if chance.random() < 0.05:
        body = chance.randbytes(chance.choice([0, 5, 300, 30_000]))
    method = "POST" if path in LIKELY else chance.choice(["GET", "GET", "POST", "PUT", "HEAD"])
    headers = {"content-type": chance.choice([KINDS[0]] * 4 + KINDS)}
    if chance.random() < 0.1:
        letters = string.printable[:94] + "éÿ"
        headers["authorization"] = "".join(chance.choices(letters, k=chance.randrange(40)))
    return method, path, {k: v.encode("latin-1") for k, v in headers.items()}, body


def harmless(client, seed: int) -> int:
    method, path, headers, body = given = request(random.Random(seed))
    answer = client.request(method, path, headers=headers, content=body)
    assert answer.status_code < 500, (given, answer.text)
    if path not in ("/", "/metrics"):
        assert not LEAK.search(answer.text), (given, answer.text)
    if answer.status_code >= 400 and method != "HEAD":
        assert answer.json()["error"], given
    return answer.status_code


def both(translating, writing, seeds) -> None:
    codes = {harmless(client, seed) for seed in seeds for client in (translating, writing)}
    assert {200, 400, 404} <= codes
    workers = [client.service.worker for client in (translating, writing)]
    until(lambda: not any(worker.waiting or worker.running for worker in workers))
    for client in (translating, writing):
        assert client.service.worker.alive
        assert client.get("/ready").status_code == 200


def test_short_fuzzing(translating, writing):
    both(translating, writing, range(150))


@pytest.mark.e2e
def test_long_fuzzing(translating, writing):
    both(translating, writing, range(1000, 26_000))
