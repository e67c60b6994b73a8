"""/api/predict: classifiers of texts and of uploaded pictures, transcriptions of sounds."""

import io
import json
import random
import string
import wave

import numpy as np
import pytest
from PIL import Image
from server.conftest import served, service_of
from server.test_requests import LEAK
from test_decisions import PATHS, untrained
from test_inputs import FORECASTER, LARGE, PICTURE_MODEL, ROWS, SIDE, TEXT_MODEL
from test_predict import CTC

from transformer_jax.api import TrainedEnsemble
from transformer_jax.base.errors import UserError


@pytest.fixture(scope="module")
def texts(one_device):
    yield from served(service_of(TEXT_MODEL))


@pytest.fixture(scope="module")
def pictures(one_device):
    yield from served(service_of(PICTURE_MODEL, max_texts=2))


@pytest.fixture(scope="module")
def sounds(one_device):
    yield from served(service_of(CTC))


def png(pixels: np.ndarray) -> bytes:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "png")
    return content.getvalue()


def test_texts_are_classified(texts, monkeypatch):
    """As in Python; a text or several, as JSON or a form."""
    monkeypatch.setattr("transformer_jax.server.native._FEW", 3)  # computed at a time
    lines = ["abcdefghij"[:n] for n in range(1, 10)]
    assert texts.post("/api/predict", json={"texts": lines}).status_code == 413
    lines = lines[:8]
    found = texts.post("/api/predict", json={"texts": lines, "top": 1}).json()
    assert (found["model"], found["verb"]) == ("tiny", "classify")
    for row, shares in zip(found["results"], TEXT_MODEL.classify(lines), strict=True):
        best, share = next(iter(shares.items()))
        assert (row["class"], [*row["probabilities"]]) == (best, [best])
        assert row["probability"] == pytest.approx(share, abs=1e-6)
    (again,) = texts.post("/api/predict", data={"text": lines[0]}).json()["results"]
    assert again["class"] == found["results"][0]["class"]
    assert len(again["probabilities"]) == 2
    about = texts.get("/api/model").json()
    assert (about["predicts"], about["verb"], about["translates"]) == (True, "classify", False)
    for path in ("translate", "generate", "score"):
        assert texts.post(f"/api/{path}", json={}).status_code in (400, 404)


def test_uploaded_pictures_are_classified(pictures):
    files = [("file", ("a.png", png(LARGE))), ("file", ("b.jpg", png(LARGE[:, ::-1])))]
    found = pictures.post("/api/predict", files=files, data={"top": "2"}).json()["results"]
    assert [row["file"] for row in found] == ["a.png", "b.jpg"]
    expected = PICTURE_MODEL.classify([LARGE, LARGE[:, ::-1]])
    for row, shares in zip(found, expected, strict=True):
        assert row["probabilities"] == pytest.approx(shares, abs=1e-6)
        assert [*row["probabilities"]] == [*shares]


@pytest.mark.thorough
def test_uploaded_sounds_are_transcribed(sounds):
    samples = (np.arange(900) % 50 * 100).astype(np.int16)
    content = io.BytesIO()
    with wave.open(content, "wb") as file:
        file.setparams((1, 2, SIDE.sample_rate, 0, "NONE", ""))
        file.writeframes(samples.astype("<i2").tobytes())
    answer = sounds.post("/api/predict", files={"sound": ("a.wav", content.getvalue())}).json()
    (row,) = answer["results"]
    assert answer["verb"] == "transcribe"
    assert (row["file"], row["text"]) == ("a.wav", CTC.translate(samples))


@pytest.mark.thorough
def test_an_uploaded_series_is_continued(one_device):
    days = [f"2024-02-{day:02}" for day in range(1, 21)]
    lines = [
        f"{day},{','.join(map(str, row))}" for day, row in zip(days, ROWS.tolist(), strict=False)
    ]
    content = "\n".join(["date,wind,rain,sun", *lines]).encode()
    for client in served(service_of(FORECASTER)):
        answer = client.post("/api/predict", files={"x": ("days.csv", content)}).json()
        (row,) = answer["results"]
        assert row["columns"] == ["wind", "rain", "sun"]
        assert row["dates"] == [f"2024-02-{day}" for day in range(21, 25)]
        np.testing.assert_allclose(row["forecast"], FORECASTER.forecast(ROWS[:20]), rtol=1e-5)


def test_damaged_uploads_are_refused_without_details(pictures):
    """Whatever they hold, the server answers, and shows no path or object."""
    chance, whole = random.Random(0), png(LARGE)
    for _ in range(60):
        place = chance.randrange(len(whole))
        content = whole[:place] + chance.randbytes(chance.randrange(5)) + whole[place + 1 :]
        content = content[: chance.choice([len(whole), place])]
        name = "".join(chance.choices(string.printable[:90] + "é", k=6))
        answer = pictures.post("/api/predict", files={"x": (name, content)})
        assert answer.status_code in (200, 400), answer.text
        assert not LEAK.search(answer.text), answer.text
    assert pictures.get("/ready").status_code == 200


@pytest.mark.parametrize(
    ("given", "status", "message"),
    [
        (
            {"files": {"x": ("a.png", b"no picture")}},
            400,
            "a.png: cannot be read as a picture (of no",
        ),
        ({"files": [("x", ("a.png", b""))] * 3}, 413, "3 files, at most 2 allowed"),
        ({"json": {"text": "/etc/passwd"}}, 400, "this model reads files; send them in a form"),
        ({"json": {}}, 400, "this model reads files"),
        ({"files": {"x": ("a.png", b"x" * 30_000)}}, 413, "a body of more than 20000 bytes"),
    ],
)
def test_unsuitable_requests_are_refused(pictures, given, status, message):
    answer = pictures.post("/api/predict", **given)
    assert answer.status_code == status
    assert message in answer.json()["error"]["message"]


def test_texts_and_other_models_refuse_files(texts, translating):
    answer = texts.post("/api/predict", files={"x": ("a.txt", b"ab")})
    assert (answer.status_code, answer.json()["error"]["message"]) == (
        400, "x: is a file; send its text as a field"
    )  # fmt: skip
    answer = translating.post("/api/predict", json={"text": "ab"})
    assert answer.status_code == 404
    assert "see /api/model" in answer.json()["error"]["message"]


def test_ensembles_of_classifiers_are_rejected():
    ensemble = TrainedEnsemble([TEXT_MODEL, TEXT_MODEL])
    with pytest.raises(UserError, match=r"='classify': such a model neither translates nor"):
        service_of(ensemble)
    ensemble = TrainedEnsemble([PICTURE_MODEL, PICTURE_MODEL])
    with pytest.raises(UserError, match="serve: is for models that read text"):
        service_of(ensemble)


@pytest.mark.thorough
def test_an_agent_acts_after_an_uploaded_history(one_device):
    agent = untrained(PATHS)
    history = {"observations": [3, 5], "actions": [5], "rewards": [-1], "asked": -4}
    for client in served(service_of(agent)):
        files = {"x": ("now.json", json.dumps(history))}
        answer = client.post("/api/predict", files=files).json()
        assert (answer["verb"], answer["results"][0]["action"]) == ("act", agent.act(history))
        for content in (b"{", b"[]", b'{"observations": [99]}', b'{"observations": []}'):
            answer = client.post("/api/predict", files={"x": ("now.json", content)})
            assert answer.status_code == 400, answer.text
            assert not LEAK.search(answer.text), answer.text
