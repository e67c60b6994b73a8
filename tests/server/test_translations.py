"""The server's translations equal those of `translate`, whatever else is being translated."""

import concurrent.futures
import contextlib
import dataclasses
import functools
import json
import random

import numpy as np
import pytest
from decoding.lines import BEAM, LINES
from decoding.test_shortlist import lexicon
from server.conftest import served, service_of, translator

from transformer_jax.api.stored import Companions
from transformer_jax.decoding.text.score import score_pairs

WORDS = ["a", "dog", "runs", "two", "men", "walk", "the", "man"]


LONG = " ".join(WORDS * 4)
MANY = [" ".join(random.Random(n).choices(WORDS, k=n % 5)) for n in range(40)]


@functools.cache
def offline():
    """Return the results of `translate --n-best=3 --alignments` for all lines here, in one call."""
    lines, begun = list(dict.fromkeys([*LINES, *MANY])), ["a dog runs", LONG, ""]
    trained = translator()
    found = trained.translator(n_best=3).hypotheses(
        trained.params, [*lines, *begun], prefixes=[""] * len(lines) + ["the"] * 3, align=True
    )
    keys = [*((line, "") for line in lines), *((line, "the") for line in begun)]
    return dict(zip(keys, found, strict=True))


def expected(lines, n_best=1, prefix=""):
    """Return the first `n_best`: the search makes all three exact, so a shorter list agrees."""
    return [offline()[line, prefix][:n_best] for line in lines]


@pytest.mark.thorough
def test_interleaved_requests_are_answered_as_if_alone(translating):
    """Requests of several sizes, from five clients at once, in any order."""
    chance = random.Random(3)
    requests = [
        {"texts": chance.sample(LINES, chance.randint(1, 3)), "n_best": chance.randint(1, 3)}
        for _ in range(40)
    ]
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        answers = list(pool.map(lambda r: translating.post("/api/translate", json=r), requests))
    for request, answer in zip(requests, answers, strict=True):
        assert answer.status_code == 200, answer.text
        results = [row["translations"] for row in answer.json()["results"]]
        wanted = expected(request["texts"], request["n_best"])
        assert [[t["text"] for t in row] for row in results] == [
            [t.text for t in row] for row in wanted
        ]
        for row, theirs in zip(results, wanted, strict=True):
            scores = [t["score"] for t in row], [t.score for t in theirs]
            np.testing.assert_allclose(*scores, rtol=1e-4)


@pytest.mark.thorough
def test_shortlists_are_computed_for_each_source_alone(one_device, monkeypatch):
    """They hold that source's likeliest pieces, whatever else is being translated."""
    monkeypatch.setattr(Companions, "lexicon", lambda *_: lexicon())
    few = dataclasses.replace(BEAM, shortlist=12)
    trained = translator()
    trained.experiment = dataclasses.replace(trained.experiment, decoding=few)
    wanted = trained.translate(MANY)
    assert wanted != translator().translate(MANY)
    with contextlib.contextmanager(served)(service_of(trained)) as client:
        rows = client.post("/api/translate", json={"texts": MANY[:8]}).json()["results"]
    assert [row["translations"][0]["text"] for row in rows] == wanted[:8]


def test_prefixes_and_alignments(translating):
    """They match `translate`, also for a line that is translated in parts."""
    body = {"texts": ["a dog runs", LONG, ""], "alignments": True, "prefix": "the"}
    rows = translating.post("/api/translate", json=body).json()["results"]
    wanted = expected(body["texts"], prefix="the")
    for row, (theirs, *_) in zip(rows, wanted, strict=True):
        (ours,) = row["translations"]
        assert (ours["text"], ours["alignments"]) == (
            theirs.text,
            [[*p] for p in theirs.alignments],
        )
    refused = translating.post("/api/translate", json={"text": "a", "prefix": " ".join(WORDS * 9)})
    assert (refused.status_code, "prefix: " in refused.text) == (400, True)


def test_scores_of_pairs(translating):
    trained = translator()
    body = {"sources": LINES[2:4], "targets": LINES[3:5]}
    rows = translating.post("/api/score", json=body).json()["results"]
    wanted = score_pairs(trained.loaded, *body.values())
    np.testing.assert_allclose([r["total"] for r in rows], [s.total for s in wanted], rtol=1e-4)
    for body in ({"texts": ["a"]}, {"sources": ["a"], "targets": []}, {"sources": ["a"]}):
        assert translating.post("/api/score", json=body).status_code == 400
    body = {"sources": ["a"], "targets": [" ".join(WORDS * 9)]}
    assert "shorten it" in translating.post("/api/score", json=body).json()["error"]["message"]


def test_batches_are_answered_line_by_line(translating):
    answer = translating.post("/api/batches", json={"texts": MANY})
    assert answer.headers["content-type"] == "application/x-ndjson"
    rows = {row["index"]: row for row in map(json.loads, answer.text.splitlines())}
    found = [rows[n]["translations"][0]["text"] for n in range(len(MANY))]
    assert found == [t.text for (t,) in expected(MANY)]
    for wrong in ({"n_best": 99}, {"prefix": " ".join(WORDS * 9)}):
        body = {"texts": ["a"]} | wrong
        assert translating.post("/api/batches", json=body).status_code == 400


def test_libretranslate_api(translating):
    """Texts are translated line by line; alternatives, lists, forms and languages."""
    (one, two), several = expected(["a dog runs"], 2)[0], expected(["two men walk", "a man"])
    form = translating.post("/translate", data={"q": "a dog runs", "source": "en", "target": "de"})
    assert form.json() == {"translatedText": one.text}
    body = {"q": ["a dog runs"], "source": "auto", "target": "de", "alternatives": 1}
    assert translating.post("/translate", json=body).json() == {
        "translatedText": [one.text], "alternatives": [[two.text]],
        "detectedLanguage": [{"confidence": 0, "language": "en"}],
    }  # fmt: skip
    answer = translating.post(
        "/translate", json={"q": "two men walk\n\na man", "target": "de"}
    ).json()
    assert answer["translatedText"] == f"{several[0][0].text}\n\n{several[1][0].text}"
    codes = {row["code"]: row["targets"] for row in translating.get("/languages").json()}
    assert codes == {"en": ["de"], "de": []}
    assert translating.post("/detect", data={"q": "x"}).json()[0]["language"] == "en"
    for wrong in ({"target": "fr"}, {"source": "de"}, {"alternatives": 3}, {"format": "pdf"}):
        refused = translating.post("/translate", json={"q": "a", "target": "de"} | wrong)
        assert refused.status_code == 400
        assert list(refused.json()) == ["error"]
    nothing = translating.post("/translate", data={"source": "en", "target": "de"}).json()
    assert nothing == {"error": "Invalid request: missing q parameter"}


def test_model_info_and_missing_endpoints(translating):
    about = translating.get("/api/model").json()
    assert (about["translates"], about["generates"], about["hypotheses"]) == (True, False, 3)
    page = translating.get("/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "http" not in page.text
    assert translating.post("/api/generate", json={"prompt": "a"}).status_code == 404
    assert translating.post("/v1/completions", json={"model": "tiny"}).json()["error"]["code"]


PATHS = {
    "/api/predict": {"text": "a"},
    "/api/translate": {"text": "a"}, "/translate": {"q": "a", "target": "de"}, "/api/model": None,
    "/metrics": None, "/reload": {}, "/v1/models": None, "/api/score": {}, "/detect": {"q": "a"},
    "/api/generate": {"prompt": "a"}, "/api/batches": {"texts": ["a"]}, "/v1/models/tiny": None,
    "/v1/completions": {"model": "tiny", "prompt": "a"}, "/v1/chat/completions": {},
    "/tokenize": {"prompt": "a"}, "/detokenize": {"tokens": []}, "/tokenizer_info": None,
}  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_requests_without_the_key_are_rejected(translating, monkeypatch, path):
    service, body = translating.service, PATHS[path]
    monkeypatch.setattr(service, "settings", dataclasses.replace(service.settings, key="sésame"))

    def status(key: str | None) -> int:
        headers = {} if key is None else {"authorization": b"Bearer " + key.encode()}
        if body is None:
            return translating.get(path, headers=headers).status_code
        return translating.post(path, headers=headers, json=body).status_code

    assert [status(None), status("no"), status("")] == [401] * 3
    assert status("sésame") != 401
    if path in ("/translate", "/detect"):
        assert translating.post(path, json=body | {"api_key": "sésame"}).status_code == 200
        assert translating.post(path, json=body | {"api_key": "sesame"}).status_code == 401
    assert translating.get("/").status_code == translating.get("/health").status_code == 200
