"""Trackers follow metrics.jsonl: every row once, whatever fails, ends or goes on."""

import dataclasses
import json
import typing

import pytest
from tiny import RUN

from transformer_jax.base.errors import UserError
from transformer_jax.config import TrainingConfig
from transformer_jax.runs.workdir import WorkDir, append_row, write_rows
from transformer_jax.training import trackers

ROWS = [
    {"step": 1, "loss": 3.0, "grad_norm": None},
    {"step": 2, "loss": 2.0},
    {"step": 2, "validation_loss": 2.5},
    {"step": 3, "loss": 1.5},
]
VALUES = [
    (1, {"train/loss": 3.0}), (2, {"train/loss": 2.0}), (2, {"validation/loss": 2.5}),
    (3, {"train/loss": 1.5}),
]  # fmt: skip


class Recorder:
    """A tracker that keeps what it is sent, by run."""

    def __init__(self, runs: dict) -> None:
        self.runs = runs

    def begin(self, known, config):
        assert config["model.d_model"] == RUN.model.d_model
        self.run = known or f"run {len(self.runs)}"
        self.sent = self.runs.setdefault(self.run, [])
        return self.run

    def send(self, step, values):
        self.sent.append((step, values))

    def end(self, page, finished):
        self.sent.append((page, finished))


@pytest.fixture
def runs(monkeypatch):
    """What trackers called "wandb" were sent, by run."""
    found: dict[str, list] = {}
    monkeypatch.setitem(trackers.TRACKERS, "wandb", lambda *_: Recorder(found))
    return found


@pytest.fixture
def workdir(tmp_path):
    found = WorkDir(tmp_path / "run")
    found.path.mkdir()
    return found


def follow(workdir, rows, finished=True, words=("wandb",), page=lambda path: f"<p>{path.name}"):
    """Write rows as a run does, before the tracker is sent them."""
    experiment = dataclasses.replace(
        RUN, training=dataclasses.replace(RUN.training, trackers=words)
    )
    with trackers.Trackers(experiment, workdir, page) as all_of_them:
        all_of_them.begin()
        for row in rows:
            append_row(workdir.metrics, row)
            all_of_them.row(row)
        all_of_them.finished = finished


def test_every_row_is_sent_and_the_report(workdir, runs):
    follow(workdir, ROWS)
    assert runs == {"run 0": [*VALUES, ("<p>run", True)]}


def test_a_resumed_run_goes_on_in_the_same_run_and_repeats_no_row(workdir, runs):
    """Rows after the last checkpoint are written again; a run that did not finish has no report."""
    follow(workdir, ROWS[:3], finished=False)
    write_rows(workdir.metrics, ROWS[:1])
    follow(workdir, ROWS[1:])
    assert runs == {"run 0": [*VALUES[:3], (None, False), VALUES[3], ("<p>run", True)]}


def test_rows_from_before_a_tracker_was_chosen_are_sent(workdir, runs):
    follow(workdir, ROWS[:2], words=())
    assert not workdir.trackers.exists()
    follow(workdir, ROWS[2:])
    assert runs == {"run 0": [*VALUES, ("<p>run", True)]}


@pytest.mark.parametrize("method", ["begin", "send", "end"])
def test_a_tracker_that_fails_stops_nothing(workdir, runs, monkeypatch, caplog, method):
    """Once it works again, it is sent all that it missed."""

    def fail(*_):
        raise OSError("no route to host\nand much more")

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, method, fail)
        follow(workdir, ROWS[:3])
    assert "wandb: OSError: no route to host; training goes on without it" in caplog.text
    follow(workdir, ROWS[3:])
    sent = [item for item in runs["run 0"] if isinstance(item[1], dict)]
    assert sent == VALUES


def test_a_tracker_that_hangs_is_left(workdir, runs, monkeypatch, caplog):
    monkeypatch.setattr(trackers, "PATIENCE", 0.1)
    held = trackers.threading.Event()
    monkeypatch.setattr(Recorder, "send", lambda *_: held.wait())
    follow(workdir, ROWS)
    held.set()
    assert "wandb: did not take all rows within 0.1 seconds" in caplog.text


def test_a_report_that_cannot_be_made_stops_nothing(workdir, runs, caplog):
    def fail(_):
        raise ValueError("no such picture")

    follow(workdir, ROWS, page=fail)
    assert "trackers get no report: no such picture" in caplog.text
    assert runs == {"run 0": [*VALUES, (None, True)]}


@pytest.mark.parametrize("folder", [False, True])
def test_a_library_that_is_not_installed_is_named(monkeypatch, tmp_path, folder):
    """A folder of its name, as the one where Weights & Biases keeps runs, is not the library."""
    if folder:
        (tmp_path / "no_such_library").mkdir()
        monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(trackers.TRACKERS, "no_such_library", None)
    with pytest.raises(UserError, match=r"'no_such_library' is not installed; pip install no_s"):
        trackers.check(("tensorboard", "no_such_library"))
    trackers.check(("tensorboard",))


def test_every_word_has_a_tracker():
    words = typing.get_args(typing.get_args(typing.get_type_hints(TrainingConfig)["trackers"])[0])
    assert set(words) == {"tensorboard", *trackers.TRACKERS}


def test_its_state_is_one_line_of_json(workdir, runs):
    follow(workdir, ROWS[:2])
    text = (workdir.trackers / "wandb.json").read_text()
    assert json.loads(text) == {"run": "run 0", "last": [2, 0]}
