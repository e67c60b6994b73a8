"""Chess moves predicted from the squares that they connect."""

from functools import cache
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float, Int
from transformer_jax.base.vocabulary import RESERVED
from transformer_jax.config import ModelConfig
from transformer_jax.data.batches.batch import Side
from transformer_jax.data.codecs import fen, moves
from transformer_jax.models.model import Pointed
from transformer_jax.models.network import Memory
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.linear import Project
from transformer_jax.nn.roles import HEAD, PLAIN
from transformer_jax.nn.view import cross_view

BLACK = RESERVED + fen.ALPHABET.index("b")
_PIECES = "bnqr"  # that a pawn is promoted to


class MoveHead(nn.Module):
    """Logits of the 1,968 moves from the hidden states of the 64 squares. A logit is the sum of

    - a linear map of the square that the move leaves, with a row for each of the 64 directions and
      distances (AlphaZero: Silver et al. 2017, arXiv:1712.01815);
    - the query of that square times the key of the one it goes to, over sqrt(D), as in Leela Chess
      Zero's attention policy; a vector of the new piece is added to the key of a promotion;
    - a linear map of each square that it passes over, with a row for each of the 8 directions;
    - a bias of the move.

    Positions with Black to move are mirrored (`data.codecs.board`), and so are their moves.
    """

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        width, names = (self.config.d_model,), ("embed", "features")
        self.query, self.key = (
            Project(width, width, names, self.dtype, role=HEAD) for _ in range(2)
        )
        self.step = Project(width, (64,), ("embed", "choices"), self.dtype, role=HEAD)
        self.crossing = Project(width, (8,), ("embed", "choices"), self.dtype, role=HEAD)
        zeros, shape = nn.initializers.zeros, (len(_PIECES), *width)
        self.piece = parameter(
            self, "piece", named(zeros, "choices", "features", role=PLAIN), shape
        )
        self.bias = parameter(self, "bias", named(zeros, "classes", role=PLAIN), (len(cells()),))

    def __call__(self, memory: Memory, src: Side, tgt: Side) -> Pointed:
        squares, first = board(memory, tgt)
        query, key = self.query(squares), self.key(squares)
        last = jnp.concatenate([key[..., :8, :], key[..., 56:, :]], -2)
        piece = self.piece.astype(self.dtype).reshape(1, 1, -1, 1, key.shape[-1])
        promoted = (last[:, :, None] + piece).reshape(*key.shape[:2], -1, key.shape[-1])
        wide = jnp.promote_types(self.dtype, jnp.float32)
        goals = jnp.einsum(
            "BTQD,BTKD->BTQK", query, jnp.concatenate([key, promoted], -2),
            preferred_element_type=wide,
        )  # fmt: skip
        scores = [goals * self.config.d_model**-0.5, self.step(squares).astype(wide)]
        all_scores = jnp.concatenate(scores, -1).reshape(*key.shape[:2], -1)
        logits = _among(all_scores, cells()) + _among(all_scores, steps())
        crossing = self.crossing(squares).astype(wide).reshape(*key.shape[:2], -1)
        logits += crossing @ jnp.asarray(crossed(), wide)
        logits = logits + self.bias.reshape(1, 1, -1)
        black = jnp.take_along_axis(jnp.asarray(src.inputs), first, 1) == BLACK
        head: Any = None
        return Pointed(jnp.where(black[..., None], _among(logits, mirrored()), logits), head)


def _among(scores: Float[Array, "B T N"], places: np.ndarray) -> Float[Array, "B T C"]:
    return jnp.take(scores, places, -1, mode="clip")


def board(memory: Memory, tgt: Side) -> tuple[Float[Array, "B T Q D"], Int[Array, "B T"]]:
    """Return the hidden states of the 64 squares in each target position's segment, and where the
    side to move is.
    """
    seen = cross_view(tgt.pos, tgt.seg, memory.pos, memory.seg).mask()[:, 0]
    first = jnp.argmax(seen, -1) + 1  # after BOS
    places = first[..., None] + fen.SQUARES + jnp.arange(64).reshape(1, 1, -1)
    return jnp.take_along_axis(memory.hidden[:, None], places[..., None], 2), first


_ROW = 64 + 16 * len(_PIECES) + 64  # scores of a square: goals, promotions, steps


@cache
def cells() -> np.ndarray:
    """Return the place in the scores of each move's goal: one of 64 squares, or of the 16 on the
    last rank and the first for each piece to be promoted to.
    """
    numbers = []
    for move in moves.all_moves():
        start, goal = square(move[:2]), square(move[2:4])
        if move[4:]:
            goal = 64 + 16 * _PIECES.index(move[4]) + (goal if goal < 8 else goal - 48)
        numbers.append(_ROW * start + goal)
    return np.array(numbers, np.int32)


@cache
def steps() -> np.ndarray:
    """Return the place in the scores of each move's direction and distance."""
    ends = [(square(move[:2]), square(move[2:4])) for move in moves.all_moves()]
    changes = [(goal // 8 - start // 8, goal % 8 - start % 8) for start, goal in ends]
    order = {change: number for number, change in enumerate(sorted(set(changes)))}
    return np.array([
        _ROW * (start + 1) - 64 + order[change]
        for (start, _), change in zip(ends, changes, strict=True)
    ], np.int32)  # fmt: skip


@cache
def crossed() -> np.ndarray:
    """Return a matrix of squares and directions by moves, 1 where a move passes over a square in a
    direction, [512 C].
    """
    ways = [(rank, file) for rank in (-1, 0, 1) for file in (-1, 0, 1) if rank or file]
    table = np.zeros((64, len(ways), len(moves.all_moves())), np.float32)
    for number, move in enumerate(moves.all_moves()):
        start, goal = square(move[:2]), square(move[2:4])
        rank, file = goal // 8 - start // 8, goal % 8 - start % 8
        length = max(abs(rank), abs(file))
        if 0 in (rank, file) or abs(rank) == abs(file):  # not a knight's
            way = rank // length, file // length
            for i in range(1, length):
                table[start + i * (8 * way[0] + way[1]), ways.index(way), number] = 1
    return table.reshape(-1, table.shape[-1])


@cache
def mirrored() -> np.ndarray:
    """Return the number of each move with ranks counted from the other side."""
    number = {move: i for i, move in enumerate(moves.all_moves())}
    ranks = str.maketrans("12345678", "87654321")
    return np.array([number[move.translate(ranks)] for move in number], np.int32)


def square(name: str) -> int:
    """Return where a FEN has a square: a8 first, h1 last."""
    return 8 * (8 - int(name[1])) + "abcdefgh".index(name[0])
