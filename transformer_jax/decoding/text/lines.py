"""Lines of text, or other inputs of a model, as sentences of a search; long ones in parts."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import Special
from transformer_jax.config import DecodingConfig
from transformer_jax.data.codecs.codec import VectorCodec, read_whole, shortened
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.scripts import words_in
from transformer_jax.data.store.lexicon import Lexicon
from transformer_jax.decoding.batching.stream import Sentence
from transformer_jax.decoding.search.state import Constraint
from transformer_jax.decoding.text.constrained import check_room, check_whole
from transformer_jax.decoding.text.long_lines import split, words_before
from transformer_jax.decoding.text.searching import room_behind
from transformer_jax.models.model import Model

log = logging.getLogger("transformer_jax")

_NEXT_PART = 1_000_003  # between the seeds of a line's parts


class Lines:
    """The input side of a Translator; see there."""

    models: list[Model]
    config: DecodingConfig
    positions: int  # that all models have
    _tokenizers: TokenizerPair
    _special: Special
    _constraint: Constraint | None
    _lexicon: Lexicon | None
    _longest: int
    _warn: bool
    _cuts: bool

    @property
    def longest(self) -> int:
        """The longest source, in pieces with EOS, that is translated whole."""
        return min(self._longest, self.positions)

    def sentences(
        self, lines: Sequence, prefixes: Sequence[str] | None = None, first: int = 1
    ) -> list[Sentence]:
        """Return the sentences to translate, line by line; lines that are too long, in parts.

        Raises:
          UserError: if a line is too long for the model.
        """
        begun: list[list[int]] = [[]] * len(lines)
        if prefixes is not None:
            begun = [ids[:-1] for ids in self._tokenizers.tgt.encode(prefixes)]  # without EOS
            _check_prefixes(begun, self._special, first)
        codec = self._tokenizers.src
        encode, vectors, parts = codec.encode, isinstance(codec, VectorCodec), []
        for line, ids in enumerate(read_whole(codec, lines)):
            sources, before = [ids], [0]
            if self._cuts:
                sources = [self._cut(ids)]
            elif vectors and len(ids) > self.longest:
                most = f"{self.longest:,} of data.max_length and model.max_positions"
                raise UserError(f"line {first + line}: {len(ids):,} vectors, more than {most}")
            elif len(ids) > self.longest:
                texts = split(lines[line], lambda x: list(map(len, encode(x))), self.longest)
                sources = [self._cut(ids) for ids in encode(texts)]
                before = words_before(lines[line], texts, self._read)
                check_whole(self.config, first + line, len(ids), self.longest)
                if self._warn:
                    log.warning(
                        "line %d: %d pieces, at most %d allowed: translated in %d parts",
                        first + line, len(ids), self.longest, len(texts),
                    )  # fmt: skip
            least = 0 if vectors else 1  # EOS
            kept = [pair for pair in zip(sources, before, strict=True) if len(pair[0]) > least]
            for number, (part, preceding) in enumerate(kept):
                prefix = [] if number else begun[line]
                seed = (first + line + number * _NEXT_PART) % 2**31
                if (room := room_behind(self.models, len(part))) < 1:
                    raise UserError(
                        f"line {first + line}: {len(part)} pieces leave no room for an output in "
                        f"config.model.max_positions={self.positions}; shorten it"
                    )
                try:
                    self.config.check_fits(len(part), room)
                except UserError as error:
                    raise UserError(f"line {first + line}: decoding.{error}") from None
                words = 0 if vectors else len(words_in(lines[line]))
                sentence = self.sentence(part, prefix, seed, line)
                parts.append(sentence._replace(words=words, words_before=preceding))
                check_room(self.config, self._constraint, first + line, parts[-1])
        return parts

    def _read(self, text: str) -> str:
        """Return a text as the source side's codec reads it."""
        codec = self._tokenizers.src
        return codec.decode(codec.encode([text])[0])

    def _cut(self, ids: Any) -> Any:
        """Truncate what is too long and not split, or what no splitting makes short enough: a
        character of more pieces than positions.
        """
        return ids[: self.longest] if isinstance(ids, np.ndarray) else shortened(ids, self.longest)

    def sentence(self, ids: Any, prefix: list[int], seed: int, line: int) -> Sentence:
        """Return the search's Sentence for a line."""
        c, length = self.config, len(ids)
        limit = int(length * c.max_length_ratio) + c.max_extra_length
        limit = min(max(limit, len(prefix) + 1), room_behind(self.models, length))
        least = min(int(length * c.min_length_ratio), limit)
        begun, short = prefix[: limit - 1], None
        if self._lexicon is not None:
            short = self._lexicon.shortlist(ids, self.shortlist, self._needed(begun))
        return Sentence(ids, limit, least, begun, seed, line, self._special.begin, shortlist=short)

    @property
    def shortlist(self) -> int:
        """Number of pieces that each translation may use; 0: all."""
        return min(self.config.shortlist, self._tokenizers.tgt.size)

    def _needed(self, prefix: Sequence[int]) -> list[int]:
        """Return the pieces that a shortlist must contain, to begin with a prefix and to end."""
        needed = {*prefix, *self._tokenizers.tgt.special.values()}
        if len(needed) > self.shortlist:
            raise UserError(
                f"config.decoding.shortlist={self.config.shortlist}: the prefix and the special "
                f"pieces need {len(needed)}; raise it, or set it to 0"
            )
        return sorted(needed)


def _check_prefixes(begun: Sequence[list[int]], special: Special, first: int) -> None:
    """Refuse a prefix with which a translation would be over."""
    for number, ids in enumerate(begun, first):
        if special.eos in ids:
            raise UserError(f"line {number}: its prefix contains the piece that ends a text; leave "
                            "that out")  # fmt: skip
