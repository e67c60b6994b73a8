"""One training run, from a config to an exit code."""

import functools
import platform
from collections import defaultdict

import jax
import numpy as np

from transformer_jax.checkpoint import Checkpoints
from transformer_jax.config import Experiment
from transformer_jax.data.batch import Batch
from transformer_jax.data.batching import BatchSource
from transformer_jax.evaluation.validation import make_validation
from transformer_jax.experiments.prepare import Prepared, describe, prepare
from transformer_jax.models.build import build, count_params
from transformer_jax.models.encoder_decoder import EncoderDecoder
from transformer_jax.sharding.mesh import make_mesh
from transformer_jax.training.loop import Outcome, Progress, Run, restore, train
from transformer_jax.training.optimizer import make_optimizer
from transformer_jax.training.report import Report, log, log_to
from transformer_jax.training.schedule import make_schedule, schedule_of
from transformer_jax.training.state import TrainState, init_state
from transformer_jax.training.step import make_train_step
from transformer_jax.workdir import WorkDir, cache_dir


def run_experiment(experiment: Experiment, workdir: WorkDir) -> Outcome:
    """Train, or go on training, in a work directory.

    Raises:
      UserError: if the config, the data or the directory is wrong; nothing is written then.
    """
    changed = workdir.check(experiment)
    mesh = make_mesh(experiment.mesh, experiment.data.rows_divisible_by)
    prepared = prepare(experiment, workdir)
    use_compilation_cache()
    with workdir.claim(experiment):
        prepared.tokenizers.save(workdir.path)
        log_to(workdir.log)
        for line in changed:
            log.info("changed since the last start: %s", line)
        return _train(experiment, workdir, prepared, mesh)


def _train(experiment: Experiment, workdir: WorkDir, prepared: Prepared, mesh) -> Outcome:
    tokenizers, config = prepared.tokenizers, experiment.training
    model = build(experiment.model, tokenizers.src.size, tokenizers.tgt.size)
    schedule = make_schedule(experiment.optimizer, experiment.model.d_model, config.steps)
    tx = make_optimizer(experiment.optimizer, schedule)
    source = BatchSource(prepared.train, prepared.plan, jax.process_index(), jax.process_count())
    validate = make_validation(
        experiment, model, tokenizers, prepared.validation, prepared.validation_store,
        prepared.plan, mesh,
    )  # fmt: skip
    state = init_state(model, tx, experiment.seed, mesh)
    step = _compiled_step(experiment, model, state)
    checkpoints = Checkpoints(workdir.checkpoints, experiment.checkpoint)
    run = Run(experiment, step, source, mesh, checkpoints, validate)

    state, host = restore(run, state)
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
    with Report(workdir, config.log_every, config.steps, schedule, host) as report:
        outcome = train(run, state, progress, report)
    _say_goodbye(outcome, workdir, checkpoints, experiment)
    checkpoints.close()
    return outcome


def _compiled_step(
    experiment: Experiment, model: EncoderDecoder, like: TrainState
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
    # Shardings that a step gives back as it got them: else its second call compiles once more.
    shardings = jax.tree.map(lambda x: x.sharding, like)
    compiled = jax.jit(step, donate_argnums=0, out_shardings=(shardings, None))
    return functools.partial(compiled, seed=np.uint32(experiment.seed), numbers=numbers)


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
