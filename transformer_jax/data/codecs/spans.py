"""Spans: where in a context an answer stands, by the numbers of its words and signs."""

import json
from collections.abc import Iterable, Mapping, Sequence

from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.codec import hashed
from transformer_jax.errors import UserError

_MODEL = json.dumps({"spans": 2}).encode()


class Spans:
    """A text is three ids: how many words and signs there are, and the first and the last of the
    answer, as `data.questions.located` writes them; there is no BOS and no EOS.
    """

    file = "spans{}.json"
    special: Mapping[str, int] = {}

    def __init__(self, model: bytes = _MODEL) -> None:
        if model != _MODEL:
            raise ValueError("not the description of spans")
        self.model = model

    @property
    def size(self) -> int:
        """Two: an answer begins and ends."""
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
            raise UserError(f"{piece!r} is no number of a word")
        return int(piece)

    def is_text(self, piece: int) -> bool:
        """See Codec."""
        return False

    def word_starts(self) -> None:
        """See Codec."""


def train(config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()) -> Spans:
    """Return the codec; nothing has a say in it."""
    return Spans()
