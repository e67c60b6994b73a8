"""Predictions of trained encoders, for notebooks."""

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


class Reading:
    """Predictions of an encoder; each refuses a model that was trained for another one."""

    experiment: Experiment
    model: Model
    params: Any
    tokenizers: TokenizerPair

    def opened(self, lines: str | Sequence) -> list:
        """Return what the source side's codec encodes: lines, or the files they name."""
        several, codec = [lines] if isinstance(lines, str) else list(lines), self.tokenizers.src
        if not isinstance(codec, VectorCodec):
            return several
        return [codec.open(line) if isinstance(line, str) else line for line in several]

    def _check_text(self, what: str) -> None:
        if isinstance(self.tokenizers.src, VectorCodec) or self.experiment.objective.kind == "ctc":
            raise UserError(f"{what}: is for models that read text and write it piece by piece")

    def classify(self, texts: str | Sequence) -> Any:
        """Return the classes of a text with their probabilities, most likely first, or a list of
        these for several texts. The texts of a pair are separated by a TAB.

        Raises:
          UserError: if the model does not predict classes, or a pair is malformed.
        """
        several = self.opened(texts)
        given = self.model, self.params, self.tokenizers, self.experiment.objective
        found = classify(*given, several)
        return found[0] if isinstance(texts, str) else found

    def tag(self, texts: str | Sequence[str]) -> Any:
        """Return the most likely label of each word of a text, or a list of these for several.
        Words are separated by spaces, as in the training files, where punctuation is a word too.

        Raises:
          UserError: if the model does not label words.
        """
        several = [texts] if isinstance(texts, str) else list(texts)
        given = self.model, self.params, self.tokenizers, self.experiment.objective
        found = [said.labels for said in tag(*given, several)]
        return found[0] if isinstance(texts, str) else found

    def value(self, texts: str | Sequence[str]) -> Any:
        """Return the number predicted for a text, or a list of these for several texts.

        Raises:
          UserError: if the model does not predict numbers.
        """
        several = self.opened(texts)
        given = self.model, self.params, self.tokenizers, self.experiment.objective
        found = values(*given, several)
        return found[0] if isinstance(texts, str) else found

    def answer(self, questions: str | Sequence[str], contexts: str | Sequence[str]) -> Any:
        """Return the answer to a question found in a context, or a list of these for several pairs:
        its text, its first character there, and its log-probability (nats).

        Raises:
          UserError: if the model does not answer questions, or there are not as many of both.
        """
        one, two = ([x] if isinstance(x, str) else list(x) for x in (questions, contexts))
        if isinstance(questions, str) != isinstance(contexts, str) or len(one) != len(two):
            raise UserError("answer: give a context for each question: two texts, or two lists")
        if any("\t" in question for question in one):
            raise UserError("answer: a question contains a TAB; remove it")
        given = self.model, self.params, self.tokenizers, self.experiment.objective
        lines = [f"{x}\t{y}" for x, y in zip(one, two, strict=True)]
        found = answers(*given, lines)
        return found[0] if isinstance(questions, str) else found

    def forecast(self, series: Any, deciles: bool = False) -> Any:
        """Return the forecast of a series [rows channels], in its unit: [horizon channels]; with
        `deciles` these too, [horizon channels 9], if the model predicts a distribution.

        Raises:
          UserError: if the model does not forecast, or predicts no distribution, or the series is
            shorter than the model's window.
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
            raise UserError(f"config.model.distribution={kind!r}: such a model predicts no deciles")
        return (point, found) if deciles else point

    @property
    def picture_codes(self) -> PictureCodes:
        """The codes of pictures: `encode` maps pictures [n H W] or [n H W C] to codes [n L], and
        `decode` codes to pictures.

        Raises:
          UserError: if the model has no codes.
        """
        return picture_codes(self.model, self.params, self.tokenizers.tgt)

    def follows(self, first: str | Sequence[str], second: str | Sequence[str]) -> Any:
        """Return the probability that the second text follows the first, or a list of these for
        several pairs. The end of a first text is read, and the beginning of a second one.

        Raises:
          UserError: if the model does not predict it, or there are not as many of both.
        """
        one, two = ([x] if isinstance(x, str) else list(x) for x in (first, second))
        if isinstance(first, str) != isinstance(second, str) or len(one) != len(two):
            raise UserError("follows: give a second text for each first: two texts, or two lists")
        given = self.model, self.params, self.tokenizers.tgt, self.experiment.objective
        found = follows(*given, one, two)
        return found[0] if isinstance(first, str) else found
