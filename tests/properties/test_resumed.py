"""A run that was stopped and resumed equals an uninterrupted run."""

import dataclasses
import functools
import os
import re
import shutil
import signal

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from starts import start_at_random
from tiny import RUN

from transformer_jax.api import load
from transformer_jax.base.errors import UserError
from transformer_jax.config import Experiment, ObjectiveConfig, TrainingConfig
from transformer_jax.config.choices.optimizers import OPTIMIZERS
from transformer_jax.data import sources
from transformer_jax.data.batches.batching import BatchSource
from transformer_jax.data.codecs.pair import train_pair
from transformer_jax.data.sources import Corpus, corpus
from transformer_jax.experiments import train as runs
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.runs.workdir import WorkDir, append_row, read_rows, write_rows
from transformer_jax.training import loop, programs
from transformer_jax.training import step as step_module
from transformer_jax.training.loop import Outcome

SIX = dataclasses.replace(
    RUN,
    model=dataclasses.replace(RUN.model, biases=(), norm="rms_norm"),
    training=TrainingConfig(steps=6, log_every=2),
)
THREE = dataclasses.replace(SIX, training=dataclasses.replace(SIX.training, steps=3))


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    """Return the function (name, experiment) -> (work directory, outcome).

    Runs start from random parameters, and share a step function that batches can poison.
    """
    home = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSFORMER_JAX_CACHE", str(home / "cache"))
        # Compiled programs stay where the tests keep them.
        patch.setattr(runs.process, "use_compilation_cache", lambda: None)
        start_at_random(patch)
        patch_step(patch)

        def run(name: str, experiment: Experiment):
            workdir = WorkDir(home / name)
            return workdir, runs.run_experiment(experiment, workdir)

        yield run


@pytest.fixture(scope="module")
def whole(start):
    """The uninterrupted run."""
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
    assert len(host.pop("run")) == 32
    scores = checkpoints.record(step)["scores"]
    checkpoints.close()
    return step, arrays, host, scores


def read_arrays(place):
    """Return what Orbax saved as numpy arrays, whatever devices it came from."""
    with ocp.PyTreeCheckpointer() as reader:
        tree = reader.metadata(place).item_metadata.tree
        kinds = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), tree)
        return reader.restore(place, restore_args=kinds)


def rows_of_a_batch(log: str) -> int:
    """Return the number of rows of all batches but an epoch's last, from a run's log."""
    return int(re.findall(r"shapes (\d+)x", log)[0])


def names(workdir: WorkDir) -> list[str]:
    return sorted(path.name for path in workdir.checkpoints.iterdir())


def contents(workdir: WorkDir) -> dict[str, tuple[bytes, int]]:
    """Return the content and modification time of every file."""
    files = [path for path in sorted(workdir.path.rglob("*")) if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def assert_same_run(one: WorkDir, other: WorkDir) -> None:
    assert names(one) == names(other)
    (step, arrays, *rest), (other_step, other_arrays, *other_rest) = saved(one), saved(other)
    assert step == other_step == 6
    jax.tree.map(np.testing.assert_array_equal, arrays, other_arrays)
    assert rest == other_rest
    assert one.metrics.read_bytes() == other.metrics.read_bytes()


def test_the_uninterrupted_run_records_its_steps_and_learns(whole):
    """The run that the others are compared with records the expected steps."""
    rows = read_rows(whole.metrics)
    assert [row["step"] for row in rows] == [2, 3, 4, 6, 6]
    assert rows[-1]["validation_loss"] < rows[1]["validation_loss"]


def test_a_resumed_run_equals_an_uninterrupted_run(start, whole):
    """3 steps and then 3 more equal 6 steps: parameters bit for bit, metrics byte for byte."""
    workdir, outcome = start("continued", THREE)
    assert outcome == Outcome.FINISHED
    assert saved(workdir)[0] == 3
    # Rows written after the last save are removed on resuming.
    append_row(workdir.metrics, {"step": 4, "loss": 0.0})
    append_row(workdir.timings, {"step": 4})
    assert start("continued", SIX)[1] == Outcome.FINISHED
    assert_same_run(workdir, whole)
    assert [row["step"] for row in read_rows(workdir.timings)] == [2, 4, 6]
    log = workdir.log.read_text()
    assert "changed since the last start: training.steps: 3 -> 6" in log
    assert f"resuming at step 3, epoch 0, pair {3 * rows_of_a_batch(log)}\n" in log
    assert "learning rate" not in log  # a constant one does not depend on the number of steps


def test_a_paused_run_equals_an_uninterrupted_run(start, whole):
    """And its learning rates are those of all steps."""
    paused = dataclasses.replace(SIX, training=dataclasses.replace(SIX.training, pause=3))
    workdir, outcome = start("paused", paused)
    assert outcome == Outcome.FINISHED
    assert saved(workdir)[0] == 3
    assert "training.pause=3 reached" in workdir.log.read_text()
    assert start("paused", SIX)[1] == Outcome.FINISHED
    assert_same_run(workdir, whole)


@pytest.mark.thorough
def test_muon_and_averaged_parameters_resume_too(start):
    """A checkpoint contains momentum, the averages, which are its `params`, and what is averaged.
    The places where windows are cut in two are drawn again as they were.

    tests/training/test_step.py checks that parameters equal those of a run without averages.
    """

    def averaged(experiment):
        decoder = {"architecture": "decoder", "num_encoder_layers": 6, "dropout_rate": 0.0}
        return dataclasses.replace(
            experiment,
            model=dataclasses.replace(experiment.model, **decoder),
            objective=ObjectiveConfig("text_prefix_lm", window=48),
            optimizer=dataclasses.replace(experiment.optimizer, algorithm="muon"),
            training=dataclasses.replace(experiment.training, ema_decay=0.5),
        )

    one, _ = start("averaged", averaged(SIX))
    start("averaged in parts", averaged(THREE))
    other, _ = start("averaged in parts", averaged(SIX))
    assert_same_run(one, other)
    means, rest = (saved(one)[1][name] for name in ("params", "training"))
    assert abs(means["embedding"]["table"] - rest["params"]["embedding"]["table"]).max() > 1e-4


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", [*OPTIMIZERS][2:])
def test_every_optimizer_resumes(start, algorithm):
    """In the middle of the steps after which SOAP and Shampoo compute their matrices again."""

    def with_it(experiment):
        every = 2 if "precondition_every" in OPTIMIZERS[algorithm].reads else 10
        optimizer = dataclasses.replace(
            experiment.optimizer, algorithm=algorithm, precondition_every=every
        )
        decoder = {"architecture": "decoder", "num_encoder_layers": 6, "dropout_rate": 0.0}
        return dataclasses.replace(
            experiment,
            model=dataclasses.replace(experiment.model, **decoder),
            objective=ObjectiveConfig("language_model", window=48),
            optimizer=optimizer,
        )

    one, _ = start(algorithm, with_it(SIX))
    start(f"{algorithm} in parts", with_it(THREE))
    other, _ = start(f"{algorithm} in parts", with_it(SIX))
    assert_same_run(one, other)
    if OPTIMIZERS[algorithm].averages:
        means, rest = (saved(one)[1][name] for name in ("params", "training"))
        assert abs(means["embedding"]["table"] - rest["params"]["embedding"]["table"]).max() > 1e-4


@pytest.mark.thorough
def test_a_model_wider_than_its_base_resumes(start):
    """With muP's learning rates, gradients measured by slices, and a schedule that begins again."""

    def wider(experiment):
        sizes = {"parametrization": "mup", "base_width": experiment.model.d_model // 2}
        sliced = {"accumulation_steps": 2, "noise_scale": True, "restarts": (2,)}
        return dataclasses.replace(
            experiment,
            model=dataclasses.replace(experiment.model, dropout_rate=0.0, **sizes),
            data=dataclasses.replace(experiment.data, rows_divisible_by=2),
            training=dataclasses.replace(experiment.training, **sliced),
        )

    one, _ = start("wider", wider(SIX))
    start("wider in parts", wider(THREE))
    other, _ = start("wider in parts", wider(SIX))
    assert_same_run(one, other)
    assert read_rows(one.metrics)[0]["gradient_noise"] > 0


@pytest.mark.one_in(3)
@pytest.mark.parametrize("steps", [1, 4, 5])
def test_resuming_from_any_last_step_equals_an_uninterrupted_run(start, whole, steps):
    """The validation and the checkpoint of a step that is no longer the last leave no trace."""
    training = dataclasses.replace(SIX.training, steps=steps)
    name = f"continued from {steps}"
    workdir, outcome = start(name, dataclasses.replace(SIX, training=training))
    assert outcome == Outcome.FINISHED
    assert read_rows(workdir.metrics)[-1].keys() == {"step", "validation_loss"}
    assert str(steps) in names(workdir)
    assert start(name, SIX)[1] == Outcome.FINISHED
    assert_same_run(workdir, whole)
    assert f"step {steps} is no longer the last" in workdir.log.read_text()


def test_a_longer_run_logs_the_new_learning_rate(copy, monkeypatch):
    """Before it resumes; resuming itself is tested above."""
    monkeypatch.setattr(runs, "_follow", lambda *_: Outcome.FINISHED)
    optimizer = dataclasses.replace(SIX.optimizer, schedule="linear")
    linear = dataclasses.replace(SIX, optimizer=optimizer)
    copy.write_config(linear)
    longer = dataclasses.replace(linear, training=dataclasses.replace(SIX.training, steps=11))
    assert runs.run_experiment(longer, copy) == Outcome.FINISHED
    # After 2 steps of warm-up, step 7 of 6 would have a rate of 0; of 11, 1 - 5/10 of the peak.
    shown = "learning rate of the next update changes with it: 0 -> 0.0005\n"
    assert shown in copy.log.read_text()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", [1, 2])
def test_a_validation_lost_to_a_crash_is_repeated(start, whole, monkeypatch, number):
    """Then the run completes as if uninterrupted. The save in progress is finished first: otherwise
    it would go on in this process beside the next run.
    """
    real, calls = loop._validate, []

    def validate(*arguments):
        calls.append(arguments)
        if len(calls) == number:
            raise KeyboardInterrupt
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_validate", validate)
        name = f"stopped in validation {number}"
        with pytest.raises(KeyboardInterrupt):
            start(name, SIX)
        assert names(WorkDir(whole.path.parent / name)) == ["3", "6"][:number]
        workdir, outcome = start(name, SIX)
    assert outcome == Outcome.FINISHED
    assert [arguments[1] for arguments in calls] == ([3, 3, 6] if number == 1 else [3, 6, 6])
    assert_same_run(workdir, whole)


def test_an_interrupted_run_equals_an_uninterrupted_run(start, whole, monkeypatch):
    """SIGTERM saves and ends with code 75; the same command again completes the same run.

    The signal arrives in the step after which validation is due, which must not be skipped.
    """
    real = loop.feed

    def feed(source, mesh, start, steps_at):
        for number, batch in enumerate(real(source, mesh, start, steps_at), start + 1):
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


@pytest.mark.thorough
def test_several_steps_in_one_call_are_the_same_run(start, whole, monkeypatch):
    """The same metrics up to rounding, and the same bits whether or not it was interrupted."""
    training = dataclasses.replace(SIX.training, steps_per_execution=3)
    several = dataclasses.replace(SIX, training=training)
    workdir, outcome = start("several", several)
    assert outcome == Outcome.FINISHED
    for found, expected in zip(read_rows(workdir.metrics), read_rows(whole.metrics), strict=True):
        assert found == pytest.approx(expected, rel=1e-5)
    assert start("several, in two parts", _of_steps(several, 3))[1] == Outcome.FINISHED
    parted, _ = start("several, in two parts", several)
    assert_same_run(parted, workdir)


def test_batches_of_several_shapes_cannot_share_a_call(start):
    """Before anything is compiled or written."""
    training = dataclasses.replace(SIX.training, steps_per_execution=3)
    data = dataclasses.replace(SIX.data, num_buckets=3)
    with pytest.raises(UserError) as error:
        start("several shapes", dataclasses.replace(SIX, training=training, data=data))
    assert "config.training.steps_per_execution=3" in str(error.value)
    assert "data.num_buckets=1" in str(error.value)


def _of_steps(experiment, steps):
    training = dataclasses.replace(experiment.training, steps=steps)
    return dataclasses.replace(experiment, training=training)


def test_a_finished_run_stays_finished(start, whole, capsys):
    """Started again, it says so, succeeds and changes nothing."""
    other = dataclasses.replace(SIX, decoding=dataclasses.replace(SIX.decoding, beam_size=7))
    before = contents(whole)
    for experiment in (SIX, other):
        assert start("whole", experiment)[1] == Outcome.FINISHED == 0
        assert contents(whole) == before
        shown = capsys.readouterr().err
        assert "already finished at step 6: training.steps=6 reached" in shown
    assert "finished run keeps its config.json: decoding.beam_size: 4 -> 7; pass" in shown


def test_divergence_ends_the_run(start, monkeypatch):
    """If no update is finite, a run ends with code 70: null in metrics, nothing saved."""
    real = runs.init_state

    monkeypatch.setattr(runs, "init_state", lambda *args: with_nan_params(real(*args)))
    training = dataclasses.replace(SIX.training, max_bad_steps=2)
    workdir, outcome = start("diverged", dataclasses.replace(SIX, training=training))
    assert outcome == Outcome.DIVERGED == 70
    (row,) = read_rows(workdir.metrics)
    assert (row["step"], row["loss"], row["skipped"]) == (2, None, 2)
    assert not workdir.checkpoints.exists()
    assert "stopped at step 3: 3 updates in a row were not finite" in workdir.log.read_text()


# --- damaged and mismatched files ---------------------------------------------------------------


@pytest.fixture
def copy(start, whole, tmp_path):
    """A copy of the finished run, to be damaged."""
    shutil.copytree(whole.path, tmp_path / "copy")
    return WorkDir(tmp_path / "copy")


def damage(workdir: WorkDir, step: int) -> None:
    """Truncate all files of the parameters."""
    for path in (workdir.checkpoints / str(step) / "params").rglob("*"):
        if path.is_file():
            path.write_bytes(path.read_bytes()[:50])


def test_training_falls_back_to_the_newest_good_checkpoint(copy, whole):
    """The damaged one is named and set aside; the result is that of an undamaged run."""
    damage(copy, 6)
    assert runs.run_experiment(SIX, copy) == Outcome.FINISHED
    shown = copy.log.read_text()
    assert f"{copy.checkpoints}/6: damaged: cannot be read (" in shown
    assert f"set aside as {copy.checkpoints}/6.damaged" in shown
    assert "resuming at step 3," in shown
    shutil.rmtree(copy.checkpoints / "6.damaged")
    assert_same_run(copy, whole)


def test_a_checkpoint_copied_under_another_step_is_set_aside(copy):
    """Otherwise it would be the newest for ever, and every start would repeat the same steps."""
    shutil.copytree(copy.checkpoints / "6", copy.checkpoints / "9999")
    before = contents(copy)
    assert runs.run_experiment(SIX, copy) == Outcome.FINISHED
    assert names(copy) == ["3", "6", "9999.damaged"]
    shown = f"{copy.checkpoints}/9999: holds step 6, not step 9999; delete it, or rename it to 6"
    assert f"{shown}; set aside as {copy.checkpoints}/9999.damaged" in copy.log.read_text()
    after = contents(copy)
    assert {path for path in before if after.get(path) != before[path]} == {
        str(copy.log), *(path for path in before if "/9999/" in path)
    }  # fmt: skip


def test_a_checkpoint_of_another_run_is_refused(copy):
    """A run with another seed has the same shapes, data and tokenizer."""
    checkpoints = Checkpoints(copy.checkpoints, SIX.checkpoint)
    checkpoints.amend(6, host={**checkpoints.record(6)["host"], "run": "another"})
    before = contents(copy)
    with pytest.raises(UserError, match=r"/6: belongs to another run than this directory; move"):
        runs.run_experiment(SIX, copy)
    assert contents(copy) == before
    copy.history.unlink()
    with pytest.raises(UserError, match=r"/3: belongs to another run than this directory; move"):
        runs.run_experiment(SIX, copy)


def test_a_run_of_an_older_version_resumes(copy, capsys):
    """It gets an id then. The row that records it lists the changes, which config.json now has."""
    checkpoints = Checkpoints(copy.checkpoints, SIX.checkpoint)
    for step in checkpoints.steps():
        host = checkpoints.record(step)["host"]
        checkpoints.amend(step, host={k: host[k] for k in host.keys() - {"run", "rows"}})
    (start, *rest) = read_rows(copy.history)
    write_rows(copy.history, [{k: start[k] for k in start.keys() - {"run", "changed"}}, *rest])
    copy.metrics.write_bytes(copy.metrics.read_bytes()[:-20])  # the validation of step 6
    lines = copy.metrics.read_bytes()
    longer = dataclasses.replace(SIX, training=dataclasses.replace(SIX.training, steps=7))
    assert runs.run_experiment(longer, copy) == Outcome.FINISHED
    shown = "checkpoints 3, 6 do not record which run they belong to, as older versions wrote them"
    assert shown in copy.log.read_text()
    assert copy.experiment() == longer
    row = read_rows(copy.history)[2]
    assert (row["event"], row["changed"]) == ("start", {"training.steps": [6, 7]})
    hosts = Checkpoints(copy.checkpoints, SIX.checkpoint).hosts()
    assert hosts[7]["run"] == row["run"] != start["run"]
    assert "metrics.jsonl: validation of step 6 restored" in copy.log.read_text()
    assert copy.metrics.read_bytes().startswith(lines[: lines.rfind(b"\n")])
    rows = [(row["step"], "loss" in row) for row in read_rows(copy.metrics)]
    assert rows == [(2, True), (3, False), (4, True), (6, True), (6, False), (7, False)]


@pytest.mark.parametrize("seed", [0, 1])
def test_a_run_that_finishes_while_another_prepares(whole, tmp_path, monkeypatch, capsys, seed):
    """With other settings, the second is refused; with the same ones, nothing is left to do."""
    real, place = runs.prepare, WorkDir(tmp_path / "run")

    def prepare(experiment, workdir):
        prepared = real(experiment, workdir)
        shutil.copytree(whole.path, place.path)
        before.update(contents(place))
        return prepared

    before: dict = {}
    monkeypatch.setattr(runs, "prepare", prepare)
    experiment = dataclasses.replace(SIX, seed=seed)
    if seed:
        with pytest.raises(UserError, match=r"holds another experiment; .*undo: seed: 0 -> 1"):
            runs.run_experiment(experiment, place)
    else:
        assert runs.run_experiment(experiment, place) == Outcome.FINISHED
        assert "already finished at step 6" in capsys.readouterr().err
    assert contents(place) == before


def test_training_never_silently_restarts_from_scratch(copy):
    for step in (3, 6):
        damage(copy, step)
    with pytest.raises(
        UserError, match=r"/6: damaged: .*/3: damaged: .*no checkpoint here is intact"
    ):
        runs.run_experiment(SIX, copy)
    assert names(copy) == ["3", "6"]


def test_evaluation_refuses_a_damaged_checkpoint(copy):
    damage(copy, 6)
    with pytest.raises(UserError, match=r"/6: damaged: cannot be read"):
        load(copy.path, "last")
    with pytest.raises(UserError, match=r"/6: damaged: cannot be read"):
        load(copy.path, "average:2")
    assert load(copy.path, "3").steps == [3]


def test_another_tokenizer_is_refused(copy):
    config = dataclasses.replace(SIX.tokenizer, algorithm="unigram")
    train = sources.load(SIX.data, "train")
    train_pair(config, train.src, train.tgt).save(copy.path)
    with pytest.raises(UserError, match=r"its tokenizer is not the one that checkpoint 6"):
        load(copy.path, "last")
    with pytest.raises(UserError, match=r"^tokenizer: not the one that checkpoint 6 was"):
        runs.run_experiment(SIX, copy)


def test_other_training_text_is_refused(copy, monkeypatch):
    """And nothing is written."""
    real = sources.load

    def load_changed(data, split, *objective):
        found = real(data, split, *objective)
        changed = [*found.src[:-1], found.src[-1] + "!"]
        return Corpus(changed, found.tgt, "changed") if split == "train" else found

    for module in (sources, corpus):
        monkeypatch.setattr(module, "load", load_changed)
    before = {path: path.read_bytes() for path in copy.path.rglob("*") if path.is_file()}
    with pytest.raises(UserError, match=r"^training data: not the one that checkpoint 6 was"):
        runs.run_experiment(SIX, copy)
    assert {path: path.read_bytes() for path in before} == before


# --- non-finite numbers -------------------------------------------------------------------------


def with_nan_params(state):
    """Return a state whose parameters are all NaN."""

    def nan(x):
        return jax.device_put(np.full(x.shape, np.nan, x.dtype), x.sharding)

    return state.replace(params=jax.tree.map(nan, state.params))


def poison_params(monkeypatch, steps) -> None:
    """Poison them after the restore, so that every step is bad."""
    real = loop.train

    def train(run, begin, report):
        return real(run, begin._replace(state=with_nan_params(begin.state)), report)

    monkeypatch.setattr(runs, "train", train)


def poison_gradients(monkeypatch, steps) -> None:
    mark_batches(monkeypatch, steps, BAD_GRADIENT)


def poison_batches(monkeypatch, steps) -> None:
    """Batches are integers and cannot be NaN; what is computed from some of them is."""
    mark_batches(monkeypatch, steps, BAD_LOSS)


BAD_GRADIENT, BAD_LOSS = 1, 2
# The programs of patched steps, kept apart from those of other files.
PATCHED = functools.cache(programs._jitted.__wrapped__)


def patch_step(patch) -> None:
    """Patch one step for all tests: a batch's first position says what is bad about it, if any."""
    accumulate, batch_sums = step_module._accumulate, step_module.batch_sums

    def accumulate_or_not(gradient, params, batch, *given):
        grads, *sums = accumulate(gradient, params, batch, *given)
        bad = batch.tgt.pos[0, 0] == BAD_GRADIENT
        return jax.tree.map(lambda g: jnp.where(bad, jnp.nan, g), grads), *sums

    def sums_or_not(model, config, params, batch, key):
        sums = batch_sums(model, config, params, batch, key)
        bad = batch.tgt.pos[0, 0] == BAD_LOSS
        return sums._replace(loss=jnp.where(bad, jnp.nan, sums.loss))

    patch.setattr(programs, "_jitted", PATCHED)
    patch.setattr(step_module, "_accumulate", accumulate_or_not)
    patch.setattr(step_module, "batch_sums", sums_or_not)


def mark_batches(monkeypatch, steps, mark: int) -> None:
    real = BatchSource.__getitem__

    def item(self, index):
        batch = real(self, index)
        if index + 1 in steps:
            batch.tgt.pos[0, 0] = mark
        return batch

    monkeypatch.setattr(BatchSource, "__getitem__", item)


@pytest.mark.parametrize("poison", [poison_gradients, poison_batches])
def test_bad_updates_are_skipped_and_counted(start, whole, monkeypatch, poison):
    """The run continues, and logs which lines of the training text were in the batch."""
    poison(monkeypatch, {2, 5})
    workdir, outcome = start(f"skips {poison.__name__}", SIX)
    assert outcome == Outcome.FINISHED
    rows = [row for row in read_rows(workdir.metrics) if "loss" in row]
    assert [(row["step"], row["skipped"]) for row in rows] == [(2, 1), (4, 1), (6, 2)]
    assert all(row["loss"] > 0 and row["grad_norm"] > 0 for row in rows)
    assert rows[0]["loss"] != next(iter(read_rows(whole.metrics)))["loss"]
    params = saved(workdir)[1]["params"]
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(params))
    log = workdir.log.read_text()
    skipped = r"loss or gradient not finite; update skipped; its batch: (pairs|windows) \d"
    assert len(re.findall(skipped, log)) == 2
    (shown,) = re.findall(r"step 5: all (?:pairs|windows) of its batch: (.*)\n", log)
    lines = [int(number) for number in shown.split(", ")]
    assert len(lines) == rows_of_a_batch(log)
    assert lines == sorted(set(lines))
    assert 1 <= lines[0] <= lines[-1] <= 200


@pytest.mark.one_in(3)
@pytest.mark.parametrize("poison", [poison_params, poison_gradients, poison_batches])
def test_too_many_bad_updates_end_the_run(start, monkeypatch, poison):
    """It logs the step and the lines; the earlier checkpoint is good, and no bad one is saved."""
    training = dataclasses.replace(SIX.training, max_bad_steps=2)
    experiment = dataclasses.replace(SIX, training=training)
    name = f"ends {poison.__name__}"
    start(name, dataclasses.replace(experiment, training=dataclasses.replace(training, steps=3)))
    poison(monkeypatch, {4, 5, 6})
    workdir, outcome = start(name, experiment)
    assert outcome == Outcome.DIVERGED == 70
    assert names(workdir) == ["3"]
    log = workdir.log.read_text()
    # The metrics of a step are read while the next one runs, or all of them where a save is due.
    assert "stopped at step 6: 3 updates in a row were not finite" in log
    for step in (4, 5, 6):
        assert re.search(f"step {step}: all (pairs|windows) of its batch: ", log)
    monkeypatch.undo()
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(saved(workdir)[1]))
