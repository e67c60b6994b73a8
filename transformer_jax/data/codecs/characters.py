"""Characters: one piece for each in the training text, ordered by code point."""

import json
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import RESERVED, UNK
from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.codec import (
    SPELLED,
    Kind,
    before_eos,
    framed,
    hashed,
    symbols_of,
    with_symbols,
)


class Characters:
    """Each character is a piece; one not in the training text is `unk`, written ⁇."""

    file = "characters{}.json"

    def __init__(self, model: bytes) -> None:
        self.model = model
        self.special: Mapping[str, int]
        self._characters, self.special = _read(model)
        self._symbols = symbols_of(self.special)
        self._points = _code_points(self._characters)
        self._spelled = [*SPELLED, *self._characters, *self._symbols]

    @property
    def size(self) -> int:
        """Number of pieces."""
        return RESERVED + len(self._characters) + len(self._symbols)

    @property
    def digest(self) -> str:
        """A hash of the model's bytes."""
        return hashed(self.model)

    def encode(self, texts: Sequence[str], bos: bool = False, eos: bool = True) -> list[list[int]]:
        """See Codec."""
        return [framed(self._ids(text), bos, eos) for text in texts]

    def _ids(self, text: str) -> list[int]:
        points = _code_points(text)
        index = np.searchsorted(self._points, points)
        known = index < len(self._points)
        known[known] = self._points[index[known]] == points[known]
        return np.where(known, RESERVED + index, UNK).tolist()

    def decode(self, ids: Iterable[int]) -> str:
        """See Codec."""
        text = (i for i in before_eos(ids) if i == UNK or self.is_text(i))
        return "".join("⁇" if i == UNK else self._spelled[i] for i in text)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """See Codec."""
        return [self._spelled[int(i)] for i in ids]

    def piece_id(self, piece: str) -> int:
        """See Codec."""
        if piece in SPELLED:
            return SPELLED.index(piece)
        if piece in self._symbols:
            return self.special[piece[1:-1]]
        if len(piece) != 1 or piece not in self._characters:
            raise UserError(f"{piece!r} is not a piece: pieces are single characters of the text")
        return RESERVED + self._characters.index(piece)

    def is_text(self, piece: int) -> bool:
        """See Codec."""
        return RESERVED <= piece < RESERVED + len(self._characters)

    def word_starts(self) -> None:
        """See Codec: where a word begins depends on the character before it."""


def _code_points(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


def _read(model: bytes) -> tuple[str, dict[str, int]]:
    try:
        content = json.loads(model)
        characters, special = content["characters"], content["special"]
        expected = with_symbols(symbols_of(special), RESERVED + len(characters))
        if special == expected and characters == "".join(sorted(set(characters))):
            return characters, special
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise ValueError("not a list of characters")


def train(config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()) -> Characters:
    """Return the codec of the characters in the texts; `config` is ignored.

    Raises:
      UserError: if there are none.
    """
    letters: set[str] = set()
    for text in texts:
        letters.update(text)
    if not letters:
        raise UserError("config.data.train: all texts are empty; they have no characters to learn")
    special = with_symbols(symbols, RESERVED + len(letters))
    content = {"special": special, "characters": "".join(sorted(letters))}
    # Not by JSON's escapes, which make one character of two neighbouring lone surrogates.
    return Characters(json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogatepass"))


WORDS = {"characters": Kind(Characters, train, "a list of characters")}
