"""One training run, from a config to an exit code."""

import functools
import logging
import platform
from collections import defaultdict
from contextlib import nullcontext
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax import counting
from transformer_jax.checkpoint import Checkpoints, DamagedCheckpoint
from transformer_jax.config import Experiment
from transformer_jax.data.batch import Batch
from transformer_jax.data.batching import BatchSource, Plan, lines_of, shapes_from
from transformer_jax.disk import writing
from transformer_jax.errors import UserError
from transformer_jax.evaluation.validation import make_validation
from transformer_jax.experiments import history, process
from transformer_jax.experiments.prepare import Prepared, describe, prepare
from transformer_jax.models.build import build
from transformer_jax.models.encoder_decoder import EncoderDecoder
from transformer_jax.sharding.mesh import check_mesh, make_mesh, row_share
from transformer_jax.sharding.processes import check_same, together
from transformer_jax.training.loop import Outcome, Run, Start, restore, train, validation_due
from transformer_jax.training.optimizer import make_optimizer
from transformer_jax.training.profiling import Times, traced
from transformer_jax.training.programs import StepPrograms
from transformer_jax.training.report import Report, log, log_to
from transformer_jax.training.schedule import make_schedule, schedule_of
from transformer_jax.training.state import TrainState, abstract, init_state
from transformer_jax.training.step import jit_train_step, make_train_step
from transformer_jax.workdir import WorkDir


def run_experiment(experiment: Experiment, workdir: WorkDir) -> Outcome:
    """Train, or go on training, in a work directory.

    Raises:
      UserError: if the config, the data or the directory is wrong; nothing is written then.
    """
    before = workdir.experiment() if workdir.config.exists() else experiment
    changed = workdir.check(experiment)
    mesh = make_mesh(experiment.mesh)
    check_mesh(mesh, experiment)
    first = jax.process_index() == 0
    if not first:
        together("prepare")  # the first process makes what all of them read
        if not workdir.config.exists():
            raise UserError(f"--workdir={workdir.path}: must be one that all processes share")
    prepared = prepare(experiment, workdir)
    checkpoints = Checkpoints(workdir.checkpoints, experiment.checkpoint)
    _check_identity(checkpoints, prepared)
    process.use_compilation_cache()
    with workdir.claim(experiment) if first else nullcontext():
        log_to(workdir.log if first else None)
        if first:
            with writing(f"the tokenizer of {workdir.path}", workdir.path):
                prepared.tokenizers.save(workdir.path)
            together("prepare")
        else:
            log.setLevel(logging.WARNING)
        for what, digest in prepared.identity.items():
            check_same(what.replace("_", " "), digest)
        for line in changed:
            log.info("changed since the last start: %s", line)
        return _train(experiment, workdir, prepared, checkpoints, mesh, before)


def _check_identity(checkpoints: Checkpoints, prepared: Prepared) -> None:
    """Refuse to go on with other data or another tokenizer than a run began with."""
    for step in reversed(checkpoints.steps()):
        try:
            host = checkpoints.record(step)["host"]
        except DamagedCheckpoint:
            continue  # an older one will do; all of them are restored or set aside later
        for what, digest in prepared.identity.items():
            if host.get(what, digest) != digest:
                raise UserError(
                    f"{what.replace('_', ' ')}: not what checkpoint {step} was trained with; "
                    "restore it, or train in another --workdir"
                )
        return


def _train(
    experiment: Experiment,
    workdir: WorkDir,
    prepared: Prepared,
    checkpoints: Checkpoints,
    mesh: Mesh,
    before: Experiment,
) -> Outcome:
    tokenizers, config = prepared.tokenizers, experiment.training
    model = build(experiment.model, tokenizers.src.size, tokenizers.tgt.size)
    schedule = _schedule(experiment)
    tx = make_optimizer(experiment.optimizer, schedule)
    source = BatchSource(prepared.train, prepared.plan, *row_share(mesh))
    validate = make_validation(
        experiment, model, tokenizers, prepared.validation, prepared.validation_store,
        prepared.plan, mesh,
    )  # fmt: skip
    state = init_state(model, tx, experiment.seed, mesh, config.ema_decay is not None)
    step = _jitted_step(experiment, model, state, mesh)
    run = Run(experiment, step, source, mesh, checkpoints, validate, prepared.identity)
    start = restore(run, state)
    state, progress, _ = start
    for line in [*_parameters(state.params), *describe(prepared), _devices(mesh)]:
        log.info(line)
    if start.record is not None:
        log.info(_position(int(state.step), prepared.plan))
        _tell_new_rate(int(state.step) - start.host["skipped"], _schedule(before), schedule)
    reason = progress.why_finished(config, int(state.step))
    if reason is not None and not validation_due(run, start):
        log.info("already finished at step %d: %s", state.step, reason)
        return Outcome.FINISHED
    return _follow(run, start, prepared, workdir, schedule)


def _follow(run: Run, start: Start, prepared: Prepared, workdir: WorkDir, schedule: Any) -> Outcome:
    """Train from the start on, and tell of it."""
    config, plan, done = run.experiment.training, prepared.plan, int(start.state.step)
    history.note(workdir, history.started(done, prepared, counting.parameters(start.state.params)))
    shapes = shapes_from(plan, done, config.steps)
    run.times = Times()
    with (
        Report(
            workdir,
            config,
            schedule,
            partial(lines_of, plan, prepared.lines),
            start.host,
            start.scored,
            run.times,
        ) as report,
        StepPrograms(run.step, abstract(start.state), run.mesh, shapes) as programs,
        traced(programs, done, run.experiment.profile.steps, workdir.path / "profile") as run.step,
    ):
        outcome = train(run, start, report)
    history.note(workdir, history.ended(report.step, outcome.name.lower(), run.times.lap()))
    log.info(run.times.told())
    _say_goodbye(outcome, workdir, run.checkpoints, report)
    run.checkpoints.close()
    return outcome


def _jitted_step(
    experiment: Experiment, model: EncoderDecoder, like: TrainState, mesh: Mesh
) -> functools.partial:
    """Return the step. The seed and the numbers of the schedule are arguments of the compiled
    program, not constants in it: runs that differ in them alone share it.
    """
    optimizer, training = experiment.optimizer, experiment.training

    def step(state: TrainState, batch: Batch, *, seed, numbers):
        schedule = schedule_of(optimizer.schedule, experiment.model.d_model, *numbers)
        tx = make_optimizer(optimizer, schedule)
        return make_train_step(model, tx, training, seed)(state, batch)

    numbers = optimizer.learning_rate, optimizer.warmup_steps, training.steps
    compiled = jit_train_step(step, like, mesh)
    return functools.partial(compiled, seed=np.uint32(experiment.seed), numbers=numbers)


def _schedule(experiment: Experiment) -> Any:
    return make_schedule(experiment.optimizer, experiment.model.d_model, experiment.training.steps)


def _position(step: int, plan: Plan) -> str:
    epoch, batch = divmod(step, len(plan))
    pair = sum(len(plan.batch(step - batch + i)[1].pairs) for i in range(batch))
    return f"resuming at step {step}, epoch {epoch}, pair {pair}"


def _tell_new_rate(updates: int, before: Any, now: Any) -> None:
    old, new = float(before(updates)), float(now(updates))
    if old != new:
        log.info("the learning rate of the next update changes with it: %.6g -> %.6g", old, new)


def _parameters(params) -> list[str]:
    groups: dict[str, int] = defaultdict(int)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        names = [str(key.key) for key in path]
        groups["/".join(names[: 2 if len(names) > 2 else 1])] += leaf.size
    width = max(map(len, groups))
    lines = [f"  {name:<{width}} {count:>12,}" for name, count in groups.items()]
    return ["parameters:", *lines, f"  {'all':<{width}} {counting.parameters(params):>12,}"]


def _devices(mesh) -> str:
    kind = jax.devices()[0].device_kind
    axes = " x ".join(f"{name} {size}" for name, size in mesh.shape.items())
    return (
        f"devices: {jax.device_count()} {kind} of {jax.process_count()} process(es); mesh {axes}; "
        f"jax {jax.__version__}, Python {platform.python_version()}"
    )


def _say_goodbye(
    outcome: Outcome, workdir: WorkDir, checkpoints: Checkpoints, report: Report
) -> None:
    if outcome == Outcome.DIVERGED:
        log.info(
            "stopped at step %d: %d updates in a row were not finite, on the lines told above; "
            "lower optimizer.learning_rate or set optimizer.clip_norm; checkpoints up to %s are "
            "kept",
            report.step, report.bad_steps, checkpoints.steps()[-1:],
        )  # fmt: skip
        return
    if outcome == Outcome.UNSAVED:
        log.info(
            "stopped at step %d, which is not saved; make room and run the same command again to "
            "go on from step %d", report.step, max(checkpoints.steps(), default=0),
        )  # fmt: skip
        return
    if outcome == Outcome.INTERRUPTED:
        log.info("saved; run the same command again to go on")
        return
    best = checkpoints.best()
    log.info("best checkpoint: step %d %s", best, checkpoints.scores(best))
    log.info("everything is in %s", workdir.path)
    log.info("next: python eval.py --workdir=%s", workdir.path)
