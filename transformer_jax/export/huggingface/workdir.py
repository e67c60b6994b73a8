"""Import of a model directory into a work directory."""

import logging
import shutil
from pathlib import Path

from transformer_jax.base.disk import DiskError, writing
from transformer_jax.base.errors import UserError
from transformer_jax.export.huggingface.directory import ignored, read
from transformer_jax.export.huggingface.special_ids import reads
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.runs.workdir import WorkDir

log = logging.getLogger("transformer_jax")


def import_into(directory: Path, workdir: str | Path) -> str:
    """Create a work directory, with checkpoint 0, from a directory that `save_pretrained` wrote;
    return a line that says what the model reads of a text.

    Raises:
      UserError: if the model cannot be imported, or the work directory already holds a run.
    """
    place = WorkDir(workdir)
    if place.config.exists() or place.checkpoints.exists():
        raise UserError(f"--workdir={place.path}: holds a run already; name a new directory")
    experiment, params, codecs = read(directory)
    for warning in ignored(directory, experiment.model):
        log.warning("%s", warning)
    new = not place.path.exists()
    try:
        with place.claim(experiment):
            with writing(f"the tokenizer of {place.path}", place.path):
                codecs.save(place.path)
            checkpoints = Checkpoints(place.checkpoints, experiment.checkpoint)
            host = {"step": 0, "tokenizer": codecs.digest, "imported": str(directory.absolute())}
            checkpoints.save(0, params, {}, host, None)
            checkpoints.close()
    except DiskError:
        if new:  # so that the same command can be tried again
            shutil.rmtree(place.path, ignore_errors=True)
        raise
    return reads(codecs.src, experiment.model.architecture)
