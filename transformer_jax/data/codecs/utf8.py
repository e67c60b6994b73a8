"""UTF-8 bytes: 256 pieces that spell any text, with nothing to learn."""

import json
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import RESERVED
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

SIZE = RESERVED + 256
_PIECES = [*SPELLED, *(f"<0x{byte:02X}>" for byte in range(256))]  # as SentencePiece writes bytes


def _written(symbols: Sequence[str] = ()) -> bytes:
    return json.dumps({"special": with_symbols(symbols, SIZE)}).encode()


class Bytes:
    """Each byte of a text is a piece. Invalid UTF-8 is decoded as U+FFFD."""

    file = "bytes{}.json"

    def __init__(self, model: bytes = _written()) -> None:
        self.model = model
        self.special: Mapping[str, int] = _read(model)
        self._pieces = [*_PIECES, *symbols_of(self.special)]

    @property
    def size(self) -> int:
        """Number of pieces."""
        return len(self._pieces)

    @property
    def digest(self) -> str:
        """A hash of the model's bytes."""
        return hashed(self.model)

    def encode(self, texts: Sequence[str], bos: bool = False, eos: bool = True) -> list[list[int]]:
        """See Codec."""
        return [framed(self._ids(text), bos, eos) for text in texts]

    def _ids(self, text: str) -> list[int]:
        raw = np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8)
        return (raw.astype(np.int32) + RESERVED).tolist()

    def decode(self, ids: Iterable[int]) -> str:
        """See Codec."""
        raw = bytes(i - RESERVED for i in before_eos(ids) if RESERVED <= i < SIZE)
        return raw.decode("utf-8", "replace")

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """See Codec."""
        return [self._pieces[int(i)] for i in ids]

    def piece_id(self, piece: str) -> int:
        """See Codec."""
        if piece not in self._pieces:
            raise UserError(f"{piece!r} is not a piece: pieces are bytes, written as <0x41>")
        return self._pieces.index(piece)

    def is_text(self, piece: int) -> bool:
        """See Codec."""
        return False

    def word_starts(self) -> None:
        """See Codec: where a word begins depends on the byte before it."""


def _read(model: bytes) -> dict[str, int]:
    try:
        special = json.loads(model)["special"]
        if model == _written(symbols_of(special)):
            return special
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise ValueError("not the description of a byte codec")


def train(config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()) -> Bytes:
    """Return the codec, which learns nothing; `config` is ignored."""
    return Bytes(_written(symbols))


WORDS = {"bytes": Kind(Bytes, train, "the description of a byte codec")}
