"""What a classifier confuses: counted by hand, and from folders of pictures to a report."""

import dataclasses
import json

import numpy as np
import pytest
from PIL import Image
from test_inputs import PICTURE_MODEL, RNG
from test_predict import saved

from transformer_jax.api import TrainedModel
from transformer_jax.cli import evaluate
from transformer_jax.cli.main import dispatch
from transformer_jax.evaluation.confusion import by_class, table
from transformer_jax.plots.page import unpack

TRUE = ["cat", "cat", "cat", "dog", "dog", "eel"]
SAID = ["cat", "dog", "dog", "dog", "dog", "fox"]


def test_scores_of_each_class_match_counts_by_hand():
    found = by_class(TRUE, SAID)
    third = 100 / 3
    expected = [
        ("cat", 100.0, third, 50.0, 3, 1), ("dog", 50.0, 100.0, 200 / 3, 2, 4),
        ("eel", None, 0.0, 0.0, 1, 0), ("fox", 0.0, None, 0.0, 0, 1),
    ]  # fmt: skip
    for row, values in zip(found["scores"], expected, strict=True):
        assert tuple(row.values()) == pytest.approx(values)
    assert found["confusions"] == [("cat", "dog", 2), ("eel", "fox", 1)]
    assert found["confusion"] == [[1, 2, 0, 0], [0, 2, 0, 0], [0, 0, 0, 1], [0, 0, 0, 0]]
    lines = table(found)
    assert lines[1].split() == ["cat", "100.0", "33.3", "50.0", "3"]
    assert lines[3].split() == ["eel", "-", "0.0", "0.0", "1"]
    assert lines[-1] == "confused most: cat as dog (2), eel as fox (1)"
    many = [str(number) for number in range(101)]
    assert by_class(many, many)["confusion"] is None
    assert table(by_class(many, many))[-1] == "and 71 more classes, in the .json file"


@pytest.mark.thorough
def test_wrong_pictures_have_their_file_names(tmp_path, monkeypatch, capsys):
    """In the rows of eval.py and in the report, which also has the confusion matrix."""
    monkeypatch.setattr("transformer_jax.experiments.process.use_compilation_cache", lambda: None)
    for label in ("left", "right"):
        (tmp_path / "test" / label).mkdir(parents=True)
        for number in range(3):
            pixels = RNG.integers(0, 256, (20, 30, 3), np.uint8)
            Image.fromarray(pixels).save(tmp_path / "test" / label / f"{number}.png")
    data = dataclasses.replace(PICTURE_MODEL.experiment.data, directory=str(tmp_path))
    experiment = dataclasses.replace(PICTURE_MODEL.experiment, data=data)
    given = PICTURE_MODEL.model, PICTURE_MODEL.params, PICTURE_MODEL.tokenizers, [1]
    run = saved(TrainedModel(experiment, *given), tmp_path / "run")
    assert evaluate.main([f"--workdir={run}", "--checkpoint=last"]) == 0
    printed = capsys.readouterr().out
    assert "class  precision  recall     f1  count\n" in printed
    rows = [json.loads(x) for x in (run / "eval/test.last.jsonl").read_text().splitlines()]
    assert [row["file"] for row in rows] == [
        str(tmp_path / "test" / label / f"{number}.png")
        for label in ("left", "right") for number in range(3)
    ]  # fmt: skip
    written = json.loads((run / "eval/test.last.json").read_text())
    right = sum(row["right"] for row in rows)
    matrix = written["classes"]["confusion"]
    assert (sum(map(sum, matrix)), np.trace(matrix)) == (6, right)
    page = tmp_path / "report.html"
    assert dispatch(["report", f"{run}@last", f"--output={page}"]) == 0
    report = unpack(page.read_text())
    assert report["classes"] == [{"name": "run@last", **written["classes"]}]
    (drawn,) = report["gallery"]
    assert {row["file"] for row in drawn["examples"]} == {row["file"] for row in rows}
    assert not drawn["examples"][0]["right"]
