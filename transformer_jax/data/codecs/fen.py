"""Chess positions as 77 characters of a fixed alphabet (Ruoss et al. 2024, arXiv:2402.04494).

The fields of a FEN at fixed positions: the side to move, the 64 squares from a8 to h1 with a dot
for each empty one, castling in 4 characters, the en passant square in 2, half-moves and moves in 3
each, padded on the right with dots.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import RESERVED
from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.codec import SPELLED, Kind, before_eos, framed, with_symbols
from transformer_jax.data.codecs.listed import Listed

ALPHABET = ".0123456789abcdefghknpqrwBKNPQR"
LENGTH = 77
_PLACES = (("side", 1), ("squares", 64), ("castling", 4), ("en passant", 2), ("half-moves", 3),
           ("moves", 3))  # fmt: skip
SQUARES = _PLACES[0][1]  # where they begin


class Fen(Listed):
    """Each of the characters is a piece. The texts are FENs of legal positions."""

    file = "fen{}.json"
    content = json.dumps({"alphabet": ALPHABET}).encode()
    HINT = f": pieces are the characters {ALPHABET}"

    def __init__(self, model: bytes | None = None) -> None:
        model = self.content if model is None else model
        if model != self.content:
            raise ValueError("not the alphabet of this version")
        special: Mapping[str, int] = with_symbols((), RESERVED)
        super().__init__(model, [*SPELLED, *ALPHABET], special)

    def encode(self, texts: Sequence[str], bos: bool = False, eos: bool = True) -> list[list[int]]:
        """See Codec.

        Raises:
          UserError: if a text is not a FEN, or its position is illegal.
        """
        return [framed([self._ids[x] for x in spread(text)], bos, eos) for text in texts]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the FEN."""
        text = "".join(self._all[i] for i in before_eos(ids) if i >= RESERVED)
        return gathered(text) if len(text) == LENGTH else text

    def settled(self, ids: Sequence[int]) -> str:
        """See `codec.settled`: the text is another one once all characters are there."""
        return ""

    def is_text(self, piece: int) -> bool:
        """See Codec."""
        return piece >= RESERVED

    def word_starts(self) -> None:
        """See Codec: there are no words."""


def spread(fen: str) -> str:
    """Return the 77 characters of a FEN.

    Raises:
      UserError: if it is not a FEN, or its position is illegal.
    """
    from transformer_jax.data.sources.chess_positions import read

    board = read(fen)
    squares, side, castling, passant, half, moves = board.fen(en_passant="fen").split()
    for name, number in (("half-moves", half), ("moves", moves)):
        if len(number) > 3:
            raise UserError(f"FEN {fen!r}: {name} of {number} are more than 999, which the 77 "
                            "characters have no room for")  # fmt: skip
    for digit in "12345678":
        squares = squares.replace(digit, "." * int(digit))
    fields = side, squares.replace("/", ""), *(x.replace("-", "") for x in (castling, passant))
    both = zip((*fields, half, moves), _PLACES, strict=True)
    return "".join(field.ljust(length, ".") for field, (_, length) in both)


def gathered(text: str) -> str:
    """Return the FEN of 77 characters."""
    fields, place = [], 0
    for _, length in _PLACES:
        fields.append(text[place : place + length])
        place += length
    side, squares, *others = fields
    rows = [squares[i : i + 8] for i in range(0, 64, 8)]
    for count in range(8, 0, -1):
        rows = [row.replace("." * count, str(count)) for row in rows]
    return " ".join(["/".join(rows), side, *(field.rstrip(".") or "-" for field in others)])


def train(config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()) -> Fen:
    """Return the only codec; `config` is ignored.

    Raises:
      UserError: if an objective needs named pieces, which the alphabet has no room for.
    """
    check_symbols("fen", symbols)
    return Fen()


def check_symbols(name: str, symbols: Sequence[str]) -> None:
    """Reject named pieces, which the alphabet of a codec of positions has no room for.

    Raises:
      UserError: if there are any.
    """
    if symbols:
        raise UserError(f"config.src.codec={name!r}: has no pieces {symbols}; choose 'characters'")


WORDS = {"fen": Kind(Fen, train, "the alphabet of positions")}
