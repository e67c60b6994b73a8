"""Chess: positions in 77 characters, 1,968 moves, and a teacher that counts material."""

import random

import chess
import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ObjectiveConfig, TokenizerConfig
from transformer_jax.data import sources
from transformer_jax.data.codecs import fen, moves
from transformer_jax.data.sources import chess_positions as positions

CODEC = fen.train(TokenizerConfig(), [])
DATA = DataConfig(
    source="chess", source_language="fen", target_language="move", num_examples=(6, 3, 3)
)
WORTH = dict(zip("PNBRQpnbrq", (1, 3, 3, 5, 9, -1, -3, -3, -5, -9), strict=True))


@pytest.fixture(scope="module")
def drawn() -> list:
    return positions.draw(random.Random(7), 12)


def test_positions_are_written_in_77_characters():
    text = fen.spread(chess.STARTING_FEN)
    men = "rnbqkbnrpppppppp" + "." * 32 + "PPPPPPPPRNBQKBNR"
    assert text == "w" + men + "KQkq" + ".." + "0.." + "1.."
    assert (len(text), len(fen.ALPHABET), len(set(fen.ALPHABET))) == (77, 31, 31)
    passant = "rnbqkbnr/ppp1pppp/8/8/3pP3/5N2/PPPP1PPP/RNBQKB1R b Kq e3 0 123"
    assert fen.spread(passant)[-12:] == "Kq..e30..123"


def test_positions_round_trip(drawn):
    fens = [chess.STARTING_FEN, *(x.fen for x in drawn)]
    ids = CODEC.encode(fens, bos=True)
    assert {len(row) for row in ids} == {79}
    assert [CODEC.decode(row) for row in ids] == fens


ILLEGAL = {
    "nonsense": r"FEN 'nonsense': not a FEN",
    "8/8/8/8/8/8/8/8 w - - 0 1": r"not a legal position \(.*NO_WHITE_KING",
    "k6R/8/8/8/8/8/8/K7 w - - 0 1": r"not a legal position \(.*OPPOSITE_CHECK",
    chess.STARTING_FEN.replace(" 0 1", " 0 1000"): "moves of 1000 are more than 999",
}


@pytest.mark.parametrize(("text", "message"), ILLEGAL.items(), ids=ILLEGAL.values())
def test_invalid_positions_are_rejected(text, message):
    with pytest.raises(UserError, match=message):
        CODEC.encode([text])


def test_the_move_codec_contains_every_possible_move(drawn):
    """As python-chess generates them: queens and knights on an empty board, promoting pawns."""
    found = set()
    for square in chess.SQUARES:
        for piece in (chess.QUEEN, chess.KNIGHT):
            board = chess.Board(None)
            board.set_piece_at(square, chess.Piece(piece, chess.WHITE))
            found |= {move.uci() for move in board.generate_pseudo_legal_moves()}
        if chess.square_rank(square) in (1, 6):
            white = chess.square_rank(square) == 6
            board = chess.Board(None)
            board.turn = white
            board.set_piece_at(square, chess.Piece(chess.PAWN, white))
            for file in (-1, 1):
                if 0 <= chess.square_file(square) + file <= 7:
                    other = square + file + (8 if white else -8)
                    board.set_piece_at(other, chess.Piece(chess.KNIGHT, not white))
            found |= {x.uci() for x in board.generate_pseudo_legal_moves() if x.promotion}
    assert moves.all_moves() == sorted(found)
    assert len(found) == 1968
    codec = moves.train(TokenizerConfig(), [])
    for position in drawn:
        best = position.best
        assert [codec.decode(ids) for ids in codec.encode(best)] == best
        assert codec.encode([position.label("moves")]) == [[x for (x,) in codec.encode(best)]]


def material(board: chess.Board, color: bool) -> int:
    """Return the material balance, counted from the letters of a FEN."""
    balance = sum(WORTH.get(letter, 0) for letter in board.board_fen())
    return balance if color else -balance


def test_the_teacher_looks_two_plies_ahead(drawn):
    """Checked by trying every reply."""
    for position in drawn:
        board = chess.Board(position.fen)
        color, found = board.turn, {}
        for move in list(board.legal_moves):
            board.push(move)
            replies = []
            for reply in list(board.legal_moves):
                board.push(reply)
                replies.append(material(board, color))
                board.pop()
            lost = positions.MATE if board.is_checkmate() else 0
            found[move.uci()] = min(replies, default=lost)
            board.pop()
        best = max(found.values())
        assert position.value == best
        assert position.best == sorted(move for move, value in found.items() if value == best)


def test_mate_is_worth_more_than_a_queen():
    board = chess.Board("6k1/5ppp/8/8/8/8/q4PPP/R5K1 w - - 0 1")
    values = {move.uci(): value for move, value in positions.move_values(board).items()}
    assert values["a1a2"] == 5
    assert "a1a8" not in values
    board = chess.Board("6k1/5ppp/7q/8/8/8/5PPP/R5K1 w - - 0 1")
    values = {move.uci(): value for move, value in positions.move_values(board).items()}
    assert max(values, key=values.get) == "a1a8"
    assert values["a1a8"] == positions.MATE


def test_drawn_positions_are_cached(tmp_path, monkeypatch):
    """A damaged file is drawn again, the others are read; splits share no position."""
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path))
    monkeypatch.setattr(positions, "_CHUNK", 5)
    made = []
    draw = positions.draw
    monkeypatch.setattr(positions, "draw", lambda *given: made.append(given) or draw(*given))
    splits = {}
    for split in ("train", "validation", "test"):
        positions.positions.cache_clear()
        splits[split] = sources.load(DATA, split, ObjectiveConfig("classify"))
    assert [len(x) for x in splits.values()] == [6, 3, 3]
    assert len({fen for x in splits.values() for fen in x.src}) == 12
    files = sorted((tmp_path / "chess").iterdir())
    assert len(made) == len(files) == 3
    files[1].write_text("[")
    positions.positions.cache_clear()
    again = sources.load(DATA, "test", ObjectiveConfig("classify"))
    assert (again.src, again.tgt) == (splits["test"].src, splits["test"].tgt)
    assert len(made) == 4
    positions.positions.cache_clear()


def test_labels_of_a_position(drawn):
    for position in drawn:
        assert position.label("move") in position.best
        assert position.label("move") == position.label("move")
        assert position.label("squares").replace(" ", "") == position.label("move")
        assert -10 <= int(position.label("value")) <= 10
    promotes = positions.Position("8/P6k/8/8/8/8/8/K7 w - - 0 1", 8, ["a7a8q"])
    assert promotes.label("squares") == "a7 a8 q"
    with pytest.raises(UserError, match=r"'de': .*'move', 'moves', 'squares', 'value'"):
        sources.load(DataConfig(source="chess"), "train")
