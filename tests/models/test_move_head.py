"""Chess moves predicted from squares: each logit by hand, colours exchanged, packed boards."""

import functools
import random

import chess
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import random_params

from transformer_jax.config import ModelConfig
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.data.codecs import board, fen, moves
from transformer_jax.data.sources import chess_positions as positions
from transformer_jax.models.build import build

CONFIG = ModelConfig(
    architecture="encoder", d_model=16, d_ff=24, num_heads=2, num_encoder_layers=1,
    positions="learned", max_positions=2000, dropout_rate=0.0,
)  # fmt: skip
MOVES = moves.all_moves()
CODEC = board.Board()
PROMOTING = "8/4P2k/8/8/8/8/8/K7 w - - 0 1"


@functools.cache
def model():
    with jax.enable_x64():
        built = build(CONFIG, CODEC.size, len(MOVES), predicts=("move",), dtype=jnp.float64)
        params = random_params(built)
        return built, jax.tree.map(lambda x: jnp.asarray(x, jnp.float64), params)


@jax.jit
def _logits(params, batch):
    return model()[0].outputs(params, batch, None)["move"].logits()


@jax.jit
def _hidden(params, side):
    return model()[0].apply({"params": params}, side, False, method="encode").hidden


def logits(*fens: str, packed: bool = False) -> np.ndarray:
    """Return the logits of each position, one per row or all in one row."""
    _, params = model()
    ids = np.array(CODEC.encode(fens, bos=True), np.int32)
    pos = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int32), ids.shape)
    seg = np.ones_like(ids)
    asked = np.ones((len(fens), 1), np.int32)
    if packed:
        seg = seg * np.arange(1, len(fens) + 1, dtype=np.int32)[:, None]
        ids, pos, seg = (x.reshape(1, -1) for x in (ids, pos, seg))
        asked = np.arange(1, len(fens) + 1, dtype=np.int32)[None]
    src, tgt = Side(ids, pos, seg), Side(0 * asked, 0 * asked, asked)
    with jax.enable_x64():
        batch = jax.device_put(Batch(src, tgt, {}))
        found = _logits(params, batch)
    return np.asarray(found).reshape(len(fens), -1)


@pytest.fixture(scope="module")
def drawn() -> list[str]:
    found = [x.fen for x in positions.draw(random.Random(5), 20)]
    assert {x.split()[1] for x in found} == {"w", "b"}
    return [*found, PROMOTING]


def place(square: int) -> int:
    """Return where the encoder reads a square, after BOS and the side to move."""
    return 2 + 8 * (7 - chess.square_rank(square)) + chess.square_file(square)


def passed(crossing: dict, x: np.ndarray, ends: list[int]):
    """Yield a value of each square between a move's ends, by its direction."""
    change = (chess.square_rank(ends[0]) - chess.square_rank(ends[1]),
              chess.square_file(ends[1]) - chess.square_file(ends[0]))  # fmt: skip
    ways = [(-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)]
    way = ways.index(tuple(np.sign(change).tolist()))
    for square in chess.SquareSet(chess.between(*ends)):
        yield x[place(square)] @ crossing["kernel"][:, way] + crossing["bias"][way]


def test_a_logit_is_what_its_definition_says(drawn):
    """A move at a time, squares by python-chess, in float64."""
    _, params = model()
    own = jax.tree.map(np.asarray, params["move_head"])
    changes = sorted({
        (chess.square_rank(a) - chess.square_rank(b), chess.square_file(b) - chess.square_file(a))
        for a, b in ((x.from_square, x.to_square) for x in map(chess.Move.from_uci, MOVES))
    })  # fmt: skip
    assert len(changes) == 64
    for text in (drawn[0], PROMOTING, chess.STARTING_FEN.replace(" w ", " b ")):
        ids = jnp.asarray(CODEC.encode([text], bos=True), jnp.int32)
        side = Side(ids, jnp.arange(ids.shape[1])[None], jnp.ones_like(ids))
        with jax.enable_x64():
            x = np.asarray(_hidden(params, side)[0], np.float64)
        found = logits(text)[0]
        black = text.split()[1] == "b"
        for name, value in zip(MOVES, found, strict=True):
            move = chess.Move.from_uci(name)
            ends = [chess.square_mirror(s) if black else s
                    for s in (move.from_square, move.to_square)]  # fmt: skip
            start, goal = (x[place(s)] for s in ends)
            key = goal @ own["key"]["kernel"] + own["key"]["bias"]
            if move.promotion:
                key = key + own["piece"]["bnqr".index(name[4])]
            change = (chess.square_rank(ends[0]) - chess.square_rank(ends[1]),
                      chess.square_file(ends[1]) - chess.square_file(ends[0]))  # fmt: skip
            kind = changes.index(change)
            seen = name if not black else name.translate(str.maketrans("12345678", "87654321"))
            expected = (
                (start @ own["query"]["kernel"] + own["query"]["bias"]) @ key / 4
                + start @ own["step"]["kernel"][:, kind] + own["step"]["bias"][kind]
                + sum(passed(own["crossing"], x, ends))
                + own["bias"][MOVES.index(seen)]
            )  # fmt: skip
            assert value == pytest.approx(expected, abs=1e-10), name


def test_packed_boards_are_read_like_single_ones(drawn):
    np.testing.assert_allclose(logits(*drawn, packed=True), logits(*drawn), atol=1e-10)


def test_black_is_seen_as_white_is(drawn):
    """All but the first character, which says who moves, is the same; and so is the text again."""
    for text in drawn:
        other = board.mirrored(text)
        assert chess.Board(other) == chess.Board(text).mirror()
        assert board.turned(text)[1:] == board.turned(other)[1:]
        assert {board.turned(text)[0], board.turned(other)[0]} == {"w", "b"}
        assert CODEC.decode(CODEC.encode([text])[0]) == text
        if text.split()[1] == "w":
            assert board.turned(text) == fen.spread(text)


def test_every_move_has_a_logit_of_its_own(drawn):
    """No two moves share one."""
    for row in logits(*drawn):
        assert len(np.unique(row)) == len(MOVES)


def test_positions_of_both_codecs_are_stored_apart():
    """Stores of encoded texts are named by the digests of codecs."""
    assert CODEC.digest != fen.Fen().digest
    assert board.Board(CODEC.model).digest == CODEC.digest
