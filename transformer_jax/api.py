"""What a notebook needs."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax

from transformer_jax.checkpoint import Checkpoints
from transformer_jax.config import DecodingConfig, Experiment, MeshConfig
from transformer_jax.data.tokenizer import TokenizerPair
from transformer_jax.decoding.translate import Translation, Translator
from transformer_jax.errors import UserError
from transformer_jax.models.build import abstract_params, build
from transformer_jax.models.encoder_decoder import EncoderDecoder
from transformer_jax.sharding.mesh import make_mesh, replicated
from transformer_jax.workdir import WorkDir


class TrainedModel:
    """A model read back from a work directory."""

    def __init__(
        self,
        experiment: Experiment,
        model: EncoderDecoder,
        params: Any,
        tokenizers: TokenizerPair,
        steps: list[int],
    ) -> None:
        self.experiment, self.model, self.params = experiment, model, params
        self.tokenizers, self.steps = tokenizers, steps

    def translator(self, decoding: DecodingConfig | None = None, n_best: int = 1) -> Translator:
        """Return a Translator with the given settings, else those of the experiment."""
        decoding = decoding or self.experiment.decoding
        return Translator(self.model, self.tokenizers, decoding, n_best)

    def translate(self, lines: Sequence[str], decoding: DecodingConfig | None = None) -> list[str]:
        """Return the best translation of each line."""
        found: list[Translation] = self.translator(decoding).translate(self.params, lines)
        return [item.text for item in found]


def save_average(workdir: WorkDir, count: int, output: WorkDir) -> list[int]:
    """Save the mean of the last `count` checkpoints as the only one of a new work directory.

    Returns the steps that it is the mean of.

    Raises:
      UserError: if there are too few, or the output holds a run already.
    """
    if output.config.exists() or output.checkpoints.exists():
        raise UserError(f"--output={output.path}: holds a run already; name a new directory")
    mean = load(workdir.path, f"average:{count}")
    experiment = mean.experiment
    evaluation = dataclasses.replace(experiment.evaluation, checkpoint="last")
    with output.claim(dataclasses.replace(experiment, evaluation=evaluation)):
        mean.tokenizers.save(output.path)
        checkpoints = Checkpoints(output.checkpoints, experiment.checkpoint)
        digest = mean.tokenizers.digest
        host = {"step": mean.steps[-1], "average_of": mean.steps, "tokenizer": digest}
        checkpoints.save(mean.steps[-1], mean.params, {}, host, None)
        checkpoints.close()
    return mean.steps


def load(workdir: str | Path, checkpoint: str | None = None) -> TrainedModel:
    """Read a trained model: its config, its tokenizer and the parameters of a checkpoint.

    `checkpoint` is best, last, a step or average:N; None takes the experiment's own choice.

    Raises:
      UserError: if the directory holds no such thing.
    """
    place = WorkDir(workdir)
    experiment = place.experiment()
    tokenizers = TokenizerPair.load(place.path, experiment.tokenizer.joint)
    model = build(experiment.model, tokenizers.src.size, tokenizers.tgt.size)
    shapes = nn.unbox(abstract_params(model))
    shardings = replicated(shapes, make_mesh(MeshConfig()))
    like = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings
    )
    checkpoints = Checkpoints(place.checkpoints, experiment.checkpoint)
    name = checkpoint or experiment.evaluation.checkpoint
    params = checkpoints.load_params(name, like)
    steps = checkpoints.choose(name)
    digest = checkpoints.record(steps[-1])["host"].get("tokenizer", tokenizers.digest)
    if digest != tokenizers.digest:
        raise UserError(
            f"{place.path}: its tokenizer is not the one that checkpoint {steps[-1]} was trained "
            "with; put that one back"
        )
    checkpoints.close()
    return TrainedModel(experiment, model, params, tokenizers, steps)
