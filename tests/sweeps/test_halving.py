"""Successive halving with points whose training is a line of Python: rungs, resuming, account."""

import dataclasses
import sys

import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.config import CheckpointConfig, EvaluationConfig, Experiment, TrainingConfig
from transformer_jax.config.convert import to_json
from transformer_jax.runs.workdir import WorkDir
from transformer_jax.sweeps import halving
from transformer_jax.sweeps.points import Point

STEPS, EVERY = 90, 10
# Stands in for the training program, which goes on from its last row to the pause or the end.
TRAIN = """
import json, pathlib
place = pathlib.Path({place!r}); place.mkdir(parents=True, exist_ok=True)
(place / "config.json").write_text({config!r})
file = place / "metrics.jsonl"
done = len(file.read_text().splitlines()) if file.exists() else 0
with open(place / "starts", "a") as starts: starts.write("%d " % done)
with open(file, "a") as rows:
    for step in range(10 * (done + 1), {end} + 1, 10):
        row = {{"step": step, "validation_loss": {loss} and {loss} + 1 / step - 1}}
        rows.write(json.dumps(row) + "\\n")
raise SystemExit({code})
"""


@dataclasses.dataclass(frozen=True)
class Fake(Point):
    loss: float | None = 1.0
    code: int = 0

    def train_command(self):
        training = self.experiment.training
        text = TRAIN.format(
            place=str(self.workdir.path), config=to_json(self.experiment), loss=self.loss,
            end=training.pause or training.steps, code=self.code,
        )  # fmt: skip
        return [sys.executable, "-c", text]

    @property
    def starts(self) -> str:
        return (self.workdir.path / "starts").read_text()


class Watcher:
    def started(self, point, program): ...
    def waits(self, point): ...
    def running(self, points): ...
    def ended(self, point, code, last_line): ...


@pytest.fixture
def points(tmp_path):
    base = Experiment(
        training=TrainingConfig(steps=STEPS),
        checkpoint=CheckpointConfig(every_steps=EVERY, best_by="loss"),
        evaluation=EvaluationConfig(every_steps=EVERY, bleu_sentences=0),
    )
    return [
        Fake(
            "", {"seed": i}, dataclasses.replace(base, seed=i), WorkDir(tmp_path / f"seed={i}"), (),
            float((i - 6) ** 2) + 1,
        )
        for i in range(9)
    ]  # fmt: skip


def test_the_best_third_goes_on_from_where_it_stopped(points, tmp_path):
    code, account = halving.run(points, tmp_path, 1, 3, None, Watcher())
    assert code == 0
    assert [point.starts for point in points] == ["0 "] * 5 + ["0 1 ", "0 1 3 ", "0 1 ", "0 "]
    assert account.rungs == [(9, "10"), (3, "30"), (1, "90")]
    assert account.updates == 6 * 10 + 2 * 30 + 90
    assert halving.further(9, 3) == 3 + 1
    assert account.looks == 6 * 1 + 2 * 3 + 9
    first, best = account.lines(9)
    assert "9 to update 10, 3 to update 30, 1 to update 90; 210 of the 810 updates" in first
    assert "26%" in first
    assert best.startswith(
        "best: seed=6, validation loss 0.01111, chosen among 21 validations of 9"
    )


def test_the_same_command_resumes_and_trains_nothing_twice(points, tmp_path):
    """After an interruption in the middle of the second rung, and after the end."""
    stopped = dataclasses.replace(points[6], code=75)
    code, account = halving.run(
        [*points[:6], stopped, *points[7:]], tmp_path, 1, 3, None, Watcher()
    )
    assert (code, account.rungs) == (75, [])
    halving.run(points, tmp_path, 1, 3, None, Watcher())
    done = [point.starts for point in points]
    assert done[6] in ("0 1 3 ", "0 1 1 3 ")
    code, account = halving.run(points, tmp_path, 1, 3, None, Watcher())
    assert (code, [point.starts for point in points]) == (0, done)
    assert account.best.name == "seed=6"


def test_diverged_points_do_not_go_on(points, tmp_path):
    points[6] = dataclasses.replace(points[6], loss=None, code=70)
    code, account = halving.run(points, tmp_path, 2, 3, None, Watcher())
    assert code in (0, 70)
    assert account.best.name in ("seed=5", "seed=7")


@pytest.mark.parametrize(
    ("count", "factor", "every", "message"),
    [
        (9, 1, 10, r"--halve=1: must be at least 2"),
        (2, 3, 10, r"--halve=3: of 2 points none would go on"),
        (9, 3, 40, r"evaluation.every_steps=40: .* about 10 of 90 updates"),
    ],
)
def test_what_cannot_be_halved_is_refused(points, count, factor, every, message):
    some = [
        dataclasses.replace(
            point,
            experiment=dataclasses.replace(
                point.experiment,
                evaluation=EvaluationConfig(every_steps=every, bleu_sentences=0),
            ),
        )
        for point in points[:count]
    ]
    with pytest.raises(UserError, match=message):
        halving.check(some, factor)


def test_points_that_may_end_before_a_rung_are_refused(points):
    training = dataclasses.replace(points[0].experiment.training, early_stopping=3)
    early = dataclasses.replace(points[0].experiment, training=training)
    with pytest.raises(UserError, match=r"training.early_stopping=3: .* set it to None"):
        halving.check([dataclasses.replace(points[0], experiment=early), *points[1:]], 3)
    halving.check(points, 3)
