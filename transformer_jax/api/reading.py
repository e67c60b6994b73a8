"""Predictions of trained encoders, for notebooks."""

from collections.abc import Mapping, Sequence
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.config import Experiment
from transformer_jax.data.codecs.coordinates import Coordinates
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.codecs.series import Series
from transformer_jax.data.conversations import Conversation, conversation_of, messages_of
from transformer_jax.decoding import inputs
from transformer_jax.decoding.distances import completed
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.pictures import PictureCodes, picture_codes
from transformer_jax.decoding.series import ahead
from transformer_jax.decoding.text.answer import answers
from transformer_jax.decoding.text.classify import classify
from transformer_jax.decoding.text.next_sentence import follows
from transformer_jax.decoding.text.rewards import rewards
from transformer_jax.decoding.text.tag import tag
from transformer_jax.decoding.text.values import values
from transformer_jax.models.model import Model


class Reading:
    """Predictions of an encoder; each refuses a model that was trained for another one."""

    experiment: Experiment
    model: Model
    params: Any
    tokenizers: TokenizerPair

    @property
    def loaded(self) -> Loaded:
        """The model with what its functions in `decoding` take."""
        settings = self.experiment
        return Loaded(self.model, self.params, self.tokenizers, settings.objective, settings.data)

    def opened(self, lines: str | Sequence) -> list:
        """Return what the source side's codec encodes: lines, or the files they name."""
        return self._read(lines, "translate")[0]

    def _read(self, values: Any, verb: str) -> tuple[list, bool]:
        """Return what the source side's codec encodes of what is given to a verb, and whether one
        value was given and not several.
        """
        return inputs.read(values, self.tokenizers.src, self.experiment.data, verb)

    def reward(self, conversations: Any) -> Any:
        """Return the number that a reward model gives to the last answer of a conversation, or a
        list of these for several: the difference of two answers to the same messages is the
        log-odds (nats) that the one is better. A conversation is a list of messages, each with a
        "role" and a "content", or the JSON text of one.

        Raises:
          UserError: if it is no reward model, or a conversation is malformed.
        """
        one = isinstance(conversations, str) or (
            len(conversations) > 0 and isinstance(conversations[0], Mapping)
        )
        several = [conversations] if one else conversations
        talks = [
            conversation_of(talk) if isinstance(talk, str) else Conversation(messages_of(talk))
            for talk in several
        ]
        numbers = rewards(self.loaded, talks).tolist()
        return numbers[0] if one else numbers

    def classify(self, texts: str | Sequence) -> Any:
        """Return the classes of a text with their probabilities, most likely first, or a list of
        these for several texts. The texts of a pair are separated by a TAB.

        A model of pictures or sounds takes the name of a file, a PIL image or an array, or a list
        of these; files and images are cropped and resized as those of training were.

        Raises:
          UserError: if the model does not predict classes, or an input is malformed.
        """
        several, one = self._read(texts, "classify")
        probabilities = classify(self.loaded, several)
        return probabilities[0] if one else probabilities

    def tag(self, texts: str | Sequence[str]) -> Any:
        """Return the most likely label of each word of a text, or a list of these for several.
        Words are separated by spaces, as in the training files, where punctuation is a word too.

        Raises:
          UserError: if the model does not label words.
        """
        several, one = inputs.texts(texts, "tag")
        tagged = tag(self.loaded, several)
        labels = [said.labels for said in tagged]
        return labels[0] if one else labels

    def value(self, texts: str | Sequence) -> Any:
        """Return the number predicted for a text, or a list of these for several texts; for other
        inputs see `classify`.

        Raises:
          UserError: if the model does not predict numbers.
        """
        several, one = self._read(texts, "value")
        numbers = values(self.loaded, several)
        return numbers[0] if one else numbers

    def answer(self, questions: str | Sequence[str], contexts: str | Sequence[str]) -> Any:
        """Return the answer to a question found in a context, or a list of these for several pairs:
        its text, its first character there, and its log-probability (nats).

        Raises:
          UserError: if the model does not answer questions, or there are not as many of both.
        """
        need = "give a context for each question"
        asked, texts, one = inputs.pairs(questions, contexts, "answer", need)
        if any("\t" in question for question in asked):
            raise UserError("answer: a question contains a TAB; remove it")
        lines = [f"{x}\t{y}" for x, y in zip(asked, texts, strict=True)]
        spans = answers(self.loaded, lines)
        return spans[0] if one else spans

    def forecast(self, series: Any, deciles: bool = False) -> Any:
        """Return the forecast of a series [rows channels], in its unit: [horizon channels]; with
        `deciles` these too, [horizon channels 9], if the model predicts a distribution.

        A series is an array, or the name of a .csv file as in training; for a list of these, or an
        array [n rows channels], return a list.

        Raises:
          UserError: if the model does not forecast, or predicts no distribution, or the series is
            shorter than the model's window or has gaps.
        """
        codec, kind = self.tokenizers.tgt, self.experiment.model.distribution
        if not isinstance(codec, Series):
            raise self.loaded.refusal("forecasts nothing")
        if deciles and kind == "point":
            raise UserError(f"config.model.distribution={kind!r}: such a model predicts no deciles")
        several, one = inputs.read(series, codec, self.experiment.data, "forecast")
        forecasts = ahead(self.loaded, several)
        said = forecasts if deciles else [point for point, _ in forecasts]
        return said[0] if one else said

    def distances(self, known: Any) -> Any:
        """Return the distances between all points of a chain [points points], given those that are
        known, NaN elsewhere: an array, or the name of a .npy file; for a list of these, a list.

        Raises:
          UserError: if the model predicts no distances, or what is given is no such matrix.
        """
        codec = self.tokenizers.tgt
        if not isinstance(codec, Coordinates):
            raise self.loaded.refusal("predicts no distances")
        several, one = inputs.read(known, codec, self.experiment.data, "distances")
        made = completed(self.loaded, several)
        return made[0] if one else made

    @property
    def picture_codes(self) -> PictureCodes:
        """The codes of pictures: `encode` maps pictures, as `classify` takes them, to codes [n L],
        and `decode` codes to pictures; of a variational autoencoder, latents [n rows columns K].

        Raises:
          UserError: if the model has no codes.
        """
        return picture_codes(self.loaded)

    def follows(self, first: str | Sequence[str], second: str | Sequence[str]) -> Any:
        """Return the probability that the second text follows the first, or a list of these for
        several pairs. The end of a first text is read, and the beginning of a second one.

        Raises:
          UserError: if the model does not predict it, or there are not as many of both.
        """
        need = "give a second text for each first"
        firsts, seconds, one = inputs.pairs(first, second, "follows", need)
        log_probs = follows(self.loaded, firsts, seconds)
        return log_probs[0] if one else log_probs
