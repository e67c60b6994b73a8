"""From lines of text to translations: batches of similar length, results in input order."""

import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.choices import pick
from transformer_jax.config import DecodingConfig
from transformer_jax.data.tokenizer import TokenizerPair
from transformer_jax.decoding.beam import NOTHING, beam_search
from transformer_jax.decoding.greedy import greedy_search
from transformer_jax.decoding.penalty import PENALTIES
from transformer_jax.errors import UserError
from transformer_jax.models.encoder_decoder import EncoderDecoder, EncoderDecoderStepper
from transformer_jax.vocabulary import EOS, PAD

log = logging.getLogger("transformer_jax")

_LENGTHS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


class Translation(NamedTuple):
    """One hypothesis."""

    text: str
    ids: list[int]  # pieces, with EOS where the search came to one
    score: float  # log-probability / penalty, nats


class Translator:
    """A model, its tokenizers, and compiled searches, one for each shape.

    `n_best` is how many hypotheses of each line are wanted, at most config.beam_size.

    Raises:
      UserError: if more are wanted.
    """

    def __init__(
        self,
        model: EncoderDecoder,
        tokenizers: TokenizerPair,
        config: DecodingConfig,
        n_best: int = 1,
    ) -> None:
        if not 1 <= n_best <= config.beam_size:
            raise UserError(
                f"n_best={n_best}: must lie between 1 and decoding.beam_size={config.beam_size}"
            )
        self._model, self._tokenizers, self._config = model, tokenizers, config
        self._search = jax.jit(
            functools.partial(_search, model, config, n_best), static_argnames=("length",)
        )

    @property
    def longest(self) -> int:
        """The longest source, in pieces with EOS; what is longer is cut there."""
        if self._model.config.positions == "learned":
            return min(_LENGTHS[-1], self._model.config.max_positions)
        return _LENGTHS[-1]

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
    ) -> list[list[Translation]]:
        """Return up to n_best translations of each line, best first; empty lines stay empty.

        Lines longer than `longest` are cut there, with a warning. `progress` wraps the loop over
        batches.
        """
        sources = self._tokenizers.src.encode(lines)
        results = [[Translation("", [], 0.0)] for _ in lines]
        sources = [self._cut(ids, number) for number, ids in enumerate(sources, 1)]
        for length, rows, members in progress(self._batches(sources)):
            ids, limits = self._pad(sources, members, rows, length)
            tokens, scores = jax.device_get(self.search(params, ids, limits, self._room(length)))
            for row, index in enumerate(members):
                results[index] = [
                    self._translation(*pair)
                    for pair in zip(tokens[row].tolist(), scores[row].tolist(), strict=True)
                    if pair[1] > NOTHING / 2
                ]
        return results

    def search(self, params: Any, ids: np.ndarray, limits: np.ndarray, length: int) -> Any:
        """Return tokens [B n L] and scores [B n] for padded sources [B S]; compiled by shape."""
        return self._search(params, ids, limits, length=length)

    def _translation(self, tokens: list[int], score: float) -> Translation:
        ids = _until_eos(tokens)
        return Translation(self._tokenizers.tgt.decode(ids), ids, score)

    def _cut(self, ids: list[int], number: int) -> list[int]:
        if len(ids) <= self.longest:
            return ids
        log.warning("line %d: %d pieces, cut after %d", number, len(ids), self.longest)
        return [*ids[: self.longest - 1], EOS]

    def _room(self, length: int) -> int:
        room = length + self._config.max_extra_length
        if self._model.config.positions == "learned":
            room = min(room, self._model.config.max_positions)
        return room

    def _batches(self, sources: list[list[int]]) -> list[tuple[int, int, list[int]]]:
        """Group the sources with words by padded length: (length, rows, which)."""
        groups: dict[int, list[int]] = {}
        for index in sorted(range(len(sources)), key=lambda i: len(sources[i])):
            if len(sources[index]) > 1:
                length = next(n for n in _LENGTHS if n >= len(sources[index]))
                groups.setdefault(min(length, self.longest), []).append(index)
        batches = []
        for length, members in sorted(groups.items(), reverse=True):  # the most memory first
            full = max(1, self._config.tokens_per_batch // (length * self._config.beam_size))
            for start in range(0, len(members), full):
                part = members[start : start + full]
                # Few shapes: a part of a batch is padded to a power of two.
                rows = full if len(part) == full else min(full, 1 << (len(part) - 1).bit_length())
                batches.append((length, rows, part))
        return batches

    def _pad(
        self, sources: list[list[int]], members: list[int], rows: int, length: int
    ) -> tuple[np.ndarray, np.ndarray]:
        ids = np.zeros((rows, length), np.int32)
        limits = np.zeros(rows, np.int32)
        for row, index in enumerate(members):
            source = sources[index]
            ids[row, : len(source)] = source
            limits[row] = min(len(source) + self._config.max_extra_length, self._room(length))
        return ids, limits


def _search(model, config: DecodingConfig, n_best: int, params, ids, limits, length: int):
    stepper = EncoderDecoderStepper(model, params)
    if config.beam_size == 1:
        tokens, log_prob = greedy_search(stepper, ids, limits, length)
        penalty = pick(PENALTIES, config.length_penalty, "config.decoding.length_penalty")
        written = jnp.maximum((tokens != PAD).sum(1), 1)
        return tokens[:, None], (log_prob / penalty(written, config.alpha))[:, None]
    return beam_search(stepper, ids, limits, length, config, n_best)


def _until_eos(tokens: list[int]) -> list[int]:
    """Cut after the first EOS, or before the padding."""
    if EOS in tokens:
        return tokens[: tokens.index(EOS) + 1]
    return [token for token in tokens if token]
