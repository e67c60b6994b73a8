"""What a trained model that reads says of texts, for a notebook."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from transformer_jax.config import Experiment
from transformer_jax.data.codecs.codec import VectorCodec
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.codecs.series import Series
from transformer_jax.decoding.pictures import PictureCodes, picture_codes
from transformer_jax.decoding.series import ahead
from transformer_jax.decoding.text.answer import answers
from transformer_jax.decoding.text.classify import classify
from transformer_jax.decoding.text.next_sentence import follows
from transformer_jax.decoding.text.tag import tag
from transformer_jax.decoding.text.values import values
from transformer_jax.errors import UserError
from transformer_jax.models.model import Model

# The methods that ask a model of each objective.
ASKED = {
    "classify": "classify", "classify_pairs": "classify", "tag": "tag", "regress": "value",
    "answer": "answer", "forecast": "forecast", "reconstruct": "picture_codes",
}  # fmt: skip

KINDS = {
    "classify": "classifier", "classify_pairs": "classifier of pairs", "tag": "tagger",
    "regress": "regression", "answer": "reader",
}  # fmt: skip


class Reading:
    """Answers of an encoder; each refuses a model that was trained for another one."""

    experiment: Experiment
    model: Model
    params: Any
    tokenizers: TokenizerPair

    def opened(self, lines: str | Sequence) -> list:
        """Return what the source side's codec encodes: lines, or what files of that name hold."""
        several, codec = [lines] if isinstance(lines, str) else list(lines), self.tokenizers.src
        if not isinstance(codec, VectorCodec):
            return several
        return [codec.open(line) if isinstance(line, str) else line for line in several]

    def _check_text(self, what: str) -> None:
        if isinstance(self.tokenizers.src, VectorCodec) or self.experiment.objective.kind == "ctc":
            raise UserError(f"{what}: is for models that read text and write it piece by piece")

    def classify(self, texts: str | Sequence) -> Any:
        """Return the classes of a text with their probabilities, the likeliest first, or a list of
        those of several. Of a pair of texts, a TAB stands between them.

        Raises:
          UserError: if the model does not predict classes, or a pair is none.
        """
        several = self.opened(texts)
        given = self.model, self.params, self.tokenizers, self.experiment.objective
        found = classify(*given, several)
        return found[0] if isinstance(texts, str) else found

    def tag(self, texts: str | Sequence[str]) -> Any:
        """Return the likeliest label of each word of a text, or a list of those of several. Words
        stand between spaces, as in the files of training: punctuation is a word of its own there.

        Raises:
          UserError: if the model does not predict labels of words.
        """
        several = [texts] if isinstance(texts, str) else list(texts)
        given = self.model, self.params, self.tokenizers, self.experiment.objective
        found = [said.labels for said in tag(*given, several)]
        return found[0] if isinstance(texts, str) else found

    def value(self, texts: str | Sequence[str]) -> Any:
        """Return the number that is said of a text, or a list of those of several.

        Raises:
          UserError: if the model does not predict numbers.
        """
        several = self.opened(texts)
        given = self.model, self.params, self.tokenizers, self.experiment.objective
        found = values(*given, several)
        return found[0] if isinstance(texts, str) else found

    def answer(self, questions: str | Sequence[str], contexts: str | Sequence[str]) -> Any:
        """Return the answer to a question that stands in a context, or a list of those of several
        pairs: its text, its first character there, and its log-probability (nats).

        Raises:
          UserError: if the model does not answer, or there are not as many of both.
        """
        one, two = ([x] if isinstance(x, str) else list(x) for x in (questions, contexts))
        if isinstance(questions, str) != isinstance(contexts, str) or len(one) != len(two):
            raise UserError("answer: give a context for each question: two texts, or two lists")
        if any("\t" in question for question in one):
            raise UserError("answer: a question holds a TAB; leave it out")
        given = self.model, self.params, self.tokenizers, self.experiment.objective
        lines = [f"{x}\t{y}" for x, y in zip(one, two, strict=True)]
        found = answers(*given, lines)
        return found[0] if isinstance(questions, str) else found

    def forecast(self, series: Any, deciles: bool = False) -> Any:
        """Return what comes next in a series [rows channels], in its unit: [horizon channels]; with
        `deciles` these too, [horizon channels 9], of a model that says a distribution.

        Raises:
          UserError: if the model does not forecast, or says no distribution, or the series is
            shorter than what it reads.
        """
        config, codec = self.experiment.objective, self.tokenizers.tgt
        if not isinstance(codec, Series):
            raise UserError(
                f"config.objective.name={config.name!r}: such a model forecasts nothing"
            )
        kind = self.experiment.model.distribution
        given = self.model, self.params, codec, config, kind
        point, found = ahead(*given, np.asarray(series, np.float64))
        if deciles and found is None:
            raise UserError(f"config.model.distribution={kind!r}: such a model says numbers alone")
        return (point, found) if deciles else point

    @property
    def picture_codes(self) -> PictureCodes:
        """What writes pictures [n H W] or [n H W C] as codes [n L], `encode`, and makes pictures of
        codes, `decode`.

        Raises:
          UserError: if the model has no codes.
        """
        return picture_codes(self.model, self.params, self.tokenizers.tgt)

    def follows(self, first: str | Sequence[str], second: str | Sequence[str]) -> Any:
        """Return the probability that a text goes on from another one, or a list of those of
        several pairs. Of a first text the end is read, of a second one its beginning.

        Raises:
          UserError: if the model does not predict it, or there are not as many of both.
        """
        one, two = ([x] if isinstance(x, str) else list(x) for x in (first, second))
        if isinstance(first, str) != isinstance(second, str) or len(one) != len(two):
            raise UserError("follows: give a second text for each first one: two texts, two lists")
        given = self.model, self.params, self.tokenizers.tgt, self.experiment.objective
        found = follows(*given, one, two)
        return found[0] if isinstance(first, str) else found
