"""The training loop alone: a step that only counts, given validations, a simulated clock."""

import dataclasses
import errno
import functools
import json
import math
import os
import shutil
import signal
import threading

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from tiny import TRANSLATE, random_store

from transformer_jax.config import (
    CheckpointConfig,
    DataConfig,
    EvaluationConfig,
    Experiment,
    MeshConfig,
    TrainingConfig,
)
from transformer_jax.data.batches.batching import BatchSource, BucketPlan, items_of
from transformer_jax.runs import retention
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.runs.workdir import WorkDir, WorkDirGone, read_rows
from transformer_jax.sharding.mesh import make_mesh, place_batch
from transformer_jax.training import heartbeat, loop
from transformer_jax.training import report as report_module
from transformer_jax.training.loop import Outcome, Progress, Run, train
from transformer_jax.training.loss import Sums
from transformer_jax.training.profiling import Times
from transformer_jax.training.report import Report
from transformer_jax.training.state import TrainState
from transformer_jax.training.step import StepMetrics

STORE = random_store([(3, 3)] * 40)
DATA = DataConfig(max_length=4, tokens_per_batch=32, num_buckets=1)
PLAN = BucketPlan(STORE, np.arange(40), DATA, seed=0)
SOURCE = BatchSource(STORE, PLAN, TRANSLATE)


class Clock:
    """Stands in for time.monotonic: every batch takes 10 seconds."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Scene:
    """A run in a directory, made of stand-ins."""

    def __init__(
        self, directory, scores=(), bad_from=10**6, bad_until=10**6, validation_seconds=0,
        **training,
    ):  # fmt: skip
        self.config = TrainingConfig(log_every=2, **training)
        self.workdir = WorkDir(directory)
        self.workdir.path.mkdir(exist_ok=True)
        self.clock, self.validated = Clock(), []
        self.scores, self.validation_seconds = iter(scores), validation_seconds
        self.bad = jnp.asarray([bad_from, bad_until], jnp.int32)
        self.calls: list[int] = []
        self.progress = Progress()
        experiment = Experiment(
            data=DATA,
            training=self.config,
            checkpoint=CheckpointConfig(every_steps=1, best_by="loss"),
            evaluation=EvaluationConfig(every_steps=1, bleu_sentences=0),
        )
        self.checkpoints = Checkpoints(self.workdir.checkpoints, experiment.checkpoint)
        mesh = make_mesh(MeshConfig())
        self.times = Times()
        parts = experiment, self.step, SOURCE, mesh, self.checkpoints, self.validate, {}
        self.run = Run(*parts, self.times)

    def step(self, state, batch, count):
        self.calls.append(count)
        self.clock.now += 10 * count
        return (_count if count == 1 else _count_each)(state, batch, self.bad)

    def change(self, every=1, **training):
        """Change how it goes on: fields of training, and how often it saves and validates."""
        self.run.experiment = dataclasses.replace(
            self.run.experiment,
            training=dataclasses.replace(self.config, **training),
            checkpoint=CheckpointConfig(every_steps=every, best_by="loss"),
            evaluation=EvaluationConfig(every_steps=every, bleu_sentences=0),
        )

    def validate(self, params):
        self.clock.now += self.validation_seconds
        self.validated.append(float(params["updates"]))
        return {"loss": next(self.scores, 1.0)}

    def train(self, monkeypatch) -> Outcome:
        """Start, or resume from the last checkpoint."""
        monkeypatch.setattr(loop.time, "monotonic", self.clock)
        zero = jnp.zeros((), jnp.int32)
        fresh = TrainState(zero, zero, {"updates": jnp.zeros(())}, {"unused": jnp.zeros(())})
        fresh = jax.device_put(fresh, NamedSharding(self.run.mesh, PartitionSpec()))
        start = loop.restore(self.run, fresh)
        self.progress = start.progress
        lines = functools.partial(items_of, PLAN, len(STORE))
        with Report(
            self.workdir, self.config, jnp.float32, lines, start.host, start.scores, self.times
        ) as report:
            return train(self.run, start, report)

    def last(self) -> int:
        return self.checkpoints.steps()[-1]


@jax.jit
def _count(state, batch, bad):
    """Count updates, skipping those in the range `bad`."""
    bad = (state.step + 1 >= bad[0]) & (state.step + 1 < bad[1])
    bad_steps = jnp.where(bad, state.bad_steps + 1, 0)
    tokens = (batch.tgt.seg > 0).sum().astype(jnp.float32)
    updates = state.params["updates"] + (1 - bad)
    new = state.replace(step=state.step + 1, bad_steps=bad_steps, params={"updates": updates})
    sums = Sums(*[tokens] * len(Sums._fields))
    return new, StepMetrics(sums, jnp.float32(1), bad.astype(jnp.float32), bad_steps)


@jax.jit
def _count_each(state, batches, bad):
    """Count the updates of batches along a first axis."""
    return jax.lax.scan(lambda state, batch: _count(state, batch, bad), state, batches)


def test_every_step_is_validated_and_saved(tmp_path, monkeypatch):
    """Checkpoints and evaluations are set to every step."""
    scene = Scene(tmp_path, steps=3)
    assert scene.train(monkeypatch) == Outcome.FINISHED
    assert scene.validated == [1, 2, 3]
    assert scene.checkpoints.steps() == [1, 2, 3]


def test_loads_of_experts_are_logged(tmp_path, monkeypatch, caplog):
    """The busiest expert's in each line, all of them in a file, which a resumed run takes up."""
    caplog.set_level("INFO", "transformer_jax")
    plain = Scene.step

    def step(self, state, batch, count):
        new, metrics = plain(self, state, batch, count)
        loads = {"encoder/layer_0": jnp.stack([new.step * 3, new.step]), "idle": jnp.zeros(2)}
        return new, metrics._replace(
            gauges={"busiest_expert": jnp.float32(1.5)}, reports={"busiest_expert": loads}
        )

    monkeypatch.setattr(Scene, "step", step)
    scene = Scene(tmp_path, steps=4)
    scene.train(monkeypatch)
    assert caplog.text.count("busiest expert 1.50 x mean load") == 2
    written = scene.workdir.reports["busiest_expert"].read_text()
    rows = [json.loads(line) for line in written.splitlines()]
    assert rows == [{"step": n, "loads": {"encoder/layer_0": [3 * n, n]}} for n in (2, 4)]
    with scene.workdir.reports["busiest_expert"].open("a") as file:
        file.write(json.dumps({"step": 5, "loads": {}}) + "\n")
    Scene(tmp_path, steps=4).train(monkeypatch)
    assert scene.workdir.reports["busiest_expert"].read_text() == written


def test_early_stopping(tmp_path, monkeypatch):
    """Training stops after `early_stopping` validations in a row without improvement."""
    scene = Scene(tmp_path, scores=[5.0, 4.0, 4.0, 3.0, 3.5, 3.5, 2.0], steps=9, early_stopping=2)
    assert scene.train(monkeypatch) == Outcome.FINISHED
    assert scene.last() == 6
    assert (scene.progress.best, scene.progress.evaluations_since_best) == (-3, 2)
    assert scene.checkpoints.best() == 4
    assert scene.train(monkeypatch) == Outcome.FINISHED  # and is still finished when run again
    assert scene.last() == 6


@pytest.mark.parametrize("by", ["bleu", "accuracy", "wer"])
def test_ties_of_the_best_score_are_broken_by_the_loss(by):
    """A score that stays at its worst, or its best, must not end a run that still learns; the best
    checkpoint is chosen by the same rule.
    """
    progress, config = Progress(), TrainingConfig(early_stopping=2)
    losses, records = [3.0, 2.0, 1.0, 1.5, math.nan], {}
    for step, loss in enumerate(losses):
        assert progress.why_finished(config, step) is None
        progress.take({"loss": loss, by: 0.0}, by)
        records[step] = {"scores": {"loss": loss, by: 0.0}}
    reason = "training.early_stopping=2 reached: no better validation score in 2 validations"
    assert progress.why_finished(config, len(losses)) == reason
    assert (progress.best, progress.best_loss) == (0, 1)
    assert retention.best(records, by) == 2
    better = {"bleu": 1.0, "accuracy": 1.0, "wer": -1.0}[by]
    progress.take({"loss": 9.0, by: better}, by)  # the loss decides only among equals
    assert (progress.evaluations_since_best, progress.best_loss) == (0, 9)


def test_checkpoints_from_before_ties_counted_are_resumed(tmp_path, monkeypatch):
    """They hold no loss of the best validation; the first tie is taken for a better one."""
    scene = Scene(tmp_path, scores=[3.0, 3.0], steps=1)
    scene.train(monkeypatch)
    record = scene.checkpoints.record(1)
    old = dict(record["host"])
    del old["best_loss"]
    monkeypatch.setattr(scene.checkpoints, "record", lambda step: {**record, "host": old})
    restored = scene.checkpoints.restore
    monkeypatch.setattr(scene.checkpoints, "restore", lambda *x: (*restored(*x)[:2], old))
    scene.train(monkeypatch)
    assert (scene.progress.best, scene.progress.best_loss) == (-3, None)


def test_a_nan_loss_is_never_the_best(tmp_path, monkeypatch):
    """After a validation loss of NaN, the first finite one is the best so far."""
    scene = Scene(tmp_path, scores=[math.nan, 3.0, 4.0], steps=3)
    scene.train(monkeypatch)
    assert (scene.progress.best, scene.progress.evaluations_since_best) == (-3, 1)
    assert scene.checkpoints.best() == 2
    assert read_rows(scene.workdir.metrics)[0] == {"step": 1, "validation_loss": None}


def test_max_minutes_counts_training_but_not_validation(tmp_path, monkeypatch):
    """Minutes of training add up over all starts of a run."""
    scene = Scene(tmp_path, steps=99, max_minutes=1.0, validation_seconds=1000)
    assert scene.train(monkeypatch) == Outcome.FINISHED
    assert scene.last() == 6  # steps of 10 seconds
    config = dataclasses.replace(scene.config, max_minutes=1.5)
    scene.run.experiment = dataclasses.replace(scene.run.experiment, training=config)
    assert scene.train(monkeypatch) == Outcome.FINISHED
    assert scene.last() == 9


def test_too_many_bad_updates_in_a_row_end_the_run(tmp_path, monkeypatch):
    """The limit is `max_bad_steps`; the last checkpoint is from before it was reached."""
    scene = Scene(tmp_path, bad_from=3, steps=9, max_bad_steps=3)
    assert scene.train(monkeypatch) == Outcome.DIVERGED
    assert scene.last() == 4
    assert scene.validated == [1, 2, 2, 2]
    assert scene.train(monkeypatch) == Outcome.DIVERGED  # bad updates count across a restart
    assert scene.validated == [1, 2, 2, 2]


@pytest.mark.one_in(7)
@pytest.mark.parametrize("first", [1, 3, 4, 5])
@pytest.mark.parametrize(("count", "every"), [(1, 1), (1, 2), (1, 4), (4, 4), (12, 12)])
@pytest.mark.parametrize("resumed", [False, True])
def test_a_row_of_bad_updates_ends_the_run_wherever_it_falls(
    tmp_path, monkeypatch, first, count, every, resumed
):
    """Inside a call, across calls, saves and a restart, or at their ends; a shorter one does not,
    and nothing behind the limit is saved.
    """
    scene = Scene(tmp_path, bad_from=first, bad_until=first + 3, max_bad_steps=3)
    if resumed:
        scene.change(every, steps=min(4, count * every), steps_per_execution=min(4, count))
        outcome = scene.train(monkeypatch)
        ends = first + 3 <= scene.run.experiment.training.steps + 1
        assert outcome == (Outcome.DIVERGED if ends else Outcome.FINISHED)
    scene.change(every, steps=12, steps_per_execution=count)
    assert scene.train(monkeypatch) == Outcome.DIVERGED
    assert max(scene.checkpoints.steps(), default=0) < first + 2
    scene.change(every, steps=12, steps_per_execution=count, max_bad_steps=4)
    assert scene.train(monkeypatch) == Outcome.FINISHED


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_with_a_checkpoint(tmp_path, monkeypatch, number):
    """It ends after the current step, whose validation is made up for at the next start."""
    scene = Scene(tmp_path, steps=4)
    count = scene.run.step

    def step_with_a_signal(state, batch, steps):
        if int(state.step) + 1 in (2, 4):
            os.kill(os.getpid(), number)
            # From here on, the next signal makes the system end the process, wherever it is.
            assert {signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)} == {
                signal.SIG_DFL
            }
        return count(state, batch, steps)

    scene.run.step = step_with_a_signal
    before = signal.getsignal(number)
    assert scene.train(monkeypatch) == Outcome.INTERRUPTED
    assert (scene.last(), scene.validated) == (2, [1])
    assert scene.train(monkeypatch) == Outcome.INTERRUPTED
    assert (scene.last(), scene.validated) == (4, [1, 2, 3])
    assert scene.train(monkeypatch) == Outcome.FINISHED
    assert (scene.last(), scene.validated) == (4, [1, 2, 3, 4])
    rows = read_rows(scene.workdir.metrics)
    assert [row["step"] for row in rows if "validation_loss" in row] == [1, 2, 3, 4]
    assert signal.getsignal(number) is before


def test_a_resumed_run_continues_with_the_next_batch(tmp_path, monkeypatch):
    """Step n takes batch n - 1, whether or not the run was interrupted before it."""
    scene = Scene(tmp_path, steps=2)
    count, seen = scene.run.step, []

    def look(state, batch, steps):
        seen.append(np.asarray(batch.targets["tokens"].labels))
        return count(state, batch, steps)

    scene.run.step = look
    scene.train(monkeypatch)
    config = dataclasses.replace(scene.config, steps=7)
    scene.run.experiment = dataclasses.replace(scene.run.experiment, training=config)
    scene.train(monkeypatch)
    assert len(SOURCE._plan) == 5  # an epoch ends on the way
    expected = [
        np.asarray(place_batch(SOURCE[i], scene.run.mesh).targets["tokens"].labels)
        for i in range(7)
    ]
    np.testing.assert_array_equal(seen, expected)


def test_several_steps_run_in_one_call(tmp_path, monkeypatch):
    """With the same batches, rows, saves and validations. After a run of other counts, steps run
    one by one until a call can begin where it always does.
    """
    plain = Scene(tmp_path / "plain", steps=12)
    plain.train(monkeypatch)
    scene = Scene(tmp_path / "several", steps=12)
    for steps, count, every in ((6, 2, 2), (12, 4, 4)):
        scene.change(every, steps=steps, steps_per_execution=count)
        scene.train(monkeypatch)
    assert scene.calls == [2, 2, 2, 1, 1, 4]
    assert scene.last() == 12
    assert scene.validated == [2.0, 4.0, 6.0, 8.0, 12.0]
    found, expected = (
        [row for row in read_rows(x.workdir.metrics) if "loss" in row] for x in (scene, plain)
    )
    assert found == expected  # the counts of tokens, and so the batches


def test_items_of_skipped_updates_are_logged(tmp_path, monkeypatch, caplog):
    """They are those of the step's batch."""
    scene = Scene(tmp_path, bad_from=2, steps=9, max_bad_steps=2)
    with caplog.at_level("DEBUG", "transformer_jax"):
        scene.train(monkeypatch)
    for step in (2, 3):
        lines = np.sort(PLAN.batch(step - 1)[1].pairs + 1)
        shown = ", ".join(map(str, lines))
        assert f"step {step}: all lines of its batch: {shown}" in caplog.messages
    assert "step 1: all" not in caplog.text


@pytest.mark.parametrize(("bound", "spikes"), [(2.0, [6]), (1.5, [3, 6]), (None, [])])
def test_loss_spikes_are_reported(tmp_path, monkeypatch, caplog, bound, spikes):
    """A spike is above the given multiple of the running mean of earlier steps, resumed or not."""
    losses = [1.0, 1.0, 1.6, 1.0, 1.0, 4.0, 2.0, 1.0]
    for steps in (3, 5, 8):
        scene = Scene(tmp_path, steps=steps, loss_spike=bound)
        count = scene.run.step

        def step(state, batch, steps, count=count):
            loss = losses[int(state.step)]
            state, metrics = count(state, batch, steps)
            sums = metrics.sums._replace(loss=metrics.sums.tokens * loss)
            return state, metrics._replace(sums=sums)

        scene.run.step = step
        scene.train(monkeypatch)
    shown = [text for text in caplog.messages if "the running mean" in text]
    assert [int(text.split(":")[0].removeprefix("step ")) for text in shown] == spikes
    if bound == 2.0:
        assert "loss 4 is above 2 x 1.049, the running mean; gradient norm 1; its batch" in shown[0]


def test_a_negative_loss_that_falls_is_no_spike(tmp_path, monkeypatch, caplog):
    """Such as that of a density, which is above every multiple of itself."""
    scene = Scene(tmp_path, steps=4)
    count = scene.run.step

    def step(state, batch, steps):
        loss = -1.0 - int(state.step) / 10
        state, metrics = count(state, batch, steps)
        return state, metrics._replace(sums=metrics.sums._replace(loss=metrics.sums.tokens * loss))

    scene.run.step = step
    scene.train(monkeypatch)
    assert "the running mean" not in caplog.text


def no_room_at_first(scene, monkeypatch):
    """The disk has no room for step 2."""
    room = iter([10**9, 0, 0])  # queried twice at step 2: before the save, and for the message
    usage = shutil.disk_usage(scene.workdir.path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=next(room, 10**9)))


def no_room_in_the_end(scene, monkeypatch):
    """The disk has no room for all of step 2, which becomes apparent as training continues."""
    real, failed = ocp.CheckpointManager.wait_until_finished, []

    def wait(manager):
        real(manager)
        place = scene.workdir.checkpoints / "2"
        if place.exists() and not failed:
            failed.append(place.rename(f"{place}.orbax-checkpoint-tmp"))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(ocp.CheckpointManager, "wait_until_finished", wait)


@pytest.mark.parametrize("choice", ["continue", "stop"])
@pytest.mark.parametrize("fault", [no_room_at_first, no_room_in_the_end])
def test_a_failed_save_is_skipped_or_stops_the_run(tmp_path, monkeypatch, caplog, fault, choice):
    """Other checkpoints stay, and the next save is tried; or the run stops with code 74."""
    scene = Scene(tmp_path, steps=4)
    config = dataclasses.replace(scene.run.experiment.checkpoint, on_failed_save=choice)
    scene.run.experiment = dataclasses.replace(scene.run.experiment, checkpoint=config)
    fault(scene, monkeypatch)
    outcome = scene.train(monkeypatch)
    assert "step 2: checkpoint 2 cannot be written: No space left on device (at most" in caplog.text
    assert not [path for path in scene.workdir.checkpoints.iterdir() if "tmp" in path.name]
    if choice == "stop":
        assert outcome == Outcome.UNSAVED == 74
        assert scene.checkpoints.steps() == [1]
        assert scene.train(monkeypatch) == Outcome.FINISHED
    else:
        assert outcome == Outcome.FINISHED
        assert scene.checkpoints.steps() == [1, 3, 4]
        assert scene.validated == [1, 2, 3, 4]
    assert scene.last() == 4


def test_rows_refused_by_a_full_disk_are_written_later(tmp_path, monkeypatch):
    """They are written before the next checkpoint, which is never ahead of the rows."""
    scene = Scene(tmp_path, steps=6)
    real, calls = report_module.append_row, []

    def append(path, row):
        calls.append(row)
        if len(calls) in (2, 3, 4):
            raise OSError(28, "No space left on device")
        real(path, row)

    monkeypatch.setattr(report_module, "append_row", append)
    assert scene.train(monkeypatch) == Outcome.FINISHED
    rows = read_rows(scene.workdir.metrics)
    assert [row["step"] for row in rows] == [1, 2, 2, 3, 4, 4, 5, 6, 6]


def test_rows_are_synced_to_disk_before_a_checkpoint(tmp_path, monkeypatch):
    """A power failure loses no row that a checkpoint includes."""
    scene, synced, seen = Scene(tmp_path, steps=4), {}, []
    real, save = os.fsync, scene.checkpoints.save

    def fsync(number):
        path = os.readlink(f"/proc/self/fd/{number}")
        synced[path] = os.fstat(number).st_size
        real(number)

    def look(*arguments, **rest):
        path = scene.workdir.metrics
        seen.append(not path.exists() or synced.get(str(path)) == path.stat().st_size)
        save(*arguments, **rest)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(scene.checkpoints, "save", look)
    scene.train(monkeypatch)
    assert seen == [True] * 4


def lose(path, lost) -> bytes:
    """Remove the rows numbered in `lost`, and return the previous content."""
    before = path.read_bytes()
    lines = before.splitlines(keepends=True)
    path.write_bytes(b"".join(line for i, line in enumerate(lines) if i not in lost))
    return before


def test_lost_validations_are_restored(tmp_path, monkeypatch, caplog):
    """They come from the checkpoints that are kept, byte for byte and in place."""
    scene = Scene(tmp_path, scores=[3.0, math.nan, 0.1 + 0.2, 2.0], steps=4)
    scene.train(monkeypatch)
    rows = read_rows(scene.workdir.metrics)
    lost = [i for i, row in enumerate(rows) if "loss" not in row and row["step"] in (2, 3, 4)]
    before = lose(scene.workdir.metrics, lost)
    scene.train(monkeypatch)
    assert scene.workdir.metrics.read_bytes() == before
    assert "validation of step 2, 3, 4 restored from the checkpoint" in caplog.text
    assert "lost" not in caplog.text


@pytest.mark.parametrize(("log_every", "named"), [(2, " (steps 2, 4)"), (4, "")])
def test_other_lost_rows_are_reported(tmp_path, monkeypatch, caplog, log_every, named):
    """They cannot be restored. They are reported, unless nothing is missing."""
    scene = Scene(tmp_path, steps=4)
    scene.train(monkeypatch)
    scene.train(monkeypatch)
    assert "lost" not in caplog.text
    rows = read_rows(scene.workdir.metrics)
    lose(scene.workdir.metrics, [i for i, row in enumerate(rows) if "loss" in row])
    scene.config = dataclasses.replace(scene.config, log_every=log_every)
    scene.train(monkeypatch)
    shown = f"metrics.jsonl: 2 of 6 rows up to step 4 were lost{named} and cannot be restored"
    assert shown in caplog.text


@pytest.mark.parametrize("at", ["a row", "a save"])
def test_a_deleted_directory_stays_deleted(tmp_path, monkeypatch, caplog, at):
    """Training stops at the next row or save, says what happened, and recreates nothing."""
    scene = Scene(tmp_path / "run", steps=9)
    count = scene.run.step

    def step(state, batch, steps):
        if int(state.step) + 1 == (4 if at == "a row" else 3):
            shutil.rmtree(scene.workdir.path)
        return count(state, batch, steps)

    scene.run.step = step
    claim = scene.workdir.claim(scene.run.experiment)
    with claim, pytest.raises(WorkDirGone, match=r"/run: was deleted or moved while"):
        scene.train(monkeypatch)
    assert list(tmp_path.iterdir()) == []
    assert WorkDirGone.exit_code == 74
    assert "intact" not in caplog.text


def test_progress_is_logged_without_a_terminal(tmp_path, monkeypatch, caplog):
    """There are lines while the first step compiles, between rows, and during validation."""
    monkeypatch.setattr(heartbeat, "PERIOD", 0.02)
    scene = Scene(tmp_path, steps=3)
    count, validate = scene.run.step, scene.run.validate

    def wait_for(text):
        caplog.clear()
        with caplog.at_level("INFO", "transformer_jax"):
            for _ in range(500):
                if text in caplog.text:
                    return
                threading.Event().wait(0.01)
        raise AssertionError(f"{text!r} is not in {caplog.text!r}")

    def step(state, batch, steps):
        expected = "left" if int(state.step) else "step 0 of 3  compiling, or in the first step"
        wait_for(expected)
        return count(state, batch, steps)

    def validated(params):
        wait_for("validating for ")
        return validate(params)

    scene.run.step, scene.run.validate = step, validated
    scene.train(monkeypatch)
    assert threading.active_count() == len(
        [t for t in threading.enumerate() if t.name != "heartbeat"]
    )


def test_heartbeat_progress_line(monkeypatch):
    monkeypatch.setattr(heartbeat.time, "monotonic", lambda: 100.0)
    config = TrainingConfig(steps=1000, max_minutes=60)
    line = functools.partial(heartbeat.progress_line, 10, config)
    assert line(0.0, 5.0, None) == "step 10 of 1000  compiling, or in the first step"
    assert line(0.55, 5.0, None) == "step 10 of 1000  0.55 steps/s  30 min left"
    assert line(0.001, 60.0, None).endswith("59 min left")  # max_minutes runs out before the steps
    assert line(0.0, 5.0, ("compilation", 58.0)) == "step 10 of 1000  compiling for 42 s"
    shown = line(2.0, 5.0, ("evaluation", 58.0))
    assert shown == "step 10 of 1000  validating for 42 s  2 steps/s  8 min left"
    unlimited = dataclasses.replace(config, max_minutes=None)
    assert heartbeat.progress_line(10, unlimited, 0.01, 0.0, None).endswith("27 h 30 min left")


def test_rates_exclude_compilation(tmp_path, monkeypatch):
    """This holds for every program that a step waits for, not only the first."""
    scene = Scene(tmp_path, steps=6)
    count = scene.run.step

    def step(state, batch, steps):
        if int(state.step) in (0, 3):
            with scene.times.on("compilation"):
                scene.clock.now += 1000
        return count(state, batch, steps)

    scene.run.step = step
    monkeypatch.setattr(loop.time, "monotonic", scene.clock)
    scene.times = scene.run.times = Times()  # uses the simulated clock
    scene.train(monkeypatch)
    rates = [row["steps_per_s"] for row in read_rows(scene.workdir.timings)]
    assert rates == [0.1] * 3


@pytest.mark.parametrize(("log_every", "rows"), [(2, 12), (5, 4), (12, 2), (24, 1)])
def test_rows_share_the_time_of_steps_read_together(tmp_path, monkeypatch, log_every, rows):
    """One call ends several rows, or a row ends within a call: rates are those of one by one."""
    scene = Scene(tmp_path)
    scene.config = dataclasses.replace(scene.config, log_every=log_every)
    scene.change(12, steps=24, steps_per_execution=12)
    monkeypatch.setattr(loop.time, "monotonic", scene.clock)
    scene.times = scene.run.times = Times()
    monkeypatch.setattr(report_module.time, "process_time", scene.clock)
    scene.train(monkeypatch)
    found = read_rows(scene.workdir.timings)
    assert [row["steps_per_s"] for row in found] == [0.1] * rows
    assert [row["seconds"]["step"] for row in found] == [pytest.approx(10 * log_every)] * rows
    begun = [max(row["step"] - log_every, (row["step"] - 1) // 12 * 12) for row in found]
    spent = [10 * (row["step"] - start) for row, start in zip(found, begun, strict=True)]
    assert [row["processor_seconds"] for row in found] == pytest.approx(spent)  # since a save
    tokens = [row["target_tokens"] for row in read_rows(scene.workdir.metrics) if "loss" in row]
    each = np.diff(tokens, prepend=0) / (10 * log_every)
    np.testing.assert_allclose([row["target_tokens_per_s"] for row in found], each, atol=0.05)


def test_no_load_is_not_a_load_of_0(tmp_path):
    """Steps whose layers of experts were all dropped or frozen do not count in the mean load, also
    if a run is resumed between them; a row of such steps alone has none.
    """
    one = jnp.float32(1)

    def pushed(state, loads):
        scene = WorkDir(tmp_path), TrainingConfig(log_every=4), jnp.float32, lambda step: []
        with Report(*scene, state) as report:
            for step, load in enumerate(loads, state.get("step", 0) + 1):
                sums = Sums(*[one] * len(Sums._fields))
                gauges = {"busiest_expert": jnp.float32(load)}
                report.push(step, StepMetrics(sums, one, 0 * one, jnp.int32(0), gauges))
            report.flush()
        return {"step": report.step, **report.state()}

    state = pushed({}, [2.0, 0.0, 3.0])
    older = {**state, "window": {k: v for k, v in state["window"].items() if k != "loaded"}}
    pushed(state, [0.0, 0.0, 0.0, 0.0, 0.0])
    rows = read_rows(tmp_path / "metrics.jsonl")
    assert [row["busiest_expert"] for row in rows] == [2.5, None]
    assert [row["grad_norm"] for row in rows] == [1, 1]
    pushed(older, [4.0])
    assert read_rows(tmp_path / "metrics.jsonl")[0]["busiest_expert"] == 9 / 4
