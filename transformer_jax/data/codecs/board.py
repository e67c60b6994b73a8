"""Chess positions as the side to move sees them, in the characters of `fen`.

With Black to move the board is turned and the colours are exchanged, so that the pieces that move
are always in upper case and go up; the first character still says who they are.
"""

import json
from collections.abc import Iterable, Sequence

from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs import fen
from transformer_jax.data.codecs.codec import Kind, framed


class Board(fen.Fen):
    """See Fen."""

    file = "board{}.json"
    content = json.dumps({"alphabet": fen.ALPHABET, "seen_by": "the side to move"}).encode()

    def encode(self, texts: Sequence[str], bos: bool = False, eos: bool = True) -> list[list[int]]:
        """See Codec.

        Raises:
          UserError: if a text is not a FEN, or its position is illegal.
        """
        return [framed([self._ids[x] for x in turned(text)], bos, eos) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the FEN."""
        text = super().decode(ids)
        fields = text.split()
        return mirrored(" ".join([fields[0], "w", *fields[2:]])) if fields[1:2] == ["b"] else text


def turned(text: str) -> str:
    """Return the 77 characters of a FEN.

    Raises:
      UserError: if it is not a FEN, or its position is illegal.
    """
    seen = fen.spread(text)
    return seen if seen[0] == "w" else "b" + fen.spread(mirrored(text))[1:]


def mirrored(text: str) -> str:
    """Return the FEN of the same position with the colours exchanged."""
    from transformer_jax.data.sources.chess_positions import read

    return read(text).mirror().fen(en_passant="fen")


def train(config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()) -> Board:
    """Return the only codec; `config` is ignored.

    Raises:
      UserError: if an objective needs named pieces, which the alphabet has no room for.
    """
    fen.check_symbols("board", symbols)
    return Board()


WORDS = {"board": Kind(Board, train, "the alphabet of positions")}
