"""Words: space-separated tokens, the most frequent ones of the training text.

Also for text already segmented by another program, whose pieces are then the words.
"""

import json
from collections import Counter
from collections.abc import Container, Iterable, Sequence

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import RESERVED, UNK
from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.codec import (
    SPELLED,
    Kind,
    before_eos,
    framed,
    sampled,
    symbols_of,
    with_symbols,
)
from transformer_jax.data.codecs.listed import UNKNOWN, Listed
from transformer_jax.data.scripts import words_in


class Words(Listed):
    """Each word is a piece; an unknown one is `unk`, written [UNK]. Any run of whitespace counts as
    one space; a no-break space is part of a word.
    """

    file = "words{}.json"
    HINT = ": pieces are words of the training text"

    def __init__(self, model: bytes) -> None:
        pieces, special, self._lowercase = _read(model)
        super().__init__(model, pieces, special)
        named = [*SPELLED, *symbols_of(special)]  # never matched in text
        self._words = {piece: i for piece, i in self._ids.items() if piece not in named}

    def encode(self, texts: Sequence[str], bos: bool = False, eos: bool = True) -> list[list[int]]:
        """See Codec."""
        return [framed(self._cut(text), bos, eos) for text in texts]

    def _cut(self, text: str) -> list[int]:
        ids = []
        for word in _cut(text, self._lowercase, self._words):
            # Without a piece, a word with a no-break space inside is what it consists of.
            parts = [word] if word in self._words else word.split()
            ids += [self._words.get(part, UNK) for part in parts]
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """See Codec."""
        left_out = set(self.special.values()) - {UNK}
        kept = (i for i in before_eos(ids) if i not in left_out)
        return " ".join(UNKNOWN if i == UNK else self._all[i] for i in kept)

    def word_starts(self) -> np.ndarray | None:
        """See Codec."""
        return np.ones(self.size, bool)


def _cut(text: str, lowercase: bool, kept: Container[str]) -> list[str]:
    """Return the words, in lower case if requested, except those `kept`."""
    return [x.lower() if lowercase and x not in kept else x for x in words_in(text)]


def _read(model: bytes) -> tuple[list[str], dict[str, int], bool]:
    try:
        content = json.loads(model)
        words, special, lowercase = content["words"], content["special"], content["lowercase"]
        named = [*SPELLED, *symbols_of(special)]
        right = special == with_symbols(symbols_of(special), RESERVED)
        unique = len({*named, *words}) == len(named) + len(words)
        if right and unique and all(words) and isinstance(lowercase, bool):
            return [*named, *words], special, lowercase
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise ValueError("not a list of words")


def train(config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()) -> Words:
    """Return the codec of the most frequent words, ties broken by code points. `symbols` of the
    config are included regardless of frequency.

    Raises:
      UserError: if there are too few words.
    """
    counts: Counter[str] = Counter()
    for text in sampled(texts, config.max_lines):
        counts.update(_cut(text, config.lowercase, config.symbols))
    for piece in (*SPELLED, *symbols, *config.symbols):
        counts.pop(piece, None)
    ordered = sorted(counts, key=lambda word: (-counts[word], word))
    named = RESERVED + len(symbols) + len(config.symbols)
    if named + len(ordered) < config.vocab_size:
        raise UserError(
            f"config.tokenizer.vocab_size={config.vocab_size}: the corpus has {len(ordered)} "
            f"words, plus {named} named pieces; lower it to {named + len(ordered)}"
        )
    content = {
        "special": with_symbols(symbols, RESERVED), "lowercase": config.lowercase,
        "words": [*config.symbols, *ordered[: config.vocab_size - named]],
    }  # fmt: skip
    return Words(json.dumps(content, ensure_ascii=False).encode())


WORDS = {"words": Kind(Words, train, "a list of words")}
