"""What a notebook needs."""

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax

from transformer_jax.checkpoint import Checkpoints
from transformer_jax.config import DecodingConfig, Experiment, MeshConfig
from transformer_jax.data.tokenizer import TokenizerPair
from transformer_jax.decoding.text.attention import CrossAttention, cross_attention
from transformer_jax.decoding.text.translate import Translator
from transformer_jax.disk import DiskError, writing
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
        self._translators: dict[tuple[DecodingConfig, int], Translator] = {}  # compiled as used

    def translator(self, decoding: DecodingConfig | None = None, n_best: int = 1) -> Translator:
        """Return the Translator with the given settings, else those of the experiment."""
        key = decoding or self.experiment.decoding, n_best
        if key not in self._translators:
            self._translators[key] = self._make_translator(*key)
        return self._translators[key]

    def _make_translator(self, decoding: DecodingConfig, n_best: int) -> Translator:
        longest = self.experiment.data.max_length  # what training never saw, goes in parts
        return Translator(self.model, self.tokenizers, decoding, n_best, longest=longest)

    def translate(self, lines: Sequence[str], decoding: DecodingConfig | None = None) -> list[str]:
        """Return the best translation of each line."""
        found = self.translator(decoding).translate(self.params, lines)
        return [item.text for item in found]

    def attention(self, source: str, target: str | None = None) -> CrossAttention:
        """Return the cross-attention of a pair: weights [L N T S], pieces and word alignments.

        Without a target it is that of the best translation.

        Raises:
          UserError: if there is no source, or one side is longer than the model can read.
        """
        translator = self.translator()
        (ids,), longest = self.tokenizers.src.encode([source]), translator.longest
        if len(ids) < 2:
            raise UserError(f"source={source!r}: holds no words")
        if target is None and len(ids) <= longest:
            found = translator.translate(self.params, [source])[0].ids
        else:
            (found,) = self.tokenizers.tgt.encode([target or ""])
        for name, side in (("source", ids), ("target", found)):
            if len(side) > longest:
                raise UserError(f"{name}: {len(side)} pieces, of at most {longest}; give less")
        return cross_attention(self.model, self.params, self.tokenizers, ids, found)


class TrainedEnsemble(TrainedModel):
    """Several models with the same tokenizers as one; `config.decoding.ensemble` says how.

    Settings are those of the first model.
    """

    def __init__(self, members: Sequence[TrainedModel]) -> None:
        first = members[0]
        params = [member.params for member in members]
        steps = [step for member in members for step in member.steps]
        super().__init__(first.experiment, first.model, params, first.tokenizers, steps)
        self._models = [member.model for member in members]

    def _make_translator(self, decoding: DecodingConfig, n_best: int) -> Translator:
        longest = self.experiment.data.max_length
        return Translator(self._models, self.tokenizers, decoding, n_best, longest=longest)

    def attention(self, source: str, target: str | None = None) -> CrossAttention:
        """Refuse: attention is of one model."""
        raise UserError("attention is of one model: load one checkpoint of one work directory")


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
    new = not output.path.exists()
    try:
        with output.claim(dataclasses.replace(experiment, evaluation=evaluation)):
            with writing(f"the tokenizer of {output.path}", output.path):
                mean.tokenizers.save(output.path)
            checkpoints = Checkpoints(output.checkpoints, experiment.checkpoint)
            digest = mean.tokenizers.digest
            host = {"step": mean.steps[-1], "average_of": mean.steps, "tokenizer": digest}
            checkpoints.save(mean.steps[-1], mean.params, {}, host, None)
            checkpoints.close()
    except DiskError:
        if new:  # so that the same command can be tried again
            shutil.rmtree(output.path, ignore_errors=True)
        raise
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


def load_ensemble(
    workdirs: Sequence[str | Path], checkpoint: str | None = None
) -> TrainedModel | TrainedEnsemble:
    """Read one model, or several as an ensemble: every named checkpoint of every work directory.

    `checkpoint` names one or several, divided by commas; see `load`.

    Raises:
      UserError: if a directory holds no such thing, or tokenizers differ.
    """
    names = checkpoint.split(",") if checkpoint else [None]
    members = [load(workdir, name) for workdir in workdirs for name in names]
    for member, workdir in zip(members[:: len(names)], workdirs, strict=True):
        if member.tokenizers.digest != members[0].tokenizers.digest:
            raise UserError(
                f"--workdir={workdir}: its tokenizer is not that of {workdirs[0]}; the models of "
                "an ensemble must write the same pieces"
            )
    return members[0] if len(members) == 1 else TrainedEnsemble(members)
