"""Chess moves as 1,968 classes (Ruoss et al. 2024, arXiv:2402.04494).

They are all moves of a queen, a knight or a promoting pawn on an empty board, in UCI notation:
"e2e4", "e7e8q"; castling is the king's move.
"""

import json
from collections.abc import Sequence

from transformer_jax.config import TokenizerConfig
from transformer_jax.data.codecs.codec import Kind
from transformer_jax.data.codecs.labels import Labels


class Moves(Labels):
    """Each move is a class, in alphabetical order; a text is a space-separated list of moves."""

    file = "moves{}.json"
    noun = "move"
    origin = ", as UCI writes the 1,968 moves that some piece can make"


def all_moves() -> list[str]:
    """Return every move that some piece can make on some square."""
    names = set()
    for place in range(64):
        file, rank = place % 8, place // 8
        for other in range(64):
            across, up = other % 8 - file, other // 8 - rank
            line = place != other and (not across or not up or abs(across) == abs(up))
            if not line and sorted((abs(across), abs(up))) != [1, 2]:
                continue
            move = _square(place) + _square(other)
            names.add(move)
            if abs(across) <= 1 and (rank, up) in ((6, 1), (1, -1)):
                names |= {move + piece for piece in "bnqr"}
    return sorted(names)


def _square(place: int) -> str:
    return "abcdefgh"[place % 8] + "12345678"[place // 8]


def train(config: TokenizerConfig, texts: Sequence[str], symbols: Sequence[str] = ()) -> Moves:
    """Return the only codec; the arguments are ignored."""
    return Moves(json.dumps({"classes": all_moves()}).encode())


WORDS = {"moves": Kind(Moves, train, "a list of moves")}
