"""Spans: the position of an answer in its context, by word and sign indices."""

import json
from collections.abc import Iterable, Mapping, Sequence

from transformer_jax.base.errors import UserError
from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.codec import Kind, hashed

_MODEL = json.dumps({"spans": 2}).encode()


class Spans:
    """A text is three ids: the number of words and signs, and the first and last of the answer, as
    written by `data.questions.located`; there is no BOS and no EOS.
    """

    file = "spans{}.json"
    special: Mapping[str, int] = {}

    def __init__(self, model: bytes = _MODEL) -> None:
        if model != _MODEL:
            raise ValueError("not the description of spans")
        self.model = model

    @property
    def size(self) -> int:
        """Two: the beginning and the end of an answer."""
        return 2

    @property
    def digest(self) -> str:
        """A hash of the model's bytes."""
        return hashed(self.model)

    def encode(self, texts: Sequence[str], bos: bool = False, eos: bool = True) -> list[list[int]]:
        """See Codec."""
        return [list(map(int, text.partition("\t")[0].split())) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the three numbers."""
        return " ".join(str(int(i)) for i in ids)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """See Codec."""
        return [str(int(i)) for i in ids]

    def piece_id(self, piece: str) -> int:
        """See Codec."""
        if not piece.isdecimal():
            raise UserError(f"{piece!r} is not the number of a word")
        return int(piece)

    def is_text(self, piece: int) -> bool:
        """See Codec."""
        return False

    def word_starts(self) -> None:
        """See Codec."""


def train(config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()) -> Spans:
    """Return the codec; the arguments are ignored."""
    return Spans()


WORDS = {"spans": Kind(Spans, train, "the description of spans")}
