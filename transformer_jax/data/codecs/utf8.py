"""Bytes of UTF-8: 256 pieces that spell any text, and nothing to learn."""

import json
from collections.abc import Iterable, Sequence

import numpy as np

from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.codec import SPECIAL, SPELLED, before_eos, framed, hashed
from transformer_jax.errors import UserError
from transformer_jax.vocabulary import RESERVED, UNK

SIZE = RESERVED + 256
_MODEL = json.dumps({"special": SPECIAL}).encode()
_PIECES = [*SPELLED, *(f"<0x{byte:02X}>" for byte in range(256))]  # as SentencePiece writes bytes


class Bytes:
    """Each byte of a text is a piece. Bytes that are not UTF-8 are decoded as U+FFFD."""

    file = "bytes{}.json"
    special = SPECIAL
    size = SIZE
    model = _MODEL

    def __init__(self, model: bytes = _MODEL) -> None:
        if model != _MODEL:
            raise ValueError("not the description of a byte codec")

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
        raw = bytes(i - RESERVED for i in before_eos(ids) if i != UNK)
        return raw.decode("utf-8", "replace")

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """See Codec."""
        return [_PIECES[int(i)] for i in ids]

    def piece_id(self, piece: str) -> int:
        """See Codec."""
        if piece not in _PIECES:
            raise UserError(f"{piece!r} is not a piece: pieces are bytes, written as <0x41>")
        return _PIECES.index(piece)

    def is_text(self, piece: int) -> bool:
        """See Codec."""
        return False


def train(config: TokenizerConfig, texts: Sequence[str]) -> Bytes:
    """Return the codec: it learns nothing, and `config` has no say in it."""
    return Bytes()
