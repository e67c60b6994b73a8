"""The loop: dispatch a step, read what the one before told, validate, save, stop."""

import enum
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import jax
from jax.sharding import Mesh

from transformer_jax.checkpoint import Checkpoints
from transformer_jax.config import Experiment, TrainingConfig
from transformer_jax.data.batching import BatchSource
from transformer_jax.sharding.processes import Agreement
from transformer_jax.training.feed import feed
from transformer_jax.training.profiling import Times
from transformer_jax.training.report import Report, log
from transformer_jax.training.state import TrainState, abstract

Scores = dict[str, float]


class Outcome(enum.IntEnum):
    """Why a run ended; the value is the program's exit code."""

    FINISHED = 0
    DIVERGED = 70
    INTERRUPTED = 75  # saved after a signal: run again to go on


@dataclass
class Progress:
    """What the host knows of a run, beside the TrainState; saved with every checkpoint."""

    seconds: float = 0.0  # of training, over all resumed parts
    best: float | None = None  # best validation score so far, greater is better
    evaluations_since_best: int = 0

    def why_finished(self, config: TrainingConfig, step: int) -> str | None:
        """Return the reason why no further step is due, or None."""
        if step >= config.steps:
            return f"training.steps={config.steps} are done"
        if config.max_minutes is not None and self.seconds >= 60 * config.max_minutes:
            return f"training.max_minutes={config.max_minutes:g} are over"
        patience = config.early_stopping
        if patience is not None and self.evaluations_since_best >= patience:
            return f"no better validation score {patience} times in a row"
        return None


@dataclass
class Run:
    """The parts that the loop drives, each made by whoever wires the program."""

    experiment: Experiment
    step: Callable[[TrainState, Any], tuple[TrainState, Any]]  # jitted, donating the state
    source: BatchSource
    mesh: Mesh
    checkpoints: Checkpoints
    validate: Callable[[Any], Scores]  # of parameters
    times: Times = field(default_factory=Times)


def restore(run: Run, state: TrainState) -> tuple[TrainState, dict]:
    """Return the newest checkpoint's state and host values, or the given state and {}."""
    steps = run.checkpoints.steps()
    if not steps:
        return state, {}
    like = abstract(state)
    params, training, host = run.checkpoints.restore(steps[-1], like.params, _training(like))
    return replace(state, params=params, **training), host


def train(run: Run, state: TrainState, progress: Progress, report: Report) -> Outcome:
    """Train until the steps, the time or the patience are used up, a signal or divergence."""
    config, every = run.experiment.training, run.experiment.evaluation.every_steps
    step = int(state.step)
    batches = feed(run.source, run.mesh, step)
    agree = Agreement(run.mesh)  # one process's signal or clock stops all of them after one step
    with jax.set_mesh(run.mesh), stop_signals() as signals:
        clock = time.monotonic() - progress.seconds
        while progress.why_finished(config, step) is None:
            with run.times.on("input"):
                batch = next(batches)
            state, metrics = run.step(state, batch)
            step += 1
            report.push(step, metrics)  # reads the step before, while this one runs
            progress.seconds, stopping = agree(time.monotonic() - clock, len(signals))
            last = progress.why_finished(config, step) is not None
            validation_due = last or step % every == 0  # after a signal too: it is part of the run
            if validation_due or stopping or step % run.experiment.checkpoint.every_steps == 0:
                report.flush()
                paused = time.monotonic()
                if report.bad_steps < config.max_bad_steps:
                    scores = (
                        _validate(run, step, state, progress, report) if validation_due else None
                    )
                    _save(run, step, state, progress, report, scores)
                clock += time.monotonic() - paused  # neither of them is training time
                report.restart_clock()
            if report.bad_steps >= config.max_bad_steps:
                return Outcome.DIVERGED
            if stopping and not last:
                return Outcome.INTERRUPTED
    return Outcome.FINISHED


def _validate(run: Run, step: int, state: TrainState, progress: Progress, report: Report) -> Scores:
    with run.times.on("evaluation"):
        scores = run.validate(state.params)
    report.validation(step, scores)
    by = run.experiment.checkpoint.best_by
    score = scores[by] if by == "bleu" else -scores[by]
    if math.isfinite(score) and (progress.best is None or score > progress.best):
        progress.best, progress.evaluations_since_best = score, 0
    else:
        progress.evaluations_since_best += 1
    return scores


def _training(state: TrainState) -> dict[str, Any]:
    return {"step": state.step, "bad_steps": state.bad_steps, "opt_state": state.opt_state}


def _save(
    run: Run, step: int, state: TrainState, progress: Progress, report: Report, scores: Any
) -> None:
    if scores is not None and not all(map(math.isfinite, scores.values())):
        scores = None  # a checkpoint without a score can be the last, but never the best
    host = {"step": step, **vars(progress), **report.state()}
    with run.times.on("checkpoint"):
        run.checkpoints.save(step, state.params, _training(state), host, scores)


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """Collect SIGTERM and SIGINT in a list; a second one ends the process (code 128 + n)."""
    seen: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if seen:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        seen.append(number)
        log.info("%s: saving after this step (again to quit now)", signal.Signals(number).name)

    old = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield seen
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
