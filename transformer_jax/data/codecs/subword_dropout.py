"""BPE-dropout (Provilkov et al. 2020, arXiv:1910.13267): random segmentation of words.

SentencePiece has it too, but its random numbers are not reproducible from run to run.
"""

import random
import zlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from transformer_jax.base.vocabulary import EOS
from transformer_jax.data.codecs.codec import Codec

_SPACE = "▁"  # SentencePiece's start of a word
_POOL = 64  # segmentations per word, from which its occurrences choose


class Sampling(NamedTuple):
    """How a training text is segmented: `times` times, at random with `seed`."""

    rate: float  # share of merges dropped
    times: int
    seed: int


class SubwordDropout:
    """Segments lines as their tokenizer does, but skips each possible merge at each step with a
    given probability. The result for a line depends only on the seed and the line's number.
    """

    def __init__(self, tokenizer: Codec, rate: float, seed: int) -> None:
        self._tokenizer, self._rate, self._seed = tokenizer, rate, seed
        pieces = tokenizer.pieces(range(tokenizer.size))
        self._ids = {piece: i for i, piece in enumerate(pieces) if tokenizer.is_text(i)}
        self._cut = lru_cache(2**20)(self._draw)

    def encode(self, lines: Sequence[str], first: int = 0) -> list[list[int]]:
        """Return the ids of each line, EOS appended; `first` is the number of the first line."""
        encoded = self._tokenizer.encode(lines)
        return [self._line(ids, number) for number, ids in enumerate(encoded, first)]

    def _line(self, ids: list[int], number: int) -> list[int]:
        choose = random.Random(self._seed * 2**40 + number).randrange
        cut: list[int] = []
        for word in self._words(ids[:-1]):
            cut.extend(word if isinstance(word, list) else self._cut(word, choose(_POOL)))
        return [*cut, EOS]

    def _words(self, ids: list[int]) -> Iterator[str | list[int]]:
        """Yield words as text, or as ids if they contain characters that are not pieces."""
        word: list[int] = []
        for i, piece in zip(ids, self._tokenizer.pieces(ids), strict=True):
            if piece.startswith(_SPACE) and word:
                yield self._text(word)
                word = []
            word.append(i)
        if word:
            yield self._text(word)

    def _text(self, word: list[int]) -> str | list[int]:
        text = "".join(self._tokenizer.pieces(word))
        whole = all(map(self._tokenizer.is_text, word)) and all(c in self._ids for c in text)
        return text if whole else word

    def _draw(self, word: str, number: int) -> list[int]:
        """Return segmentation `number` of a word; pieces with smaller ids are merged first."""
        draw = random.Random(
            (self._seed * _POOL + number) * 2**32 + zlib.crc32(word.encode())
        ).random
        parts = list(word)
        while True:
            best, at = self._tokenizer.size, -1
            for i in range(len(parts) - 1):
                merged = self._ids.get(parts[i] + parts[i + 1])
                if merged is not None and merged < best and draw() >= self._rate:
                    best, at = merged, i
            if at < 0:
                return [self._ids[part] for part in parts]
            parts[at : at + 2] = [parts[at] + parts[at + 1]]
