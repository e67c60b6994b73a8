"""A trained model, and several as one: what a notebook works with."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_jax import counting
from transformer_jax.config import DecodingConfig, Experiment
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.decoding.text.attention import CrossAttention, cross_attention
from transformer_jax.decoding.text.classify import classify
from transformer_jax.decoding.text.generate import Generator
from transformer_jax.decoding.text.score import score_pairs, score_texts
from transformer_jax.decoding.text.translate import Translator
from transformer_jax.door import parse
from transformer_jax.errors import UserError
from transformer_jax.models.model import Model


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
        self._models = [model]
        self._translators: dict[tuple[DecodingConfig, int], Translator] = {}  # compiled as used

    def __repr__(self) -> str:
        data, steps = self.experiment.data, ", ".join(map(str, self.steps))
        one_sided = self.experiment.objective.one_sided
        steps = f"step {steps}" if len(self.steps) == 1 else f"mean of steps {steps}"
        size = f"{counting.parameters(self.params):,} parameters"
        what = f"{data.source_language}-{data.target_language}"
        what = f"language model of {data.target_language}" if one_sided else what
        if self.experiment.objective.kind == "classify":
            what = f"classifier of {data.source_language}"
        return f"<TrainedModel {what} from {self.path}, {steps}, {size}>"

    def translator(self, decoding: DecodingConfig | None = None, n_best: int = 1) -> Translator:
        """Return the Translator with the given settings, else those of the experiment.

        Raises:
          UserError: if the model does not translate.
        """
        if not self.experiment.objective.translates:
            name = self.experiment.objective.name
            raise UserError(
                f"config.objective.name={name!r}: such a model "
                + (
                    "writes no text; see classify"
                    if name == "classify"
                    else "has no source to translate"
                )
                + ("; to continue a prompt, use generate" if name == "language_model" else "")
            )
        key = decoding or self.experiment.decoding, n_best
        if key not in self._translators:
            longest = self.experiment.data.max_length  # what training never saw, goes in parts
            models = self._models
            self._translators[key] = Translator(models, self.tokenizers, *key, longest=longest)
        return self._translators[key]

    def translate(
        self,
        lines: str | Sequence[str],
        decoding: DecodingConfig | None = None,
        *,
        n_best: int | None = None,
        **fields: Any,
    ) -> Any:
        """Return the best translation of a line, or a list of those of several, as text.

        With `n_best` it is a list of up to so many hypotheses instead, best first, each with text,
        pieces (`ids`), score and log-probability. Settings are `decoding`, else those of the
        experiment; keywords change single fields: `beam_size=1, alpha=1.0`.

        Raises:
          UserError: if there is no such field, or `n_best` is more than the search keeps.
        """
        chosen = self._decoding(decoding, fields)
        translator = self.translator(chosen, 1 if n_best is None else n_best)
        several = [lines] if isinstance(lines, str) else lines
        hypotheses = translator.hypotheses(self.params, several)
        found = [items[0].text for items in hypotheses] if n_best is None else hypotheses
        return found[0] if isinstance(lines, str) else found

    def generator(self, decoding: DecodingConfig | None = None, n_best: int = 1) -> Generator:
        """Return the Generator with the given settings, else those of the experiment.

        Raises:
          UserError: if the model does not continue prompts.
        """
        experiment = self.experiment
        chosen = decoding or experiment.decoding
        codec, objective = self.tokenizers.tgt, experiment.objective
        return Generator(self._models, codec, objective, chosen, n_best)

    def generate(
        self,
        prompts: str | Sequence[str],
        max_tokens: int | None = None,
        decoding: DecodingConfig | None = None,
        *,
        n_best: int | None = None,
        **fields: Any,
    ) -> Any:
        """Return the text that goes on from a prompt, or a list of those of several.

        A language model's text begins with the prompt. It ends with EOS or after `max_tokens` new
        pieces; None are 256, or as many as the model has positions for. The other arguments are
        those of `translate`: `search="sample", temperature=0.8, seed=1`.

        Raises:
          UserError: if the model does not continue prompts, or a prompt and its text are
            longer than it can read.
        """
        chosen = self._decoding(decoding, fields)
        generator = self.generator(chosen, 1 if n_best is None else n_best)
        several = [prompts] if isinstance(prompts, str) else prompts
        texts = generator.generate(self.params, several, max_tokens)
        found = [items[0].text for items in texts] if n_best is None else texts
        return found[0] if isinstance(prompts, str) else found

    def _decoding(self, decoding: DecodingConfig | None, fields: dict[str, Any]) -> DecodingConfig:
        chosen = decoding or self.experiment.decoding
        if not fields:
            return chosen
        return parse(dataclasses.asdict(chosen) | fields, DecodingConfig, "config.decoding")

    def score(self, src: str | Sequence[str], tgt: str | Sequence[str] | None = None) -> Any:
        """Return the log-probabilities (nats) of a line's given translation, or a list of those of
        several: of each piece and of all together. Of a language model, those of a given text.

        Raises:
          UserError: if there are not as many translations as lines, or one has more pieces than the
            model has positions.
        """
        objective, pair = self.experiment.objective, self.tokenizers
        if objective.kind == "classify":
            raise UserError("score: such a model predicts classes; see classify")
        if objective.one_sided:
            if tgt is not None:
                raise UserError("score: a language model has no source; give texts alone")
            texts = [src] if isinstance(src, str) else list(src)
            found = score_texts(self.model, self.params, pair.tgt, objective, texts)
            return found[0] if isinstance(src, str) else found
        given = self.model, self.params, pair
        if isinstance(src, str) and isinstance(tgt, str):
            return score_pairs(*given, [src], [tgt], objective=objective)[0]
        if tgt is None or isinstance(src, str) or isinstance(tgt, str) or len(src) != len(tgt):
            raise UserError("score: give a translation for each line: two texts, or two lists")
        return score_pairs(*given, src, tgt, objective=objective) if len(src) else []

    def classify(self, texts: str | Sequence[str]) -> Any:
        """Return the classes of a text with their probabilities, the likeliest first, or a list of
        those of several.

        Raises:
          UserError: if the model does not predict classes.
        """
        several = [texts] if isinstance(texts, str) else list(texts)
        given = self.model, self.params, self.tokenizers, self.experiment.objective
        found = classify(*given, several)
        return found[0] if isinstance(texts, str) else found

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
        self._models = [member.model for member in members]

    def __repr__(self) -> str:
        return f"<TrainedEnsemble of {self.members}>"

    def attention(self, source: str, target: str | None = None) -> CrossAttention:
        """Refuse: attention is of one model."""
        raise UserError("attention is of one model: load one checkpoint of one work directory")

    def classify(self, texts: Any) -> Any:
        """Refuse: probabilities are of one model."""
        raise UserError("classify is of one model: load one checkpoint of one work directory")

    def score(self, src: Any, tgt: Any = None) -> Any:
        """Refuse: log-probabilities are of one model."""
        raise UserError("score is of one model: load one checkpoint of one work directory")
