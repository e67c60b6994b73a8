"""The server's continuations of prompts equal those of `generate`, whole or streamed."""

import concurrent.futures
import dataclasses
import functools
import json
import string

import pytest
from decoding.test_generate import CODEC
from server.conftest import served, service_of, writer

from transformer_jax.config import SideConfig, TokenizerConfig
from transformer_jax.config.choices.texts import FIM_PIECES
from transformer_jax.data.codecs import characters
from transformer_jax.data.codecs.pair import TokenizerPair

PROMPTS = ["", "ab", "helloworld"]
SAMPLED = {
    "temperature": 0.7,
    "top_k": 9,
    "top_p": 0.9,
    "min_p": 0.05,
    "seed": 5,
    "repetition_penalty": 1.2,
}


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
    body["stream_options"]["continuous_usage_stats"] = True
    *parts, usage, _ = events(writing.post("/v1/completions", json=body))
    assert parts[-1]["usage"] == usage["usage"]
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
     ({"stream": True, "stream_options": {"includes_usage": True}}, 400),
     ({"logprobs": -1}, 400), ({"max_tokens": -1}, 400), ({"prompt": [30]}, 400),
     ({"prompt": [[1], []]}, 400), ({"min_p": 1.1}, 400), ({"repetition_penalty": 0}, 400),
     ({"top_k": -2}, 400)],
)  # fmt: skip
def test_invalid_openai_requests_are_rejected(writing, fields, status):
    answer = writing.post("/v1/completions", json={"model": "tiny", "prompt": "a"} | fields)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"]


@pytest.mark.parametrize(
    ("fields", "param", "code"),
    [({"model": "other"}, "model", "model_not_found"), ({"n": "b"}, "n", "invalid_type"),
     ({"n": 0}, "n", "invalid_value"), ({"unknown": 1}, "unknown", "unknown_parameter"),
     ({"model": None}, "model", "invalid_type"), ({"suffix": "b"}, "suffix",
     "unsupported_parameter"), ({"top_p": 1e-39}, "top_p", "invalid_value"),
     ({"max_tokens": 11}, "max_tokens", "context_length_exceeded"),
     ({"prompt": "x" * 30}, "prompt", "context_length_exceeded"),
     ({"logprobs": 21}, "logprobs", "unsupported_parameter")],
)  # fmt: skip
def test_errors_name_the_field_and_what_is_wrong_with_it(writing, fields, param, code):
    answer = writing.post("/v1/completions", json={"model": "tiny", "prompt": "a"} | fields)
    error = answer.json()["error"]
    assert (error["param"], error["code"]) == (param, code), error
    answer = writing.post("/v1/completions", json={"prompt": "a"})
    assert answer.json()["error"]["code"] == "missing_required_parameter"


@pytest.mark.thorough
def test_a_suffix_is_met(one_device):
    """The text between it and the prompt, as the notebook writes it; `echo` adds the prompt."""
    codec = characters.train(TokenizerConfig(), [string.ascii_lowercase[:23]], FIM_PIECES)
    trained = writer()
    trained.tokenizers = TokenizerPair(codec, codec)
    objective = dataclasses.replace(trained.experiment.objective, fim_rate=0.5)
    side = SideConfig(codec="characters")
    trained.experiment = dataclasses.replace(trained.experiment, objective=objective, tgt=side)
    body = {"model": "tiny", "max_tokens": 5, "temperature": 0, "suffix": "cd", "echo": True}
    for client in served(service_of(trained)):
        answer = client.post("/v1/completions", json=body | {"prompt": ["ab", "b"]}).json()
        wanted = trained.generate(["ab", "b"], 5, suffix="cd", beam_size=1)
        assert [x["text"] for x in answer["choices"]] == [f"ab{wanted[0]}", f"b{wanted[1]}"]
        (first, *_, last), end = (
            events(client.post("/v1/completions", json=body | {"prompt": "ab", "stream": True})),
            None,
        )
        assert (first["choices"][0]["text"].startswith("ab"), last) == (True, end)
        refused = client.post("/v1/completions", json=body | {"prompt": [4, 5]})
        assert refused.json()["error"]["param"] == "suffix"


def test_conversations_are_refused_as_there_is_no_template(writing):
    body = {"model": "tiny", "messages": [{"role": "user", "content": "a"}]}
    for path in ("/v1/chat/completions", "/tokenize"):
        answer = writing.post(path, json=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, "messages")
        assert "no chat template" in error["message"]


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


def completed(client, **fields) -> list[dict]:
    """Return the choices of a completion."""
    answer = client.post("/v1/completions", json={"model": "tiny", "temperature": 0} | fields)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"]


def ids_of(text: str) -> list[int]:
    """Return what the model reads of a text."""
    return CODEC.encode([text], bos=True, eos=False)[0]


def test_log_probabilities_of_a_prompt_are_its_score(writing):
    """Given as text or as tokens, written on or not; the first token has none."""
    (score,) = writer().score(["hello"])
    for prompt in ("hello", ids_of("hello"), [ids_of("hello")]):
        for most in (0, 1, 5):
            (choice,) = completed(writing, prompt=prompt, max_tokens=most, echo=True, logprobs=3)
            said = choice["logprobs"]
            assert said["token_logprobs"][0] is said["top_logprobs"][0] is None
            assert said["token_logprobs"][1:6] == pytest.approx(score.log_probs[:5], abs=1e-5)
            assert said["tokens"][:6] == ["<s>", *"hello"]
            assert said["text_offset"][:6] == [0, 0, 1, 2, 3, 4]
            assert len(said["tokens"]) == 6 + most
            assert choice["text"].startswith("hello")
            for log_prob, top in zip(said["token_logprobs"][1:], said["top_logprobs"][1:],
                                     strict=True):  # fmt: skip
                assert log_prob in top.values()
                assert len(top) in (3, 4)
                assert list(top.values()) == sorted(top.values(), reverse=True)


@pytest.mark.parametrize("fields", [{}, {"temperature": 0.7, "top_k": 9, "n": 2, "seed": 5}],
                         ids=["greedy", "sampled"])  # fmt: skip
def test_log_probabilities_of_a_text_are_those_of_a_prompt_as_long(writing, fields):
    """Whole or streamed, with and without the prompt; greedy pieces are the most probable ones."""
    asked = {"prompt": ["ab", "hello"], "max_tokens": 6, "logprobs": 2, **fields}
    plain, echoed = completed(writing, **asked), completed(writing, **asked, echo=True)
    for choice, whole in zip(plain, echoed, strict=True):
        (scored,) = completed(writing, prompt=whole["text"], max_tokens=0, echo=True, logprobs=2)
        found, written = scored["logprobs"], len(choice["logprobs"]["tokens"])
        assert whole["logprobs"]["token_logprobs"] == pytest.approx(
            found["token_logprobs"], abs=1e-5
        )
        assert choice["logprobs"]["tokens"] == whole["logprobs"]["tokens"][-written:]
        assert choice["logprobs"]["text_offset"][0] == 0
        if not fields:
            best = [max(top.values()) for top in choice["logprobs"]["top_logprobs"]]
            assert choice["logprobs"]["token_logprobs"] == best
    for echo, wholes in ((False, plain), (True, echoed)):
        body = {"model": "tiny", "temperature": 0, **asked, "echo": echo, "stream": True}
        body["stop"] = ["z"] if fields else [wholes[0]["text"][-1] + "zz"]  # which holds text back
        *parts, _ = events(writing.post("/v1/completions", json=body))
        for whole in wholes:
            rows = [part["choices"][0] for part in parts]
            rows = [row["logprobs"] for row in rows if row["index"] == whole["index"]]
            for name, values in whole["logprobs"].items():
                joined = [value for row in rows for value in row[name]]
                if name in ("tokens", "text_offset"):
                    assert joined == values
                else:
                    assert joined == [value and pytest.approx(value, abs=1e-5) for value in values]


def test_nothing_is_written_where_nothing_may_be(writing):
    for echo in (False, True):
        asked = {"prompt": ["ab", "c"], "max_tokens": 0, "echo": echo, "n": 2}
        choices = completed(writing, **asked)
        wanted = ["ab", "ab", "c", "c"] if echo else [""] * 4
        assert [choice["text"] for choice in choices] == wanted
        assert {choice["finish_reason"] for choice in choices} == {"length"}
        body = {"model": "tiny", "stream": True, **asked}
        *parts, _ = events(writing.post("/v1/completions", json=body))
        assert [part["choices"][0]["text"] for part in parts] == wanted


def test_prompts_of_tokens_are_read_as_they_are(writing):
    """Without BOS if they have none, which add_special_tokens=False leaves out of texts."""
    asked = {"max_tokens": 5, "logprobs": 0, "echo": True}
    (ours,) = completed(writing, prompt=ids_of("ab")[1:], **asked)
    (theirs,) = completed(writing, prompt="ab", add_special_tokens=False, **asked)
    assert ours == theirs
    assert ours["logprobs"]["tokens"][:2] == ["a", "b"]
    named = completed(writing, prompt="ab", return_tokens_as_token_ids=True, **asked)
    first = [f"token_id:{i}" for i in ids_of("ab")]
    assert named[0]["logprobs"]["tokens"][:3] == first


def test_tokens_and_texts_are_turned_into_one_another(writing):
    ids = ids_of("hello")
    for fields, wanted in (({}, ids), ({"add_special_tokens": False}, ids[1:])):
        answer = writing.post("/tokenize", json={"model": "tiny", "prompt": "hello"} | fields)
        assert (answer.json()["tokens"], answer.json()["count"]) == (wanted, len(wanted))
        answer = writing.post("/detokenize", json={"tokens": wanted})
        assert answer.json() == {"prompt": "hello"}
    info = writing.get("/tokenizer_info").json()
    for name, i in (("bos_token", 1), ("eos_token", 2)):
        asked = {"prompt": info[name], "add_special_tokens": False, "return_token_strs": True}
        answer = writing.post("/tokenize", json=asked).json()
        assert (answer["tokens"], answer["token_strs"]) == ([i], [info[name]])
    for path, body, param in (
        ("/tokenize", {}, "prompt"), ("/tokenize", {"model": "x", "prompt": ""}, "model"),
        ("/detokenize", {"tokens": [30]}, "tokens"),
    ):  # fmt: skip
        assert writing.post(path, json=body).json()["error"]["param"] == param
