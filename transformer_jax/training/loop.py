"""The training loop: dispatch a step, read the previous step's metrics, validate, save, stop."""

import enum
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
from jax.sharding import Mesh

from transformer_jax.base.errors import UserError
from transformer_jax.config import Experiment, TrainingConfig
from transformer_jax.config.metrics import standing
from transformer_jax.data.batches.batching import BatchSource
from transformer_jax.runs.checkpoint import Checkpoints, DamagedCheckpoint
from transformer_jax.runs.retention import Record
from transformer_jax.sharding.processes import Agreement
from transformer_jax.training.feed import feed
from transformer_jax.training.profiling import Times
from transformer_jax.training.report import Report, log
from transformer_jax.training.saving import Saving
from transformer_jax.training.state import TrainState, abstract

Scores = dict[str, float]


class Outcome(enum.IntEnum):
    """Why a run ended; the value is the program's exit code."""

    FINISHED = 0
    DIVERGED = 70
    UNSAVED = 74  # the last checkpoint could not be written: make room and run again
    INTERRUPTED = 75  # saved after a signal: run again to resume


@dataclass
class Progress:
    """The host's state of a run, besides the TrainState; saved with every checkpoint."""

    seconds: float = 0.0  # of training, over all resumed parts
    best: float | None = None  # best validation score so far; higher is better
    best_loss: float | None = None  # then; None in checkpoints from before ties counted
    evaluations_since_best: int = 0

    def take(self, scores: Scores, by: str) -> None:
        """Take account of a validation; ties, as of perfect scores, go to the lower loss."""
        score, minus_loss = standing(scores, by)
        lost = -math.inf if self.best_loss is None else -self.best_loss
        if math.isfinite(score) and (self.best is None or (score, minus_loss) > (self.best, lost)):
            self.best, self.evaluations_since_best = score, 0
            self.best_loss = -minus_loss if math.isfinite(minus_loss) else None
        else:
            self.evaluations_since_best += 1

    def why_finished(self, config: TrainingConfig, step: int) -> str | None:
        """Return the reason why no further step is due, or None."""
        if step >= config.steps:
            return f"training.steps={config.steps} reached"
        if config.pause is not None and step >= config.pause:
            return f"training.pause={config.pause} reached"
        if config.max_minutes is not None and self.seconds >= 60 * config.max_minutes:
            return f"training.max_minutes={config.max_minutes:g} reached"
        patience = config.early_stopping
        if patience is not None and self.evaluations_since_best >= patience:
            since = f"no better validation score in {patience} validations"
            return f"training.early_stopping={patience} reached: {since}"
        return None


@runtime_checkable
class Rollouts(Protocol):
    """Batches of what the model itself writes."""

    def __call__(self, step: int, state: TrainState) -> tuple[Any, dict[str, float]]:
        """Return the placed batch of the step that follows this one, and metrics, by names in
        `config.metrics.ROLLOUTS`.
        """

    def state(self, step: int) -> dict[str, Any]:
        """Return what a checkpoint of this step must hold."""


@dataclass
class Run:
    """The parts that the loop drives, each constructed by the caller."""

    experiment: Experiment
    # (state, batches, count) -> (state, metrics), jitted, donating the state
    step: Callable[[TrainState, Any, int], tuple[TrainState, Any]]
    source: BatchSource
    mesh: Mesh
    checkpoints: Checkpoints
    validate: Callable[[Any], Scores]  # of parameters
    identity: dict[str, str]  # digests saved in checkpoints
    times: Times = field(default_factory=Times)
    rollouts: Rollouts | None = None  # in place of `source`

    def steps_at(self, step: int) -> int:
        """Return how many steps the call after this step makes: several from a multiple of that
        number on, and one up to it.
        """
        several = self.experiment.training.steps_per_execution
        return 1 if step % several else several

    @property
    def save_every(self) -> int:
        return self.experiment.checkpoint.every_steps

    @property
    def validate_every(self) -> int:
        return self.experiment.evaluation.every_steps


class Start(NamedTuple):
    """Where a run starts or resumes."""

    state: TrainState
    progress: Progress
    record: Record | None  # of the checkpoint; None at step 0
    scores: dict[int, Scores]  # validation scores that checkpoints hold, by step

    @property
    def host(self) -> dict[str, Any]:
        return self.record["host"] if self.record else {}

    @property
    def scored(self) -> bool:
        return self.record is not None and self.record["scores"] is not None


def restore(run: Run, state: TrainState) -> Start:
    """Return the newest intact checkpoint, or the given state if there are none at all.

    Damaged ones are reported, and set aside once an intact one is found.

    Raises:
      UserError: if there are checkpoints and none is intact.
    """
    for name in run.checkpoints.clean():
        log.info("deleted %s, which was left half-written or half-deleted", name)
    like, start = abstract(state), None
    damaged: dict[int, DamagedCheckpoint] = {}
    for step in reversed(run.checkpoints.steps()):
        try:
            record = run.checkpoints.record(step)  # of older ones too: these show which is best
            if start is None:
                weights, rest, host = run.checkpoints.restore(step, *like.to_items())
                known = {key: host[key] for key in vars(Progress()) if key in host}
                progress = Progress(**known)
                start = Start(state.from_items(weights, rest), progress, record, {})
        except DamagedCheckpoint as error:
            damaged[step] = error
    if damaged and start is None:
        reasons = "; ".join(map(str, damaged.values()))
        raise UserError(
            f"{reasons}: no checkpoint here is intact; rename {run.checkpoints.directory} "
            "to start again"
        )
    for step, reason in damaged.items():
        log.warning("%s; set aside as %s", reason, run.checkpoints.set_aside(step))
    start = Start(state, Progress(), None, {}) if start is None else _go_past(run, start)
    scores = {step: run.checkpoints.record(step)["scores"] for step in run.checkpoints.steps()}
    return start._replace(scores={step: score for step, score in scores.items() if score})


def _go_past(run: Run, start: Start) -> Start:
    """Turn a checkpoint at an end or interruption into one of a run that continues."""
    step, config = int(start.state.step), run.experiment.training
    if not (start.record and start.record["passing"]) or start.progress.why_finished(config, step):
        return start
    if start.scored:
        log.info("step %d is no longer the last; its validation is dropped", step)
    # Every other validation falls on a saved step, which experiment.py in config/refusals/ ensures.
    run.checkpoints.amend(step, scores=None, passing=step % run.save_every != 0)
    return start._replace(record=run.checkpoints.record(step))


def validation_due(run: Run, start: Start) -> bool:
    """Return whether a run was stopped before the validation of its last step."""
    step, config = int(start.state.step), run.experiment.training
    over = start.progress.why_finished(config, step) is not None
    return step > 0 and not start.scored and (over or step % run.validate_every == 0)


def train(run: Run, start: Start, report: Report) -> Outcome:
    """Train until the steps, the time or the patience run out, or a signal or divergence."""
    config, state, progress = run.experiment.training, start.state, start.progress
    on_failed = run.experiment.checkpoint.on_failed_save
    step, validated = int(state.step), True
    saving = Saving(run.checkpoints, report, run.times, on_failed)
    agree = Agreement(run.mesh)  # one process's signal or clock stops all of them after one step
    with jax.set_mesh(run.mesh), stop_signals() as signals:
        if validation_due(run, start):
            validated = _validate(run, step, state, progress, report, saving)
            report.restart_clock()
        batches = feed(run.source, run.mesh, step, run.steps_at)
        clock = time.monotonic() - progress.seconds
        while progress.why_finished(config, step) is None:
            with run.times.on("input"):
                written: dict[str, float] = {}
                if run.rollouts is None:
                    batch = next(batches)
                else:
                    batch, written = run.rollouts(step, state)
            count = run.steps_at(step)
            state, metrics = run.step(state, batch, count)
            step += count
            report.push(step, metrics, written)  # reads the previous ones while these run
            progress.seconds, stopping = agree(time.monotonic() - clock, len(signals))
            last = progress.why_finished(config, step) is not None
            due = last or step % run.validate_every == 0
            if due or stopping or step % run.save_every == 0:
                report.flush()
                trained = time.monotonic()
                if report.bad_steps < config.max_bad_steps:
                    host = {"step": step, **vars(progress), **report.state(), **run.identity}
                    if run.rollouts is not None:
                        host |= run.rollouts.state(step)
                    saving.begin(step, state.to_items(), host, _passing(run, step, last))
                    # After a signal there may be no time for it: the next start does it instead.
                    validated = not due or (
                        not stopping and _validate(run, step, state, progress, report, saving)
                    )
                if last or stopping:
                    saving.settle()
                clock += time.monotonic() - trained  # neither is training time
                report.restart_clock()
            if report.bad_steps >= config.max_bad_steps:
                saving.settle()
                return Outcome.DIVERGED
            if not saving.ok and (stopping or on_failed == "stop"):
                return Outcome.UNSAVED
            if stopping:
                return Outcome.INTERRUPTED
    return Outcome.FINISHED if saving.ok and validated else Outcome.UNSAVED


def _passing(run: Run, step: int, last: bool) -> bool:
    """Return whether a longer run would not have this checkpoint."""
    return step % run.save_every != 0 or (last and step % run.validate_every != 0)


def _validate(
    run: Run, step: int, state: TrainState, progress: Progress, report: Report, saving: Saving
) -> bool:
    """Validate a step; return whether its checkpoint, if it has one, now holds the scores."""
    with run.times.on("evaluation"):
        scores = run.validate(state.weights)
    report.validation(step, scores)
    progress.take(scores, run.experiment.checkpoint.best_by)
    # A longer run would not validate at a last step that is not due.
    return saving.amend(step, scores, vars(progress) if step % run.validate_every == 0 else {})


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect SIGTERM or SIGINT in a list; a second one ends the process (code 128 + n)."""
    seen: list[int] = []
    numbers = (signal.SIGTERM, signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_DFL)  # so that a second one is not held up in a library
        seen.append(number)
        log.info("%s: saving after this step (again to quit now)", signal.Signals(number).name)

    old = {number: signal.signal(number, note) for number in numbers}
    try:
        yield seen
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
