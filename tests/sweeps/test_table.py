"""The table of a sweep, from work directories as training leaves them."""

import csv
import dataclasses
import io
import json
import math

import by_formula
import pytest
from tiny import MODEL

from transformer_jax.cli.evaluate import label
from transformer_jax.cli.model import adjusted
from transformer_jax.config import Experiment
from transformer_jax.config.convert import to_json
from transformer_jax.runs.workdir import WorkDir, append_row
from transformer_jax.sweeps.points import Point
from transformer_jax.sweeps.scores import score_file
from transformer_jax.sweeps.sweep import Record
from transformer_jax.sweeps.table import (
    as_csv,
    as_markdown,
    as_text,
    measure,
    tabulate,
    training_minutes,
    write,
)


@pytest.fixture
def point(tmp_path):
    """Make a point as training would leave it: validations are (loss, BLEU) every 10 steps."""

    def make(variant="", code=0, validations=(), seconds=60.0, test_bleu=None, **settings) -> Point:
        model = dataclasses.replace(MODEL, d_ff=settings.get("model.d_ff", 24))
        experiment = Experiment(seed=settings.get("seed", 0), model=model)
        name = ",".join([variant, *(f"{k}={v}" for k, v in settings.items())])
        workdir = WorkDir(tmp_path / name)
        found = Point(variant, settings, experiment, workdir, ())
        if code is None:
            return found
        workdir.path.mkdir()
        workdir.config.write_text(to_json(experiment))
        for i, (loss, bleu) in enumerate(validations, 1):
            append_row(workdir.metrics, {"step": 10 * i, "loss": 9.0})
            row = {"step": 10 * i, "validation_loss": loss, "validation_bleu": bleu}
            append_row(workdir.metrics, row)
            rate = 10 * len(validations) / seconds
            append_row(workdir.timings, {"step": 10 * i, "time": 0.0, "steps_per_s": rate})
        if test_bleu is not None:
            workdir.eval.mkdir()
            text = json.dumps({"scores": {"BLEU": {"value": test_bleu}}})
            (workdir.eval / "test.best.json").write_text(text)
        Record(tmp_path).add(found, "train", code, 1.0)
        return found

    return make


def read(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_rows_are_sorted_by_the_best_validation(point, tmp_path):
    points = [
        point(validations=[(2.0, 10.0), (1.5, 12.0), (1.0, 11.0)], **{"model.d_ff": 8}),
        point(code=None, **{"model.d_ff": 16}),  # never started
        point(validations=[(3.0, 30.0)], **{"model.d_ff": 32}),
        point(validations=[(3.0, math.nan)], code=70, **{"model.d_ff": 64}),
    ]
    found = read(as_csv(tabulate(points, tmp_path, None)))
    assert [row["model.d_ff"] for row in found] == ["32", "8", "16", "64"]
    assert [row["state"] for row in found] == ["", "", "step 0 of 100000", "diverged"]
    assert float(found[1]["validation BLEU"]) == 12.0
    assert float(found[1]["validation perplexity"]) == pytest.approx(math.exp(1.5))  # same step
    assert found[2]["validation BLEU"] == ""
    assert float(found[1]["minutes"]) == pytest.approx(1.0)
    assert int(found[0]["parameters"]) == by_formula.parameters(
        dataclasses.replace(MODEL, d_ff=32), 32000, 32000
    )


def test_seeds_are_summarised_as_mean_and_spread(point, tmp_path):
    points = [
        point(seed=seed, validations=[(1.0, bleu)], **{"model.d_ff": d_ff})
        for d_ff, scores in ((8, (20.0, 22.0, 27.0)), (16, (30.0, 31.0, 32.0)))
        for seed, bleu in enumerate(scores)
    ]
    rows = tabulate(points, tmp_path, None)
    found = read(as_csv(rows))
    assert [row["model.d_ff"] for row in found] == ["16", "8"]
    assert [float(row["validation BLEU"]) for row in found] == [31.0, 23.0]
    assert [float(row["validation BLEU spread"]) for row in found] == [1.0, pytest.approx(13**0.5)]
    assert {row["seeds"] for row in found} == {"3"}
    assert "seed" not in found[0]
    assert "31.00 ± 1.00 (3)" in as_text(rows)


@pytest.mark.parametrize(
    ("code", "state"),
    [(75, "step 10 of 100000, exit code 75"), (70, "diverged"), (1, "exit code 1")],
)
def test_a_mean_is_over_points_that_are_trained(code, state, point, tmp_path):
    """One that was interrupted, diverged or failed is left out, and named; alone, it is shown."""
    points = [
        point(seed=0, validations=[(1.0, 30.0)], **{"model.d_ff": 8}),
        point(seed=1, validations=[(2.0, 10.0)], code=code, **{"model.d_ff": 8}),
        point(seed=2, validations=[(1.0, 32.0)], **{"model.d_ff": 8}),
        point(seed=0, validations=[(3.0, 5.0)], code=code, **{"model.d_ff": 16}),
    ]
    rows = tabulate(points, tmp_path, None)
    found = read(as_csv(rows))
    assert [float(row["validation BLEU"]) for row in found] == [31.0, 5.0]
    assert [row["seeds"] for row in found] == ["2", "1"]
    assert state in found[0]["state"]
    assert found[0]["state"].endswith(", left out of the mean")
    assert state in found[1]["state"]
    assert not found[1]["state"].endswith("mean")
    assert "31.00 ± 1.41 (2)" in as_text(rows)


def test_scores_of_a_split_and_published_figures(point, tmp_path):
    points = [
        point("b", validations=[(1.0, 10.0)], test_bleu=12.5),
        point("a", validations=[(1.0, 20.0)], test_bleu=25.0),
    ]
    published = {"a": {"BLEU": 25.8, "parameters (M)": None}, "b": {"BLEU": 24.0}}
    rows = tabulate(points, tmp_path, "test", published)
    assert as_text(rows).splitlines()[0].split("  ")[0] == "variant"
    found = read(as_csv(rows))
    assert [row["variant"] for row in found] == ["b", "a"]  # as given
    assert [float(row["test BLEU, beam"]) for row in found] == [12.5, 25.0]
    assert [float(row["published BLEU"]) for row in found] == [24.0, 25.8]
    assert "published parameters (M)" not in found[0]


def test_scores_with_other_search_settings_are_left_out(point, tmp_path):
    """The table says why, and the sweep scores the point again."""
    found = point("a", validations=[(1.0, 10.0)], test_bleu=12.5)
    file = found.workdir.eval / "test.best.json"
    for beam_size, due in ((4, []), (2, ["evaluate"])):
        written = {"scores": {"BLEU": {"value": 12.5}}, "decoding": {"beam_size": beam_size}}
        file.write_text(json.dumps(written))
        assert [name for name, _ in Record(tmp_path).due(found, "test")] == due
    (row,) = tabulate([found], tmp_path, "test")
    assert "test BLEU, beam" not in row.measured
    assert row.states == ["test was scored with decoding.beam_size=2 instead of 4"]


@pytest.mark.parametrize(
    ("path", "value"),
    [("decoding.beam_size", "2"), ("data.test", "newer"), ("evaluation.lowercase", "True")],
)
def test_a_finished_point_is_scored_with_the_current_settings(path, value, point, tmp_path):
    """The config.json of a finished run does not change; eval.py gets the difference, and names the
    scores as the table expects.
    """
    stored = point("a", validations=[(1.0, 10.0)], test_bleu=12.5)
    experiment = adjusted(stored.experiment, [(path, value)])
    found = dataclasses.replace(stored, experiment=experiment)
    ((program, words),) = Record(tmp_path).due(found, "test")
    assert (program, words[-1]) == ("evaluate", f"--config.{path}={value}")
    name = label(["a"], "best", stored.experiment, experiment)
    assert score_file(found, "test") == stored.workdir.eval / f"test.{name}.json"
    (row,) = tabulate([found], tmp_path, None)
    assert row.measured["validation BLEU"] == [10.0]


def test_text_markdown_and_csv_hold_the_same(point, tmp_path):
    points = [point(validations=[(1.0, 10.25)], **{"data.name": "a|b"}),
              point(validations=[(1.0, 5.5)], **{"data.name": "c"})]  # fmt: skip
    rows = tabulate(points, tmp_path, None)
    write(rows, tmp_path / "out")
    text, marks, values = (
        (tmp_path / "out" / f"table.{name}").read_text() for name in ("txt", "md", "csv")
    )
    assert (text, marks, values) == (as_text(rows), as_markdown(rows), as_csv(rows))
    lines = text.splitlines()
    assert lines[1].split()[::2] == ["a|b", "1.0", "2.72"]
    head, rule, first, second = marks.splitlines()
    assert head == "| data.name | parameters | minutes | validation BLEU | validation perplexity |"
    assert rule == "| --- | ---: | ---: | ---: | ---: |"
    assert first.startswith(r"| a\|b | ")
    assert second.endswith(" | 1.0 | 5.50 | 2.72 |")
    assert len({line.rindex(".") for line in lines[1:]}) == 1  # aligned
    assert [row["data.name"] for row in read(values)] == ["a|b", "c"]


def test_minutes_follow_from_the_logged_rates(point, tmp_path):
    found = point("x", validations=[(1.0, 1.0)] * 4, seconds=90.0)
    assert training_minutes(found) == measure(found, None)["minutes"] == pytest.approx(1.5)
    found.workdir.timings.unlink()  # as if shorter than training.log_every
    assert "minutes" not in measure(found, None)
