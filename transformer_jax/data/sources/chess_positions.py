"""Chess: positions from generated games, with a teacher's evaluations, cached on disk.

As in Ruoss et al. 2024 (arXiv:2402.04494), a model learns to predict an engine's evaluation of a
position. Instead of Stockfish, the teacher is what python-chess computes in a millisecond: the
value of a move is the material balance (pawn 1, knight and bishop 3, rook 5, queen 9; in pawns, for
the side to move) after the opponent's best capture or promotion, MATE for checkmate, 0 for
stalemate. The best moves are those of the greatest value, often several: "moves" is all of them,
"move" a random one.

In the games, one move in ten is random and the others are best moves: with only random moves,
pieces hang everywhere, and taking the most valuable one is right in 70 %.
"""

import importlib
import json
import logging
import random
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from transformer_jax.base.disk import cache_dir, write_text, writing
from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig
from transformer_jax.data.sources.spelled_numbers import SPLITS

log = logging.getLogger("transformer_jax")

_SEED = 20240207  # the corpus is the same for every experiment
_FORMAT = 1  # part of the file names: increment when anything about the sampling changes
_CHUNK = 500  # positions per file
_PLIES = 120  # maximum length of a game
_KEPT = 0.5  # share of the positions of a game
_RANDOM = 0.1  # share of its moves
MATE = 100  # pawns; more than all material
WORTH = (0, 1, 3, 3, 5, 9, 0)  # by python-chess piece type: none, pawn, knight, ... king
LIMIT = 10  # pawns: values beyond it form one class
TARGETS = ("move", "moves", "squares", "value")


class Position(NamedTuple):
    """A position as FEN, its value in pawns for the side to move, and the best moves in UCI."""

    fen: str
    value: int
    best: list[str]

    def label(self, target: str) -> str:
        """Return the label to predict: classes, or the squares of a move as words."""
        if target == "value":
            return str(max(-LIMIT, min(LIMIT, self.value)))
        if target == "moves":
            return " ".join(self.best)
        move = random.Random(self.fen).choice(self.best)
        return move if target == "move" else " ".join((move[:2], move[2:4], *move[4:]))


def load(config: DataConfig, split: str) -> tuple[list[str], list[str]]:
    """Return the positions of a split, disjoint from the other splits, and their labels.

    Raises:
      UserError: if the target side is not in TARGETS, or python-chess is not installed.
      DiskError: if the cache cannot be written.
    """
    target = config.target_language
    if target not in TARGETS:
        raise UserError(
            f"config.data.target_language={target!r}: data.source='chess' has "
            f"{', '.join(map(repr, TARGETS))}; choose one"
        )
    sizes, number = config.num_examples, SPLITS.index(split)
    own = positions(sum(sizes))[sum(sizes[:number]) : sum(sizes[: number + 1])]
    return [position.fen for position in own], [position.label(target) for position in own]


@cache
def positions(count: int) -> list[Position]:
    """Return `count` different positions, always the same. Those not in the cache are generated, a
    file at a time, so that an interrupted run resumes.
    """
    place = cache_dir() / "chess"
    unique: dict[str, Position] = {}
    number = 0
    with writing(f"chess positions in the cache {place}", place):
        while len(unique) < count:
            path = place / f"{_FORMAT}-{number:05d}.json"
            part = _kept(path)
            if part is None:
                part = draw(random.Random(f"{_SEED} {number}"), _CHUNK)
                path.parent.mkdir(parents=True, exist_ok=True)
                write_text(path, json.dumps(part))
                log.info("chess: %d of %d positions; cached in %s", len(unique), count, place)
            for position in part:  # the first of several that differ only in their counters
                unique.setdefault(" ".join(position.fen.split()[:4]), position)
            number += 1
    return list(unique.values())[:count]


def _kept(path: Path) -> list[Position] | None:
    """Return the positions in a file, or None if it is missing or damaged."""
    try:
        kept = [Position(*row) for row in json.loads(path.read_bytes())]
        return kept if len(kept) == _CHUNK else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def draw(chance: random.Random, count: int) -> list[Position]:
    """Return `count` positions sampled from games."""
    chess, drawn = library(), list[Position]()
    while len(drawn) < count:
        board, plies = chess.Board(), 0
        while plies < _PLIES and not board.is_game_over():
            values = move_values(board)
            value = max(values.values())
            best = sorted(move.uci() for move in values if values[move] == value)
            if chance.random() < _KEPT:
                drawn.append(Position(board.fen(en_passant="fen"), value, best))
            moves = sorted(move.uci() for move in values) if chance.random() < _RANDOM else best
            board.push_uci(chance.choice(moves))
            plies += 1
    return drawn[:count]


def move_values(board: Any) -> dict[Any, int]:
    """Return the teacher's value of each legal move on a python-chess board, in pawns."""
    before, values = material(board), {}
    for move in board.legal_moves:
        gained = gain(board, move)
        board.push(move)
        if board.is_checkmate():
            values[move] = MATE
        elif board.is_stalemate():
            values[move] = 0
        else:
            replies = (gain(board, x) for x in board.legal_moves if _changes(board, x))
            values[move] = before + gained - max(replies, default=0)
        board.pop()
    return values


def material(board: Any) -> int:
    """Return the material balance, in pawns, for the side to move."""
    mine = {piece: len(board.pieces(piece, board.turn)) for piece in range(1, 6)}
    theirs = {piece: len(board.pieces(piece, not board.turn)) for piece in range(1, 6)}
    return sum(WORTH[piece] * (mine[piece] - theirs[piece]) for piece in mine)


def gain(board: Any, move: Any) -> int:
    """Return the immediate gain of a move in pawns: its capture and promotion."""
    taken = 1 if board.is_en_passant(move) else WORTH[board.piece_type_at(move.to_square) or 0]
    # Castling counts as the king's move to an empty square.
    return taken + (WORTH[move.promotion] - 1 if move.promotion else 0)


def _changes(board: Any, move: Any) -> bool:
    return bool(move.promotion) or board.is_capture(move)


def read(fen: str) -> Any:
    """Return the board of a FEN.

    Raises:
      UserError: if it is not a FEN, or its position is illegal.
    """
    chess = library()
    try:
        board = chess.Board(fen)
    except ValueError as error:
        raise UserError(f"FEN {fen!r}: not a FEN ({error})") from None
    if not board.is_valid():
        raise UserError(f"FEN {fen!r}: not a legal position ({board.status().name})")
    return board


def library() -> Any:
    """Return python-chess.

    Raises:
      UserError: if it is not installed.
    """
    try:
        return importlib.import_module("chess")
    except ImportError:
        raise UserError("chess: needs python-chess: pip install chess") from None
