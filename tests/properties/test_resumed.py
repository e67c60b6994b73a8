"""A run that was stopped and started again is the run that was not."""

import dataclasses
import os
import signal

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from tiny import MODEL

from transformer_jax.checkpoint import Checkpoints
from transformer_jax.config import (
    CheckpointConfig,
    DataConfig,
    EvaluationConfig,
    Experiment,
    OptimizerConfig,
    TokenizerConfig,
    TrainingConfig,
)
from transformer_jax.errors import UserError
from transformer_jax.experiments import train as runs
from transformer_jax.training import loop
from transformer_jax.training.loop import Outcome
from transformer_jax.workdir import WorkDir, append_row, read_rows

SIX = Experiment(
    model=dataclasses.replace(MODEL, max_positions=64),
    tokenizer=TokenizerConfig(vocab_size=48),
    data=DataConfig(
        source="spelled_numbers", source_language="de", target_language="en",
        num_examples=(200, 20, 20), max_number=1000, max_length=48, tokens_per_batch=48 * 16,
        num_buckets=1,
    ),
    optimizer=OptimizerConfig(schedule="constant", learning_rate=1e-3, warmup_steps=2),
    training=TrainingConfig(steps=6, log_every=2),
    checkpoint=CheckpointConfig(every_steps=3, best_by="loss"),
    evaluation=EvaluationConfig(every_steps=3, bleu_sentences=0),
)  # fmt: skip
THREE = dataclasses.replace(SIX, training=dataclasses.replace(SIX.training, steps=3))


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Return the function (name, experiment) -> (work directory, outcome)."""
    home = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSFORMER_JAX_CACHE", str(home / "cache"))
        # Compiled programs stay where the tests keep them.
        patch.setattr(runs, "use_compilation_cache", lambda: None)

        def run(name: str, experiment: Experiment):
            workdir = WorkDir(home / name)
            return workdir, runs.run_experiment(experiment, workdir)

        yield run


@pytest.fixture(scope="module")
def whole(start):
    """The run that nothing stops."""
    workdir, outcome = start("whole", SIX)
    assert outcome == Outcome.FINISHED
    return workdir


def saved(workdir: WorkDir):
    """Return the last checkpoint: step, arrays by name, host values without the clock, scores."""
    checkpoints = Checkpoints(workdir.checkpoints, SIX.checkpoint)
    step = checkpoints.steps()[-1]
    place = workdir.checkpoints / str(step)
    arrays = {name: read_arrays(place / name) for name in ("params", "training")}
    host = dict(checkpoints.record(step)["host"])
    assert host.pop("seconds") > 0
    scores = checkpoints.scores(step)
    checkpoints.close()
    return step, arrays, host, scores


def read_arrays(place):
    """Return what Orbax saved as numpy arrays, whatever devices it came from."""
    with ocp.PyTreeCheckpointer() as reader:
        tree = reader.metadata(place).item_metadata.tree
        kinds = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
        return reader.restore(place, restore_args=kinds)


def assert_same_run(one: WorkDir, other: WorkDir) -> None:
    (step, arrays, *rest), (other_step, other_arrays, *other_rest) = saved(one), saved(other)
    assert step == other_step == 6
    jax.tree.map(np.testing.assert_array_equal, arrays, other_arrays)
    assert rest == other_rest
    assert one.metrics.read_bytes() == other.metrics.read_bytes()


def test_runs_are_reproducible_records(whole):
    """The run that the others are compared with tells what it should, step by step."""
    rows = read_rows(whole.metrics)
    assert [row["step"] for row in rows] == [2, 3, 4, 6, 6]
    assert rows[-1]["validation_loss"] < rows[1]["validation_loss"]


def test_continued_is_uninterrupted(start, whole):
    """3 steps and then 3 more are 6 steps: parameters bit for bit, metrics byte for byte."""
    workdir, outcome = start("continued", THREE)
    assert outcome == Outcome.FINISHED
    assert saved(workdir)[0] == 3
    # What a run wrote after its last save is cut when it goes on.
    append_row(workdir.metrics, {"step": 4, "loss": 0.0})
    append_row(workdir.timings, {"step": 4})
    assert start("continued", SIX)[1] == Outcome.FINISHED
    assert_same_run(workdir, whole)
    assert [row["step"] for row in read_rows(workdir.timings)] == [2, 4, 6]
    assert "resuming at step 3" in workdir.log.read_text()


def test_interrupted_is_uninterrupted(start, whole, monkeypatch):
    """SIGTERM saves and ends with code 75; the same command again completes the same run.

    The signal comes in the step after which validation is due, which must not be forgotten.
    """
    real = loop.feed

    def feed(source, mesh, start):
        for number, batch in enumerate(real(source, mesh, start), start + 1):
            if number == 3:
                os.kill(os.getpid(), signal.SIGTERM)
            yield batch

    with monkeypatch.context() as patch:
        patch.setattr(loop, "feed", feed)
        workdir, outcome = start("interrupted", SIX)
    assert outcome == Outcome.INTERRUPTED == 75
    assert saved(workdir)[0] == 3
    assert start("interrupted", SIX)[1] == Outcome.FINISHED
    assert_same_run(workdir, whole)


def test_finished_stays_finished(start, whole):
    """A finished run, started again, says so, succeeds, and changes nothing."""
    before = saved(whole), whole.metrics.read_bytes()
    assert start("whole", SIX)[1] == Outcome.FINISHED == 0
    jax.tree.map(np.testing.assert_array_equal, (saved(whole), whole.metrics.read_bytes()), before)
    assert "already finished at step 6: training.steps=6 are done" in whole.log.read_text()


def test_diverged(start, monkeypatch):
    """Nothing but updates that are not finite ends with code 70: null in metrics, nothing saved."""
    real = runs.init_state

    def poisoned(*args):
        state = real(*args)
        return state.replace(params=jax.tree.map(lambda x: x * np.nan, state.params))

    monkeypatch.setattr(runs, "init_state", poisoned)
    training = dataclasses.replace(SIX.training, max_bad_steps=2)
    workdir, outcome = start("diverged", dataclasses.replace(SIX, training=training))
    assert outcome == Outcome.DIVERGED == 70
    (row,) = read_rows(workdir.metrics)
    assert (row["step"], row["loss"], row["skipped"]) == (2, None, 2)
    assert not workdir.checkpoints.exists()
    assert "2 updates in a row were not finite" in workdir.log.read_text()


def test_refused_before_it_starts(start):
    """A validation sentence longer than learned positions reach is no surprise after hours."""
    model = dataclasses.replace(SIX.model, positions="learned", max_positions=12)
    data = dataclasses.replace(SIX.data, max_length=12)
    with pytest.raises(UserError, match="max_positions"):
        start("refused", dataclasses.replace(SIX, model=model, data=data))
