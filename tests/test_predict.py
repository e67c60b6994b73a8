"""`transformer-jax predict` and its verbs as users run them, on a tiny random model for each."""

import csv
import dataclasses
import io
import json
import logging
import sys
import wave
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_inputs import (
    CLASSES,
    ENCODER,
    FORECASTER,
    LARGE,
    PICTURE_MODEL,
    ROWS,
    SIDE,
    SOUND,
    TEXT,
    TEXT_MODEL,
    WRITER,
    trained,
)

import transformer_jax
from transformer_jax.api import TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.cli.main import dispatch
from transformer_jax.config import (
    DataConfig,
    DecodingConfig,
    ObjectiveConfig,
    SideConfig,
    SourceConfig,
    TokenizerConfig,
)
from transformer_jax.data.codecs import characters, labels, spans, values
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.sources.series_files import following
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.runs.workdir import WorkDir

OF_TEXT = {"src": SourceConfig("characters"), "tokenizer": TokenizerConfig(joint=False)}
TWO = dataclasses.replace(ENCODER, token_types=2)
OURS = TokenizerConfig()
CTC = trained(
    TokenizerPair(SOUND, TEXT), model=dataclasses.replace(ENCODER, stem="conv1d"),
    data=DataConfig(source="wavs"), objective=ObjectiveConfig("ctc"), src=SIDE,
    tgt=SideConfig("characters"), tokenizer=TokenizerConfig(joint=False),
)  # fmt: skip
MODELS = {
    "pictures": PICTURE_MODEL, "texts": TEXT_MODEL, "series": FORECASTER, "sounds": CTC,
    "words": trained(
        TokenizerPair(TEXT, labels.train(OURS, ["B O"], ())), model=ENCODER, **OF_TEXT,
        objective=ObjectiveConfig("tag", window=16), tgt=SideConfig("labels"),
    ),
    "questions": trained(
        TokenizerPair(TEXT, spans.train(OURS, ["1 0 0\t0\ta"], ())), model=TWO, **OF_TEXT,
        objective=ObjectiveConfig("answer", window=24), tgt=SideConfig("spans"),
    ),
    "numbers": trained(
        TokenizerPair(TEXT, values.train(OURS, ["1", "3"], ())), model=ENCODER, **OF_TEXT,
        objective=ObjectiveConfig("regress", window=16), tgt=SideConfig("values"),
    ),
    "pairs": trained(
        TokenizerPair(TEXT, CLASSES), model=TWO, **OF_TEXT,
        objective=ObjectiveConfig("classify_pairs", window=16), tgt=SideConfig("classes"),
    ),
}  # fmt: skip


def saved(model: TrainedModel, place: Path) -> Path:
    """Write the work directory of a model."""
    workdir = WorkDir(place)
    with workdir.claim(model.experiment):
        model.tokenizers.save(place)
        checkpoints = Checkpoints(workdir.checkpoints, model.experiment.checkpoint)
        checkpoints.save(1, model.params, {}, {}, {"loss": 1.0})
        checkpoints.close()
    return place


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A folder with the work directories of all models."""
    place = tmp_path_factory.mktemp("runs")
    for name, model in MODELS.items():
        saved(model, place / name)
    return place


@pytest.fixture(scope="module", autouse=True)
def own_settings(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformer_jax.experiments.process.use_compilation_cache", lambda: None)
        yield


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Path:
    """Pictures, sounds and a series, with other files beside them."""
    place = tmp_path_factory.mktemp("files")
    for name in ("b/two.png", "a/one.jpg", "a/.hidden.png"):
        (place / "pictures" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(LARGE).save(place / "pictures" / name)
    (place / "pictures/notes.txt").write_text("not a picture")
    for number in (1, 2):
        with wave.open(str(place / f"{number}.wav"), "wb") as file:
            file.setparams((1, 2, SIDE.sample_rate, 0, "NONE", ""))
            file.writeframes((np.arange(400 * number) % 50 * 100).astype("<i2").tobytes())
    days = [f"2024-02-{1 + i // 24:02} {i % 24:02}:00:00" for i in range(len(ROWS))]
    lines = [
        f"{day},{','.join(map(str, row))}" for day, row in zip(days, ROWS.tolist(), strict=True)
    ]
    (place / "hours.csv").write_text("\n".join(["date,wind,rain,sun", *lines]) + "\n")
    return place


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a command line, with a text as standard input; return what it prints."""

    def command(*argv: object, text: str = "") -> str:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert dispatch([str(word) for word in argv]) == 0
        return capsys.readouterr().out

    return command


def tables(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_pictures_in_folders_are_classified_in_order(run, runs, files, tmp_path):
    """As in Python; in each format the files have their names, and other files are left alone."""
    run_of = f"--workdir={runs / 'pictures'}"
    expected = PICTURE_MODEL.classify(LARGE)
    names = [str(files / "pictures" / name) for name in ("a/one.jpg", "b/two.png")]
    rows = tables(run("predict", run_of, "--format=csv", files / "pictures"))
    assert [row["file"] for row in rows] == names
    assert [*rows[0]] == ["file", "class", "probability", "class_2", "probability_2"]
    assert {rows[1]["class"]: float(rows[1]["probability"]),
            rows[1]["class_2"]: float(rows[1]["probability_2"])} == expected  # fmt: skip
    one = json.loads(run("classify", run_of, "--format=jsonl", "--top=1", names[1]))
    best, probability = next(iter(expected.items()))
    assert one == {"file": names[1], "class": best, "probability": probability,
                   "probabilities": {best: probability}}  # fmt: skip
    assert run("classify", run_of, "--top=1", text=f"{names[1]}\n") == (
        f"{names[1]}\t{best} {probability:.3f}\n"
    )
    assert run("classify", run_of, names[0], f"--output={tmp_path / 'found.jsonl'}") == ""
    assert json.loads((tmp_path / "found.jsonl").read_text())["file"] == names[0]
    assert transformer_jax.load(runs / "pictures").predict(names[1], top=1) == {
        key: value for key, value in one.items() if key != "file"
    }


def test_a_malformed_file_is_named_and_may_be_left_out(run, runs, files, tmp_path, caplog):
    (tmp_path / "broken.png").write_bytes(b"no picture")
    Image.fromarray(LARGE).save(tmp_path / "whole.png")
    argv = "classify", f"--workdir={runs / 'pictures'}", tmp_path, "--top=1"
    with pytest.raises(UserError, match=r"broken\.png: cannot be read as .*; --skip leaves such"):
        run(*argv)
    with caplog.at_level(logging.WARNING, logger="transformer_jax"):
        assert run(*argv, "--skip").startswith(f"{tmp_path / 'whole.png'}\t")
    assert "broken.png: cannot be read as a picture" in caplog.text


def test_lines_of_text(run, runs, tmp_path):
    """From files and standard input; with the file and the number of each line."""
    (tmp_path / "one.txt").write_text("abc\ncab\n")
    (tmp_path / "two.txt").write_text("a b\n")
    rows = run("predict", f"--workdir={runs / 'texts'}", "--format=jsonl", tmp_path).splitlines()
    found = [json.loads(row) for row in rows]
    places = [(Path(row["file"]).name, row["line"], row["input"]) for row in found]
    assert places == [("one.txt", 1, "abc"), ("one.txt", 2, "cab"), ("two.txt", 1, "a b")]
    expected = TEXT_MODEL.classify(["abc", "cab", "a b"])
    assert [row["probabilities"] for row in found] == expected
    (text,) = run("predict", f"--workdir={runs / 'texts'}", text="abc\n").splitlines()
    assert text == ", ".join(f"{name} {p:.3f}" for name, p in expected[0].items())
    pairs = run("classify", f"--workdir={runs / 'pairs'}", "--format=csv", text="ab\tcd\n")
    assert tables(pairs)[0]["input"] == "ab\tcd"
    argv, text = ("classify", f"--workdir={runs / 'pairs'}"), "ab\nab\tcd\n"
    with pytest.raises(UserError, match="standard input:1: text 1: must be two texts separated by"):
        run(*argv, text=text)
    (row,) = run(*argv, "--skip", "--format=jsonl", text=text).splitlines()
    assert json.loads(row)["line"] == 2


def test_words_answers_and_numbers(run, runs):
    """Each is what the method of the same name returns in Python."""
    text, model = "ab cd e\n", MODELS["words"]
    said = run("tag", f"--workdir={runs / 'words'}", text=text)
    assert said.split() == model.tag("ab cd e")
    rows = tables(run("tag", f"--workdir={runs / 'words'}", "--format=csv", text=text))
    assert [(row["number"], row["word"], row["label"]) for row in rows] == [
        (str(n), *pair) for n, pair in enumerate(zip(text.split(), said.split(), strict=True), 1)
    ]
    line = "a b\tcd ef gh\n"
    found = json.loads(
        run("answer", f"--workdir={runs / 'questions'}", "--format=jsonl", text=line)
    )
    expected = MODELS["questions"].answer("a b", "cd ef gh")
    assert (found["answer"], found["begin"]) == expected[:2]
    assert found["probability"] == pytest.approx(np.exp(expected.log_prob))
    number = MODELS["numbers"].value("abc")
    assert run("predict", f"--workdir={runs / 'numbers'}", text="abc\n") == f"{number:.6g}\n"


def test_sounds_are_transcribed(run, runs, files):
    names = [str(files / f"{number}.wav") for number in (1, 2)]
    expected = CTC.translate(names)
    assert run("transcribe", f"--workdir={runs / 'sounds'}", files) == "".join(
        f"{name}\t{text}\n" for name, text in zip(names, expected, strict=True)
    )
    found = json.loads(run("predict", f"--workdir={runs / 'sounds'}", "--format=jsonl", names[1]))
    assert (found["file"], found["text"]) == (names[1], expected[1])
    assert found["log_prob"] < 0


def test_a_series_is_continued_beyond_its_end(run, runs, files, tmp_path):
    """With the dates that follow, the names of columns, and a drawing."""
    path, argv = files / "hours.csv", ["forecast", f"--workdir={runs / 'series'}"]
    expected, deciles = FORECASTER.forecast(ROWS, deciles=True)
    rows = tables(run(*argv, path, "--format=csv", f"--plot={tmp_path / 'hours.svg'}"))
    assert [row["date"] for row in rows] == [f"2024-02-02 {hour}:00:00" for hour in range(16, 20)]
    for number, name in enumerate(("wind", "rain", "sun")):
        assert [float(row[name]) for row in rows] == expected[:, number].tolist()
        assert [float(row[f"{name} 90 %"]) for row in rows] == deciles[:, number, 8].tolist()
    drawn = (tmp_path / "hours.svg").read_text()
    assert "wind" in drawn
    assert "forecast" in drawn
    found = json.loads(run(*argv, path, "--format=jsonl"))
    assert found["dates"] == [row["date"] for row in rows]
    assert np.array_equal(found["deciles"], deciles)
    assert found == {"file": str(path)} | transformer_jax.load(runs / "series").predict(path)
    (tmp_path / "any.csv").write_text(path.read_text().replace("2024-02-01 03", "some day"))
    assert run(*argv, tmp_path / "any.csv").splitlines()[1:3] == [
        "date\twind\train\tsun", "+1\t" + "\t".join(f"{x:.6g}" for x in expected[0])
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("dates", "expected"),
    [
        (["2016-06-26 22:00:00", "2016-06-26 23:00:00"], ["2016-06-27 00:00:00"]),
        (["2020-02-28", "2020-02-29"], ["2020-03-01", "2020-03-02"]),
        (["2019-12-31", "2020-01-31", "2020-02-29"], ["2020-03-31", "2020-04-30"]),
        (["2020-01-01", "2020-04-01", "2020-07-01"], ["2020-10-01", "2021-01-01"]),
        (["2020-11", "2020-12"], ["2021-01"]), (["31.12.2020", "01.01.2021"], ["02.01.2021"]),
        (["1998", "2000"], ["2002", "2004"]), (["0", "1", "2"], ["3"]),
        (["2020-01-01", "2020-01-02", "2020-01-05"], []), (["1", "1"], []), (["a", "b"], []),
        (["9999-12-30", "9999-12-31"], []), (["2020-01-01"], []), ([], []),
    ],
)  # fmt: skip
def test_dates_go_on_if_they_have_a_constant_step(dates, expected):
    assert list(following(dates, len(expected) or 3)) == expected


def test_a_language_model_continues_lines(run, tmp_path):
    decoding = DecodingConfig(search="beam", beam_size=1)
    model = TrainedModel(
        dataclasses.replace(WRITER.experiment, decoding=decoding), WRITER.model, WRITER.params,
        WRITER.tokenizers, [1],
    )  # fmt: skip
    saved(model, tmp_path / "run")
    found = run("predict", f"--workdir={tmp_path / 'run'}", "--format=jsonl", text="ab\n")
    assert json.loads(found)["text"] == model.generate("ab")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["tag", "pictures"], r"tag: .*objective.name='classify'; use `transformer-jax classify`"),
        (["classify", "numbers"], r"classify: .*='regress'; use `transformer-jax predict`"),
        (["classify", "sounds"], r"classify: .*='ctc'; use `transformer-jax transcribe`"),
        (["predict", "words", "--top=2"], "--top=2: is for models that predict classes"),
        (["predict", "texts", "--top=0"], "--top=0: must be at least 1"),
        (["predict", "texts", "--plot=a.svg"], "--plot=a.svg: is for forecasts; leave it out"),
        (["forecast", "series", "--plot=a.svg"], "--plot=a.svg: draws the forecast of one file"),
        (["predict", "pictures", "nowhere"], "nowhere: there is no such file or folder"),
        (["predict", "sounds", "pictures"], r"pictures: holds no sound files named \*.wav; name a"),
        (["predict", "texts", "--output=no/where"], "must be a file in a directory that exists"),
        (
            ["predict", "texts", "pictures/notes.txt", "--output=pictures/notes.txt"],
            "--output=pict"
            r"ures/notes.txt: is one of the input files; name another",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(argv, message, run, runs, files, monkeypatch):
    monkeypatch.chdir(files)
    verb, name, *options = argv
    with pytest.raises(UserError, match=message):
        run(verb, f"--workdir={runs / name}", *options)


def test_models_without_a_verb_say_so():
    codec = characters.train(OURS, ["ab"], ("<mask>",))
    masked = trained(
        TokenizerPair(codec, codec), model=ENCODER, tgt=SideConfig("characters"),
        objective=ObjectiveConfig("masked_lm", window=16),
    )  # fmt: skip
    with pytest.raises(UserError, match=r"='masked_lm': such a model predicts pieces from .*init"):
        masked.predict("ab")
