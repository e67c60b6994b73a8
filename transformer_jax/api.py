"""What a notebook needs."""

import dataclasses
import logging
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax

from transformer_jax import counting
from transformer_jax.checkpoint import Checkpoints
from transformer_jax.config import DecodingConfig, Experiment, MeshConfig
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.decoding.text.attention import CrossAttention, cross_attention
from transformer_jax.decoding.text.score import PairScore, score_pairs
from transformer_jax.decoding.text.translate import Translator
from transformer_jax.disk import DiskError, writing
from transformer_jax.door import parse
from transformer_jax.errors import UserError
from transformer_jax.models.build import abstract_params, build_for
from transformer_jax.models.model import Model
from transformer_jax.sharding.mesh import make_mesh, replicated
from transformer_jax.workdir import WorkDir

log = logging.getLogger("transformer_jax")


class TrainedModel:
    """A model read back from a work directory."""

    def __init__(
        self,
        experiment: Experiment,
        model: Model,
        params: Any,
        tokenizers: TokenizerPair,
        steps: list[int],
        path: Path | None = None,
    ) -> None:
        self.experiment, self.model, self.params = experiment, model, params
        self.tokenizers, self.steps = tokenizers, steps
        self.path = path  # of its work directory
        self._translators: dict[tuple[DecodingConfig, int], Translator] = {}  # compiled as used

    def __repr__(self) -> str:
        data, steps = self.experiment.data, ", ".join(map(str, self.steps))
        steps = f"step {steps}" if len(self.steps) == 1 else f"mean of steps {steps}"
        size = f"{counting.parameters(self.params):,} parameters"
        pair = f"{data.source_language}-{data.target_language}"
        return f"<TrainedModel {pair} from {self.path}, {steps}, {size}>"

    def translator(self, decoding: DecodingConfig | None = None, n_best: int = 1) -> Translator:
        """Return the Translator with the given settings, else those of the experiment."""
        key = decoding or self.experiment.decoding, n_best
        if key not in self._translators:
            self._translators[key] = self._make_translator(*key)
        return self._translators[key]

    def _make_translator(self, decoding: DecodingConfig, n_best: int) -> Translator:
        longest = self.experiment.data.max_length  # what training never saw, goes in parts
        return Translator(self.model, self.tokenizers, decoding, n_best, longest=longest)

    def translate(
        self,
        lines: str | Sequence[str],
        decoding: DecodingConfig | None = None,
        *,
        n_best: int | None = None,
        **fields: Any,
    ) -> Any:
        """Return the best translation of a line as text, or a list of them for several lines.

        With `n_best` it is a list of up to so many hypotheses instead, best first, each with text,
        pieces (`ids`), score and log-probability. Settings are `decoding`, else those of the
        experiment; keywords change single fields: `beam_size=1, alpha=1.0`.

        Raises:
          UserError: if there is no such field, or `n_best` is more than the search keeps.
        """
        chosen = decoding or self.experiment.decoding
        if fields:
            chosen = parse(dataclasses.asdict(chosen) | fields, DecodingConfig, "config.decoding")
        translator = self.translator(chosen, 1 if n_best is None else n_best)
        several = [lines] if isinstance(lines, str) else lines
        hypotheses = translator.hypotheses(self.params, several)
        found = [items[0].text for items in hypotheses] if n_best is None else hypotheses
        return found[0] if isinstance(lines, str) else found

    def score(
        self, src: str | Sequence[str], tgt: str | Sequence[str]
    ) -> PairScore | list[PairScore]:
        """Return the log-probabilities (nats) of the given translation of a line, of each piece and
        in all; a list for several lines.

        Raises:
          UserError: if their numbers differ, or one has more pieces than the model has positions.
        """
        if isinstance(src, str) and isinstance(tgt, str):
            return score_pairs(self.model, self.params, self.tokenizers, [src], [tgt])[0]
        if isinstance(src, str) or isinstance(tgt, str) or len(src) != len(tgt):
            raise UserError("score: give a translation for each line: two texts, or two lists")
        return score_pairs(self.model, self.params, self.tokenizers, src, tgt) if len(src) else []

    def attention(self, source: str, target: str | None = None) -> CrossAttention:
        """Return the cross-attention of a pair: weights [L N T S], pieces and word alignments.

        Without a target, the best translation is taken.

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
        self.members = list(members)

    def __repr__(self) -> str:
        return f"<TrainedEnsemble of {self.members}>"

    def _make_translator(self, decoding: DecodingConfig, n_best: int) -> Translator:
        longest = self.experiment.data.max_length
        models = [member.model for member in self.members]
        return Translator(models, self.tokenizers, decoding, n_best, longest=longest)

    def attention(self, source: str, target: str | None = None) -> CrossAttention:
        """Refuse: attention is of one model."""
        raise UserError("attention is of one model: load one checkpoint of one work directory")

    def score(self, src: Any, tgt: Any) -> Any:
        """Refuse: log-probabilities are of one model."""
        raise UserError("score is of one model: load one checkpoint of one work directory")


def save_average(workdir: str | Path, count: int, output: str | Path) -> list[int]:
    """Save the mean of the last `count` checkpoints as the only one of a new work directory.

    Returns the steps that it is the mean of.

    Raises:
      UserError: if there are too few, or the output holds a run already.
    """
    place = WorkDir(output)
    if place.config.exists() or place.checkpoints.exists():
        raise UserError(f"--output={place.path}: holds a run already; name a new directory")
    mean = load(workdir, f"average:{count}")
    experiment = mean.experiment
    evaluation = dataclasses.replace(experiment.evaluation, checkpoint="last")
    new = not place.path.exists()
    try:
        with place.claim(dataclasses.replace(experiment, evaluation=evaluation)):
            with writing(f"the tokenizer of {place.path}", place.path):
                mean.tokenizers.save(place.path)
            checkpoints = Checkpoints(place.checkpoints, experiment.checkpoint)
            digest = mean.tokenizers.digest
            host = {"step": mean.steps[-1], "average_of": mean.steps, "tokenizer": digest}
            checkpoints.save(mean.steps[-1], mean.params, {}, host, None)
            checkpoints.close()
    except DiskError:
        if new:  # so that the same command can be tried again
            shutil.rmtree(place.path, ignore_errors=True)
        raise
    return mean.steps


def load(workdir: str | Path, checkpoint: str | int | None = None) -> TrainedModel:
    """Read a trained model: its config, its tokenizer and the parameters of a checkpoint.

    `checkpoint` is best, last, a step or average:N; None takes the experiment's own choice.

    Raises:
      UserError: if the directory holds no such thing.
    """
    place = WorkDir(workdir)
    experiment = place.experiment()
    tokenizers = TokenizerPair.load(place.path, experiment.tokenizer.joint, experiment.codecs)
    model = build_for(experiment, tokenizers.src.size, tokenizers.tgt.size)
    shapes = nn.unbox(abstract_params(model))
    shardings = replicated(shapes, make_mesh(MeshConfig()))
    like = jax.tree.map(
        lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings
    )
    checkpoints = Checkpoints(place.checkpoints, experiment.checkpoint)
    name = experiment.evaluation.checkpoint if checkpoint is None else str(checkpoint)
    params = checkpoints.load_params(name, like)
    steps = checkpoints.choose(name)
    digest = checkpoints.record(steps[-1])["host"].get("tokenizer", tokenizers.digest)
    if digest != tokenizers.digest:
        raise UserError(
            f"{place.path}: its tokenizer is not the one that checkpoint {steps[-1]} was trained "
            "with; put that one back"
        )
    checkpoints.close()
    return TrainedModel(experiment, model, params, tokenizers, steps, place.path)


def load_ensemble(
    workdirs: str | Path | Sequence[str | Path], checkpoint: str | int | None = None
) -> TrainedModel | TrainedEnsemble:
    """Read one model, or several as an ensemble: every named checkpoint of every work directory.

    `checkpoint` names one or several, divided by commas; see `load`. A checkpoint that is named
    twice is a member twice, with a warning.

    Raises:
      UserError: if a directory holds no such thing, or tokenizers differ.
    """
    paths = [workdirs] if isinstance(workdirs, str | Path) else list(workdirs)
    names = [None] if checkpoint is None else str(checkpoint).split(",")
    members = [load(path, name) for path in paths for name in names]
    for member, path in zip(members[:: len(names)], paths, strict=True):
        if member.tokenizers.digest != members[0].tokenizers.digest:
            raise UserError(
                f"--workdir={path}: its tokenizer is not that of {paths[0]}; the models of "
                "an ensemble must write the same pieces"
            )
    counts = Counter((str(member.path), *member.steps) for member in members)
    for (place, *steps), count in counts.items():
        if count > 1:
            named = f"checkpoint {steps[0]}" if len(steps) == 1 else f"the mean of {steps}"
            log.warning(
                "%s: %s is a member of the ensemble %d times; name it once to save time and to "
                "weigh all members alike", place, named, count,
            )  # fmt: skip
    return members[0] if len(members) == 1 else TrainedEnsemble(members)
