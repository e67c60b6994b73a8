"""One training run, from a config to an exit code."""

import logging
import platform
from collections import defaultdict
from contextlib import nullcontext

import jax

from transformer_jax.checkpoint import Checkpoints
from transformer_jax.config import Experiment
from transformer_jax.data.batching import BatchSource
from transformer_jax.errors import UserError
from transformer_jax.evaluation.validation import make_validation
from transformer_jax.experiments.prepare import Prepared, describe, prepare
from transformer_jax.models.build import build, count_params
from transformer_jax.sharding.mesh import check_mesh, make_mesh, row_share
from transformer_jax.sharding.processes import together
from transformer_jax.training.loop import Outcome, Progress, Run, restore, train
from transformer_jax.training.optimizer import make_optimizer
from transformer_jax.training.profiling import Times, traced
from transformer_jax.training.report import Report, log, log_to
from transformer_jax.training.schedule import make_schedule
from transformer_jax.training.state import init_state
from transformer_jax.training.step import jit_train_step, make_train_step
from transformer_jax.workdir import WorkDir, cache_dir


def run_experiment(experiment: Experiment, workdir: WorkDir) -> Outcome:
    """Train, or go on training, in a work directory.

    Raises:
      UserError: if the config, the data or the directory is wrong; nothing is written then.
    """
    changed = workdir.check(experiment)
    mesh = make_mesh(experiment.mesh)
    check_mesh(mesh, experiment)
    first = jax.process_index() == 0
    if not first:
        together("prepare")  # the first process makes what all of them read
        if not workdir.config.exists():
            raise UserError(f"--workdir={workdir.path}: must be one that all processes share")
    prepared = prepare(experiment, workdir)
    use_compilation_cache()
    with workdir.claim(experiment) if first else nullcontext():
        log_to(workdir.log if first else None)
        if first:
            prepared.tokenizers.save(workdir.path)
            together("prepare")
        else:
            log.setLevel(logging.WARNING)
        for line in changed:
            log.info("changed since the last start: %s", line)
        return _train(experiment, workdir, prepared, mesh)


def _train(experiment: Experiment, workdir: WorkDir, prepared: Prepared, mesh) -> Outcome:
    tokenizers, config = prepared.tokenizers, experiment.training
    model = build(experiment.model, tokenizers.src.size, tokenizers.tgt.size)
    schedule = make_schedule(experiment.optimizer, experiment.model.d_model, config.steps)
    tx = make_optimizer(experiment.optimizer, schedule)
    source = BatchSource(prepared.train, prepared.plan, *row_share(mesh))
    validate = make_validation(
        experiment, model, tokenizers, prepared.validation, prepared.validation_store,
        prepared.plan, mesh,
    )  # fmt: skip
    state = init_state(model, tx, experiment.seed, mesh)
    step = jit_train_step(make_train_step(model, tx, config, experiment.seed), state, mesh)
    checkpoints = Checkpoints(workdir.checkpoints, experiment.checkpoint)
    run = Run(experiment, step, source, mesh, checkpoints, validate)

    state, host = restore(run, state)
    run.step = traced(step, int(state.step), experiment.profile.steps, workdir.path / "profile")
    for line in [*_parameters(state.params), *describe(prepared), _devices(mesh)]:
        log.info(line)
    progress = Progress(**{key: host[key] for key in vars(Progress()) if key in host})
    if host:
        epoch, batch = divmod(int(state.step), len(prepared.plan))
        log.info("resuming at step %d, epoch %d, batch %d", state.step, epoch, batch)
    reason = progress.why_finished(config, int(state.step))
    if reason is not None:
        log.info("already finished at step %d: %s", state.step, reason)
        return Outcome.FINISHED
    run.times = Times()
    with Report(workdir, config.log_every, config.steps, schedule, host) as report:
        outcome = train(run, state, progress, report)
    log.info(run.times.told())
    _say_goodbye(outcome, workdir, checkpoints, experiment)
    checkpoints.close()
    return outcome


def use_compilation_cache() -> None:
    """Keep compiled programs, so that a second start compiles nothing."""
    jax.config.update("jax_compilation_cache_dir", str(cache_dir() / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.3)


def _parameters(params) -> list[str]:
    groups: dict[str, int] = defaultdict(int)
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        names = [str(key.key) for key in path]
        groups["/".join(names[: 2 if len(names) > 2 else 1])] += leaf.size
    width = max(map(len, groups))
    lines = [f"  {name:<{width}} {count:>12,}" for name, count in groups.items()]
    return ["parameters:", *lines, f"  {'all':<{width}} {count_params(params):>12,}"]


def _devices(mesh) -> str:
    kind = jax.devices()[0].device_kind
    axes = " x ".join(f"{name} {size}" for name, size in mesh.shape.items())
    return (
        f"devices: {jax.device_count()} {kind} of {jax.process_count()} process(es); mesh {axes}; "
        f"jax {jax.__version__}, Python {platform.python_version()}"
    )


def _say_goodbye(outcome: Outcome, workdir: WorkDir, checkpoints: Checkpoints, experiment) -> None:
    if outcome == Outcome.DIVERGED:
        log.info(
            "stopped: %d updates in a row were not finite; lower optimizer.learning_rate or set "
            "optimizer.clip_norm; checkpoints up to %s are kept",
            experiment.training.max_bad_steps, checkpoints.steps()[-1:],
        )  # fmt: skip
        return
    if outcome == Outcome.INTERRUPTED:
        log.info("saved; run the same command again to go on")
        return
    best = checkpoints.best()
    log.info("best checkpoint: step %d %s", best, checkpoints.scores(best))
    log.info("everything is in %s", workdir.path)
    log.info("next: python eval.py --workdir=%s", workdir.path)
