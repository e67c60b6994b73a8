"""What a notebook needs."""

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_jax import counting
from transformer_jax.config import DecodingConfig, Experiment
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.decoding.text.attention import CrossAttention, cross_attention
from transformer_jax.decoding.text.score import PairScore, score_pairs
from transformer_jax.decoding.text.translate import Translator
from transformer_jax.door import parse
from transformer_jax.errors import UserError
from transformer_jax.models.model import Model

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
        """Return the best translation of a line, or a list of those of several, as text.

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
        """Return the log-probabilities (nats) of a line's given translation, or a list of those of
        several: of each piece and of all together.

        Raises:
          UserError: if they are not as many, or one has more pieces than the model has positions.
        """
        if isinstance(src, str) and isinstance(tgt, str):
            return score_pairs(self.model, self.params, self.tokenizers, [src], [tgt])[0]
        if isinstance(src, str) or isinstance(tgt, str) or len(src) != len(tgt):
            raise UserError("score: give a translation for each line: two texts, or two lists")
        return score_pairs(self.model, self.params, self.tokenizers, src, tgt) if len(src) else []

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
