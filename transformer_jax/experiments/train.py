"""One training run, from a config to an exit code."""

import logging
import platform
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.base import counting
from transformer_jax.base.disk import DiskError, writing
from transformer_jax.base.errors import UserError
from transformer_jax.config import Experiment, OptimizerConfig, parts
from transformer_jax.config.convert import differences, own_parts
from transformer_jax.data.batches.batching import BatchSource, Plan, items_of, shapes_from
from transformer_jax.data.codecs.pair import chosen_sizes
from transformer_jax.data.objectives.labelling import CHOICES, max_labels
from transformer_jax.evaluation.validation import make_validation
from transformer_jax.experiments import history, process, warm_start
from transformer_jax.experiments.endings import already_finished, say_goodbye
from transformer_jax.experiments.fit import misfits
from transformer_jax.experiments.prepare import Prepared, describe, prepare
from transformer_jax.experiments.rollouts import Rollouts
from transformer_jax.models import lora
from transformer_jax.models.build import build_for, roles_of, widths_of
from transformer_jax.models.model import Model
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.runs.retention import warn_of_unnamed
from transformer_jax.runs.workdir import WorkDir
from transformer_jax.sharding.mesh import check_mesh, make_mesh, row_share
from transformer_jax.sharding.processes import check_same, from_first, together
from transformer_jax.training import selected, trackers
from transformer_jax.training.logs import log_to
from transformer_jax.training.loop import Outcome, Run, Start, restore, train, validation_due
from transformer_jax.training.optimizer import averaged, make_optimizer
from transformer_jax.training.profiling import Times, Trace
from transformer_jax.training.programs import TrainStep
from transformer_jax.training.report import Report, log
from transformer_jax.training.schedule import make_schedule
from transformer_jax.training.selected import Frozen, frozen_of
from transformer_jax.training.state import init_state

# What messages call what a run's checkpoints record; the data may be pictures.
_IDENTITIES = {
    "training_text": "training data", "tokenizer": "tokenizer", "teacher": "data of the teacher",
    "reference": "config.init.source", "reward_model": "config.objective.reward_model",
}  # fmt: skip


def run_experiment(
    experiment: Experiment, workdir: WorkDir, page: Callable[[Path], str] | None = None
) -> Outcome:
    """Train, or resume training, in a work directory; `page` makes its report, for trackers.

    Raises:
      UserError: if the config, the data or the directory is wrong; nothing is written then.
    """
    workdir.check(experiment)  # early; the claim checks again
    for part, field in own_parts(experiment).items():
        parts.resolve(part, field)  # runs the part's file
    trackers.check(experiment.training.trackers)
    mesh = make_mesh(experiment.mesh)
    check_mesh(mesh, experiment, chosen_sizes(experiment))
    first = jax.process_index() == 0
    if not first:
        together("prepare")  # the first process creates what all of them read
        if not workdir.config.exists():
            raise UserError(f"--workdir={workdir.path}: all processes must share this directory")
    prepared = prepare(experiment, workdir)
    check_mesh(mesh, experiment, prepared.tokenizers.sizes)
    process.use_compilation_cache()
    with workdir.claim(experiment) if first else nullcontext(experiment) as before:
        log_to(workdir.log if first else None)
        with _closing(Checkpoints(workdir.checkpoints, experiment.checkpoint)) as checkpoints:
            identity = _identity(workdir, checkpoints, prepared)
            if first:
                with writing(f"the tokenizer of {workdir.path}", workdir.path):
                    prepared.tokenizers.save(workdir.path)
                together("prepare")
            else:
                log.setLevel(logging.WARNING)
            for what, digest in prepared.identity.items():
                check_same(_IDENTITIES[what], digest)
            identity["run"] = from_first(identity["run"])
            return _train(experiment, workdir, prepared, checkpoints, mesh, before, identity, page)


@contextmanager
def _closing(checkpoints: Checkpoints) -> Iterator[Checkpoints]:
    """Close them at the end. After an error, too, a save in progress is finished before another run
    may claim the directory; that error is the one that is raised.
    """
    try:
        yield checkpoints
    except BaseException:
        with suppress(DiskError):
            checkpoints.close()
        raise
    checkpoints.close()


def _identity(workdir: WorkDir, checkpoints: Checkpoints, prepared: Prepared) -> dict[str, str]:
    """Return the digests of the prepared data and the name of the run, created at its first start.

    Raises:
      UserError: if checkpoints belong to other data, another tokenizer or another run.
    """
    hosts = checkpoints.hosts()
    names = [history.run_name(workdir), *(host.get("run") for host in hosts.values())]
    run = next(filter(None, names), None) or uuid.uuid4().hex
    _check_identity(hosts, prepared.identity)
    for step, host in hosts.items():
        if host.get("run", run) != run:
            raise UserError(
                f"{workdir.checkpoints}/{step}: belongs to another run than this directory; move "
                "it back to where it came from, or delete it"
            )
    return {**prepared.identity, "run": run}


def _check_identity(hosts: Mapping[int, Mapping[str, Any]], identity: Mapping[str, str]) -> None:
    for step, host in hosts.items():
        for what, digest in identity.items():
            if host.get(what, digest) != digest:
                raise UserError(
                    f"{_IDENTITIES[what]}: not the one that checkpoint {step} was trained "
                    "with; restore it, or train in another --workdir"
                )


def _train(
    experiment: Experiment,
    workdir: WorkDir,
    prepared: Prepared,
    checkpoints: Checkpoints,
    mesh: Mesh,
    before: Experiment,
    identity: dict[str, str],
    page: Callable[[Path], str] | None,
) -> Outcome:
    tokenizers, config = prepared.tokenizers, experiment.training
    model = build_for(experiment, *tokenizers.sizes_for(experiment.objective))
    schedule = _schedule(experiment)
    source = BatchSource(prepared.train, prepared.plan, prepared.objective, *row_share(mesh))
    validate = make_validation(
        experiment, model, tokenizers, prepared.validation, prepared.validation_store,
        prepared.plan, mesh,
    )  # fmt: skip
    tx, means = _optimizer(experiment.optimizer, model), averaged(experiment.optimizer, config)
    state = init_state(model, tx, experiment.seed, mesh, means)
    selected.check(experiment, state.params)
    most = 1 if CHOICES.isdisjoint(prepared.objective.predicts) else max_labels(prepared.train)
    taught = None if experiment.data.teacher is None else prepared.objective
    step = TrainStep(experiment, model, state, mesh, most, taught)
    run = Run(experiment, step, source, mesh, checkpoints, validate, identity)
    start = restore(run, state)
    origin: list[str] = []
    refers = experiment.objective.kl_weight > 0  # to the parameters before the first step
    if experiment.init.source is not None and (start.record is None or refers):
        state, lines = warm_start.begin(experiment, state, tokenizers)
        origin = lines if start.record is None else []
    if start.record is None:
        start = start._replace(state=state)
    if experiment.objective.record.samples:
        reference = None
        if refers:
            reference = jax.tree.map(np.array, lora.merged(state.params, model.config))
        arguments = experiment, model, prepared, mesh, workdir, reference
        run.rollouts = written = Rollouts(*arguments)
        _check_identity(checkpoints.hosts(), written.identity)
        identity |= written.identity
        written.resume(start.host)
    state, changed = start.state, differences(before, experiment)
    reason = start.progress.why_finished(config, int(state.step))
    if reason is not None and not validation_due(run, start):
        return already_finished(int(state.step), reason, changed)
    if jax.process_index() == 0:
        workdir.write_config(experiment)
    for path, (old, new) in changed.items():
        shown = parts.short(old, 12), parts.short(new, 12)
        log.info("changed since the last start: %s: %r -> %r", path, *shown)
    warn_of_unnamed(checkpoints.hosts())
    sizes = _parameters(state.params, frozen_of(experiment.optimizer, experiment.model))
    for line in [*sizes, *origin, *describe(prepared), _devices(mesh)]:
        log.info(line)
    unsuited = misfits(experiment, prepared, counting.parameters(state.params))
    for line in [*prepared.warnings, *unsuited]:
        log.warning(line)
    if start.record is not None:
        log.info(_position(int(state.step), prepared.plan, prepared.noun))
        _log_new_rate(int(state.step) - start.host["skipped"], _schedule(before), schedule)
    size = counting.parameters(state.params)
    row = history.started(int(state.step), prepared, size, identity["run"], changed)
    history.note(workdir, row)
    with trackers.Trackers(experiment, workdir, page) as following:
        return _follow(run, step, start, prepared, workdir, schedule, following)


def _follow(
    run: Run,
    step: TrainStep,
    start: Start,
    prepared: Prepared,
    workdir: WorkDir,
    schedule: Any,
    following: trackers.Trackers,
) -> Outcome:
    """Train from `start`, with reports."""
    config, plan, done = run.experiment.training, prepared.plan, int(start.state.step)
    items = partial(items_of, plan, prepared.items)
    noun = prepared.noun
    counts = dict.fromkeys((run.steps_at(done), config.steps_per_execution))
    trace = Trace(run.experiment.profile.steps, workdir.path / "profile", done)
    run.times = times = Times()
    # The loss of answers that the model has just written is near 0, and its rises say nothing.
    watched = config if run.rollouts is None else replace(config, loss_spike=None)
    with (
        Report(
            workdir, watched, schedule, items, start.host, start.scores, times, noun, following
        ) as report,
        step.compiled(shapes_from(plan, done, config.steps), trace, times, counts),
    ):
        outcome = train(run, start, report)
    following.finished = outcome == Outcome.FINISHED
    history.note(workdir, history.ended(report.step, outcome.name.lower(), times.lap()))
    log.info(times.summary())
    reason = start.progress.why_finished(config, report.step)
    say_goodbye(outcome, workdir, run.checkpoints, report, reason)
    return outcome


@lru_cache(maxsize=8)
def _optimizer(config: OptimizerConfig, model: Model) -> Any:
    """Return an optimizer for its state, which is the same with any schedule."""
    frozen = frozen_of(config, model.config)
    return make_optimizer(config, lambda _: 0.0, roles_of(model), frozen, widths_of(model))


def _schedule(experiment: Experiment) -> Any:
    optimizer, training = experiment.optimizer, experiment.training
    width = experiment.model.d_model
    return make_schedule(optimizer, width, training.steps, training.restarts)


def _position(step: int, plan: Plan, noun: str) -> str:
    epoch, batch = divmod(step, len(plan))
    items = sum(len(plan.batch(step - batch + i)[1].pairs) for i in range(batch))
    return f"resuming at step {step}, epoch {epoch}, {noun} {items}"


def _log_new_rate(updates: int, before: Any, now: Any) -> None:
    old, new = float(before(updates)), float(now(updates))
    if old != new:
        log.info("the learning rate of the next update changes with it: %.6g -> %.6g", old, new)


def _parameters(params: Any, frozen: Frozen | None) -> list[str]:
    groups: dict[str, int] = defaultdict(int)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        names = [str(key.key) for key in path]
        groups["/".join(names[: 2 if len(names) > 2 else 1])] += leaf.size
    width = max(map(len, groups))
    lines = [f"  {name:<{width}} {count:>12,}" for name, count in groups.items()]
    every = counting.parameters(params)
    lines = ["parameters:", *lines, f"  {'all':<{width}} {every:>12,}"]
    if frozen is not None:
        pairs = zip(jax.tree.leaves(params), jax.tree.leaves(frozen(params)), strict=True)
        moving = sum(leaf.size for leaf, stays in pairs if not stays)
        lines.append(f"  {'trained':<{width}} {moving:>12,} ({moving / every:.2%})")
    return lines


def _devices(mesh) -> str:
    kind = jax.devices()[0].device_kind
    shown = (name for name, size in mesh.shape.items() if size > 1 or name in ("data", "fsdp", "tensor"))
    axes = " x ".join(f"{name} {mesh.shape[name]}" for name in shown)
    return (
        f"devices: {jax.device_count()} {kind} of {jax.process_count()} process(es); mesh {axes}; "
        f"jax {jax.__version__}, Python {platform.python_version()}"
    )
