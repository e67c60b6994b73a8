"""The server's continuations of prompts equal those of `generate`, whole or streamed."""

import concurrent.futures
import functools
import json

import pytest
from server.conftest import writer

PROMPTS = ["", "ab", "helloworld"]
SAMPLED = {"temperature": 0.7, "top_k": 9, "top_p": 0.9, "seed": 5}


@functools.cache
def expected(prompt: str, n: int = 0, stop: tuple = ()):
    """Return the greedy text for a prompt, or `n` sampled ones, of 9 pieces."""
    trained = writer()
    fields = {"search": "sample", "num_samples": n, **SAMPLED} if n else {}
    return trained.generate(prompt, 9, n_best=n or 1, stop_strings=stop, **fields)


def events(answer) -> list:
    """Return the data of a stream's events."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/event-stream")
    parts = answer.text.split("\n\n")
    assert parts.pop() == ""
    assert all(part.startswith("data: ") for part in parts)
    return [json.loads(part[6:]) if part != "data: [DONE]" else None for part in parts]


def test_concurrent_requests_are_answered_as_if_alone(writing):
    """Greedy and sampled requests side by side, and each of several samples."""
    bodies = [{"prompt": p, "max_tokens": 9} for p in PROMPTS]
    bodies += [{"prompt": p, "max_tokens": 9, "n": 2, **SAMPLED} for p in PROMPTS]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda b: writing.post("/api/generate", json=b), bodies))
    for body, answer in zip(bodies, answers, strict=True):
        wanted = expected(body["prompt"], body.get("n", 0))
        assert [t["text"] for t in answer.json()["texts"]] == [t.text for t in wanted]
        for found, theirs in zip(answer.json()["texts"], wanted, strict=True):
            assert found["score"] == pytest.approx(theirs.score, rel=1e-4)


@pytest.mark.parametrize("fields", [{}, SAMPLED], ids=["greedy", "sampled"])
def test_streamed_parts_join_to_the_whole_text(writing, fields):
    body = {"prompt": "ab", "max_tokens": 9, "stream": True, **fields}
    first, *parts, last = events(writing.post("/api/generate", json=body))
    (wanted,) = expected("ab", 1 if fields else 0)
    assert first["prompt"] + "".join(part["text"] for part in parts) == wanted.text
    assert last == {"done": True}
    assert (parts[-1]["finish"], parts[-1]["tokens"]) == ("length", len(wanted.ids))


def test_stop_strings_end_a_text(writing):
    """They also end its search, and are found during streaming too."""
    (whole,) = expected("ab")
    stop = whole.text[4:6]
    (wanted,) = expected("ab", 0, (stop,))
    body = {"prompt": "ab", "max_tokens": 9, "stop": [stop]}
    (found,) = writing.post("/api/generate", json=body).json()["texts"]
    assert (found["text"], found["finish"]) == (wanted.text, "stop")
    first, *parts, _ = events(writing.post("/api/generate", json={**body, "stream": True}))
    assert first["prompt"] + "".join(part["text"] for part in parts) == wanted.text
    assert parts[-1]["finish"] == "stop"


def test_openai_api(writing):
    """Several prompts and choices, echo, usage and models; temperature 0 is greedy."""
    body = {"model": "tiny", "prompt": ["ab", "helloworld"], "max_tokens": 9, "temperature": 0}
    answer = writing.post("/v1/completions", json=body).json()
    behind = [expected(p)[0].text.removeprefix(p) for p in body["prompt"]]
    assert [c["text"] for c in answer["choices"]] == behind
    assert answer["usage"]["completion_tokens"] == sum(
        len(expected(p)[0].ids) for p in body["prompt"]
    )
    body |= {"stream": True, "echo": True, "n": 2, "stream_options": {"include_usage": True}}
    *parts, usage, done = events(writing.post("/v1/completions", json=body))
    assert done is None
    texts = dict.fromkeys(range(4), "")
    for part in parts:
        (choice,) = part["choices"]
        texts[choice["index"]] += choice["text"]
    assert list(texts.values()) == [expected(p)[0].text for p in ("ab", "ab", *["helloworld"] * 2)]
    assert usage["usage"]["prompt_tokens"] == answer["usage"]["prompt_tokens"]
    seeded = {"model": "tiny", "prompt": "ab", "max_tokens": 9, "seed": 5, "top_p": 0.9}
    twice = [writing.post("/v1/completions", json=seeded).json()["choices"] for _ in range(2)]
    assert twice[0] == twice[1]
    assert [m["id"] for m in writing.get("/v1/models").json()["data"]] == ["tiny"]
    assert writing.get("/v1/models/tiny").json()["object"] == "model"


def test_several_prompts_are_streamed_concurrently(writing, monkeypatch):
    stream = writing.service.model.streams["single"]
    turn = stream.turn

    def by_step(waiting, watched):
        stream._each = dict.fromkeys(stream._each, 1.0)  # one step per turn
        return turn(waiting, watched)

    monkeypatch.setattr(stream, "turn", by_step)
    body = {"model": "tiny", "prompt": PROMPTS[1:], "max_tokens": 9, "stream": True}
    *parts, _ = events(writing.post("/v1/completions", json=body))
    order = [part["choices"][0]["index"] for part in parts]
    assert order.index(1) < len(order) - 1 - order[::-1].index(0)


@pytest.mark.parametrize(
    ("fields", "status"),
    [({"model": "../../etc/passwd"}, 404), ({"logprobs": 21}, 400), ({"n": 0}, 400),
     ({"presence_penalty": 1.0}, 400), ({"temperature": 2.5}, 400), ({"max_tokens": 11}, 400),
     ({"prompt": "x" * 30}, 400), ({"prompt": [1, "a"]}, 400), ({"prompt": []}, 400),
     ({"suffix": "b"}, 400), ({"logit_bias": {"3": 1}}, 400), ({"best_of": 2}, 400),
     ({"frequency_penalty": 0.5}, 400), ({"n": 9}, 413), ({"unknown": 1}, 400),
     ({"top_p": 1e-39}, 400), ({"stream_options": {"include_usage": True}}, 400),
     ({"stream": True, "stream_options": {"includes_usage": True}}, 400)],
)  # fmt: skip
def test_invalid_openai_requests_are_rejected(writing, fields, status):
    answer = writing.post("/v1/completions", json={"model": "tiny", "prompt": "a"} | fields)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"]


@pytest.mark.parametrize(
    "fields",
    [{"max_tokens": 11}, {"top_p": 0}, {"top_p": 1e-39}, {"temperature": -1}, {"beam_size": 2},
     {"beam_size": 0}, {"beam_size": 1, "sample": True}, {"prompt": "x" * 30}, {"stop": [""]}],
)  # fmt: skip
def test_invalid_generate_requests_are_rejected(writing, fields):
    answer = writing.post("/api/generate", json={"prompt": "a"} | fields)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["type"] == "invalid_request"


def test_too_many_texts_are_rejected(writing):
    answer = writing.post("/api/generate", json={"prompt": "a", "n": 9})
    assert (answer.status_code, answer.json()["error"]["type"]) == (413, "too_large")


def test_scores_equal_those_of_the_model(writing):
    rows = writing.post("/api/score", json={"texts": PROMPTS[1:]}).json()["results"]
    for row, score in zip(rows, writer().score(PROMPTS[1:]), strict=True):
        assert row["total"] == pytest.approx(score.total, rel=1e-4)
        assert row["perplexity"] == pytest.approx(score.perplexity, rel=1e-4)


def at_a_time(client, monkeypatch, steps: float) -> None:
    """Have the server's stream hand over what it has written after so many seconds' worth."""
    stream = client.service.model.streams["single"]
    turn = stream.turn

    def paced(waiting, watched):
        stream._each = dict.fromkeys(stream._each, steps)
        return turn(waiting, watched)

    monkeypatch.setattr(stream, "turn", paced)


@pytest.mark.parametrize("fields", [{}, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("each", [1.0, 1e-6], ids=["by step", "at once"])
def test_pieces_behind_a_stop_string_do_not_count(writing, monkeypatch, fields, each):
    """However many pieces the search hands over at a time; nor do they have a score."""
    at_a_time(writing, monkeypatch, each)
    (whole,) = expected("ab", 1 if fields else 0)
    stop = whole.text[4:6]
    (wanted,) = expected("ab", 1 if fields else 0, (stop,))
    pieces = writer().tokenizers.tgt.pieces(whole.ids)[: len(wanted.text) - 2 + len(stop)]
    body = {"prompt": "ab", "max_tokens": 9, "stop": [stop], **fields}
    (found,) = writing.post("/api/generate", json=body).json()["texts"]
    assert (found["text"], found["finish"]) == (wanted.text, "stop")
    assert (found["pieces"], found["score"], found["log_prob"]) == (pieces, None, None)
    *_, last, _ = events(writing.post("/api/generate", json=body | {"stream": True}))
    assert (last["finish"], last["tokens"]) == ("stop", len(pieces))
    body = {"model": "tiny", "temperature": 0, "prompt": ["ab"], "max_tokens": 9, "stop": stop}
    body |= {"stream_options": {"include_usage": True}} if each == 1 else {}
    if not fields:
        answer = writing.post("/v1/completions", json=body | {"stream": each == 1})
        usage = events(answer)[-2]["usage"] if each == 1 else answer.json()["usage"]
        assert usage["completion_tokens"] == len(pieces)


@pytest.mark.parametrize("prompt", ["ab", "a  \u00e9!", "héllo "])
def test_echo_returns_the_prompt_itself(writing, prompt):
    """And not what its pieces spell."""
    body = {"model": "tiny", "prompt": [prompt, "b"], "max_tokens": 3, "temperature": 0}
    plain, echoed = (
        [choice["text"] for choice in writing.post("/v1/completions", json=b).json()["choices"]]
        for b in (body, body | {"echo": True})
    )
    assert echoed == [given + text for given, text in zip((prompt, "b"), plain, strict=True)]
    *parts, _ = events(writing.post("/v1/completions", json=body | {"echo": True, "stream": True}))
    streamed = ["", ""]
    for part in parts:
        streamed[part["choices"][0]["index"]] += part["choices"][0]["text"]
    assert streamed == echoed
