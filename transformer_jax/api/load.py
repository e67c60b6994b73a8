"""Loading trained models from work directories, and saving averaged checkpoints."""

import dataclasses
import logging
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from transformer_jax.api.ensemble import TrainedEnsemble
from transformer_jax.api.stored import read, write_alike
from transformer_jax.api.trained import TrainedModel
from transformer_jax.base.disk import DiskError, writing
from transformer_jax.base.errors import UserError
from transformer_jax.config.parts import admit
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.runs.workdir import WorkDir

log = logging.getLogger("transformer_jax")


def save_average(workdir: str | Path, count: int, output: str | Path) -> list[int]:
    """Save the mean of the last `count` checkpoints as the only one in a new work directory.

    Returns the steps that were averaged.

    Raises:
      UserError: if there are too few, or the output already holds a run.
    """
    place = WorkDir(output)
    if place.config.exists() or place.checkpoints.exists():
        raise UserError(f"--output={place.path}: holds a run already; name a new directory")
    mean = load(workdir, f"average:{count}")
    experiment, last = mean.experiment, mean.steps[-1]
    origin = Checkpoints(WorkDir(workdir).checkpoints, experiment.checkpoint).record(last)["host"]
    run = {"run": origin["run"]} if "run" in origin else {}  # older runs have no identity
    evaluation = dataclasses.replace(experiment.evaluation, checkpoint="last")
    new = not place.path.exists()
    try:
        with place.claim(dataclasses.replace(experiment, evaluation=evaluation)):
            with writing(f"the tokenizer of {place.path}", place.path):
                mean.tokenizers.save(place.path)
            checkpoints = Checkpoints(place.checkpoints, experiment.checkpoint)
            digest = mean.tokenizers.digest
            host = {"step": last, "average_of": mean.steps, "tokenizer": digest, **run}
            checkpoints.save(last, mean.params, {}, host, None)
            checkpoints.close()
    except DiskError:
        if new:  # so that the same command can be retried
            shutil.rmtree(place.path, ignore_errors=True)
        raise
    return mean.steps


def load(
    workdir: str | Path, checkpoint: str | int | None = None, parts: Sequence[str | Path] = ()
) -> TrainedModel:
    """Read a trained model: its config, its tokenizer and the parameters of a checkpoint.

    `checkpoint` is best, last, a step or average:N; None takes the experiment's own choice. A
    low-rank adaptation is merged into an ordinary model. `parts` are the files of custom parts
    that the config names: they run only if given here.

    Raises:
      UserError: if the directory holds no such model.
    """
    for file in parts:
        admit(file)
    return TrainedModel(*read(workdir, checkpoint))


def load_ensemble(
    workdirs: str | Path | Sequence[str | Path],
    checkpoint: str | int | None = None,
    parts: Sequence[str | Path] = (),
) -> TrainedModel | TrainedEnsemble:
    """Read one model, or several as an ensemble: every named checkpoint of every work directory.

    `checkpoint` names one or several, separated by commas, and `parts` names files; see `load`.
    A checkpoint named twice is a member twice, with a warning.

    Raises:
      UserError: if a directory holds no such model, or tokenizers or what models write differ.
    """
    paths = [workdirs] if isinstance(workdirs, str | Path) else list(workdirs)
    names = [None] if checkpoint is None else str(checkpoint).split(",")
    members = [load(path, name, parts) for path in paths for name in names]
    for member, path in zip(members[:: len(names)], paths, strict=True):
        if member.tokenizers.digest != members[0].tokenizers.digest:
            raise UserError(
                f"--workdir={path}: its tokenizer differs from that of {paths[0]}; the models of "
                "an ensemble must write the same pieces"
            )
        theirs, ours = (one.experiment.objective for one in (member, members[0]))
        if not write_alike(theirs, ours):
            raise UserError(
                f"--workdir={path}: was trained with objective.name={theirs.name!r}, and "
                f"{paths[0]} with {ours.name!r}; the models of an ensemble must have the same one"
            )
    counts = Counter((str(member.path), *member.steps) for member in members)
    for (place, *steps), count in counts.items():
        if count > 1:
            named = f"checkpoint {steps[0]}" if len(steps) == 1 else f"the mean of {steps}"
            log.warning(
                "%s: %s is a member of the ensemble %d times; name it once to save time and to "
                "weight all members equally", place, named, count,
            )  # fmt: skip
    return members[0] if len(members) == 1 else TrainedEnsemble(members)
