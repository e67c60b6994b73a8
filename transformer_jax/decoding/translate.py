"""From lines of text to translations, in input order."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer_jax.choices import pick
from transformer_jax.config import DecodingConfig
from transformer_jax.data.tokenizer import TokenizerPair
from transformer_jax.decoding.beam import BeamSearch
from transformer_jax.decoding.engine import Engine
from transformer_jax.decoding.risk import RISKS
from transformer_jax.decoding.search import NOTHING, Search
from transformer_jax.decoding.stepper import ENSEMBLES, Ensemble, Stepper
from transformer_jax.decoding.stream import Found, Sentence, stream
from transformer_jax.decoding.walk import Walk
from transformer_jax.errors import UserError
from transformer_jax.models.encoder_decoder import EncoderDecoder, EncoderDecoderStepper
from transformer_jax.vocabulary import EOS

log = logging.getLogger("transformer_jax")

_LONGEST = 1024  # pieces of a source


class Translation(NamedTuple):
    """One hypothesis."""

    text: str
    ids: list[int]  # pieces, with EOS where the search came to one
    score: float  # log-probability / penalty, nats


class Translator:
    """A model, its tokenizers, and compiled searches.

    Several models are an ensemble; their parameters come as a list then, too. `n_best` is how many
    hypotheses of each line are wanted. The work is shared among `devices`, by default all of this
    process.

    Raises:
      UserError: if more hypotheses are wanted than the search keeps, or a forbidden piece is none.
    """

    def __init__(
        self,
        model: EncoderDecoder | Sequence[EncoderDecoder],
        tokenizers: TokenizerPair,
        config: DecodingConfig,
        n_best: int = 1,
        devices: Sequence[jax.Device] | None = None,
    ) -> None:
        kept = "num_samples" if config.search == "sample" else "beam_size"
        if not 1 <= n_best <= config.hypotheses:
            raise UserError(
                f"n_best={n_best}: must lie between 1 and decoding.{kept}={config.hypotheses}"
            )
        self._models = [model] if isinstance(model, EncoderDecoder) else list(model)
        self._tokenizers, self._config, self._n_best = tokenizers, config, n_best
        self._mesh = Mesh(devices or jax.local_devices(), "rows")
        self._engine = Engine(self._make_search(), self._make_stepper, self._mesh)

    def _make_search(self) -> Search:
        config = self._config
        forbidden = tuple(self._tokenizers.tgt.piece_id(piece) for piece in config.forbidden)
        if config.search == "sample":
            return Walk(config, config.num_samples, random=True, forbidden=forbidden)
        if config.beam_size == 1:
            return Walk(config, forbidden=forbidden)
        wanted = self._n_best if config.rerank == "none" else config.beam_size
        return BeamSearch(config, wanted, forbidden)

    def _make_stepper(self, params: Any) -> Stepper:
        steppers = list(map(EncoderDecoderStepper, self._models, params))
        if len(steppers) == 1:
            return steppers[0]
        mean = pick(ENSEMBLES, self._config.ensemble, "config.decoding.ensemble")
        return Ensemble(steppers, mean)

    @property
    def longest(self) -> int:
        """The longest source, in pieces with EOS; what is longer is cut there."""
        return min(_LONGEST, *(_positions(model) for model in self._models))

    def translate(
        self,
        params: Any,
        lines: Sequence[str],
        progress: Callable[[Iterable], Iterable] = iter,
    ) -> list[Translation]:
        """Return the best translation of each line; see `hypotheses`."""
        return [found[0] for found in self.hypotheses(params, lines, progress)]

    def hypotheses(
        self,
        params: Any,
        lines: Sequence[str],
        progress: Callable[[Iterable], Iterable] = iter,
        prefixes: Sequence[str] | None = None,
        first: int = 1,
    ) -> list[list[Translation]]:
        """Return up to n_best translations of each line, best first; empty lines stay empty.

        Each translation begins with its line's prefix, if there are any. Lines longer than
        `longest` are cut there, with a warning. `progress` wraps the loop over lines, in the order
        in which they finish. `first` is the number of the first line, on which samples depend.
        """
        sources = self._tokenizers.src.encode(lines)
        sources = [self._cut(ids, number) for number, ids in enumerate(sources, first)]
        begun: list[list[int]] = [[]] * len(lines)
        if prefixes is not None:
            begun = [ids[:-1] for ids in self._tokenizers.tgt.encode(prefixes)]  # without EOS
        numbers = [number for number, ids in enumerate(sources) if len(ids) > 1]
        sentences = [self._sentence(sources[n], begun[n], first + n) for n in numbers]
        whole = NamedSharding(self._mesh, PartitionSpec())
        params = jax.device_put([params] if len(self._models) == 1 else list(params), whole)
        results = [[Translation("", [], 0.0)] for _ in lines]
        found = stream(self._engine, params, sentences, self._config.tokens_per_batch)
        for item in progress(found):
            results[numbers[item.number]] = self._translations(item)
        return results

    def _translations(self, found: Found) -> list[Translation]:
        """Return the n_best of what was found for a line."""
        pairs = list(zip(found.tokens, found.scores, strict=True))
        if self._config.rerank == "none" and self._config.search == "beam":
            pairs = pairs[: self._n_best]
        items = [self._translation(t.tolist(), float(s)) for t, s in pairs if s > NOTHING / 2]
        risk = pick(RISKS, self._config.rerank, "config.decoding.rerank")
        order = risk([item.text for item in items])
        return [items[i] for i in order[: self._n_best]]

    def _translation(self, tokens: list[int], score: float) -> Translation:
        ids = _until_eos(tokens)
        return Translation(self._tokenizers.tgt.decode(ids), ids, score)

    def _cut(self, ids: list[int], number: int) -> list[int]:
        if len(ids) <= self.longest:
            return ids
        log.warning("line %d: %d pieces, cut after %d", number, len(ids), self.longest)
        return [*ids[: self.longest - 1], EOS]

    def _sentence(self, ids: list[int], prefix: list[int], number: int) -> Sentence:
        """Return what the search needs to know of a line."""
        c, length = self._config, len(ids)
        room = min(_positions(model) for model in self._models)
        limit = int(length * c.max_length_ratio) + c.max_extra_length
        limit = min(max(limit, len(prefix) + 1), room)
        least = min(int(length * c.min_length_ratio), limit)
        return Sentence(ids, limit, least, prefix[: limit - 1], number)


def _positions(model: EncoderDecoder) -> int:
    """Return how many positions a model knows."""
    learned = model.config.positions == "learned"
    return model.config.max_positions if learned else 1 << 30


def _until_eos(tokens: list[int]) -> list[int]:
    """Cut after the first EOS, or before the padding."""
    if EOS in tokens:
        return tokens[: tokens.index(EOS) + 1]
    return [token for token in tokens if token]
