"""What a language model of chess moves (configs/chess_games.py) knows of the game.

    python benchmarks/studies/chess_text.py runs/chess_games DIR/validation.tsv

next    how often the likeliest piece is the move played, and how often it is a legal one; the end
        of the game is neither. In all, and by ply. Beside it, the commonest move after the last two
        of training's games, and a random legal move
probe   how often a linear map of the states of a layer, after each move, says what is on a square:
        one of six pieces of either side, or nothing; ridge regression on games of training, the
        first 60 plies of those that have as many. Beside it, what is commonest on that square after
        as many plies
games   the likeliest legal move, against a random player, one that looks one ply ahead, and, with
        --policy=runs/chess, a model of configs/chess.py, from four random plies, with both colours

Rows of DIR are result, two ratings, year and moves. One JSON line for each; needs python-chess.
"""

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import chess
import numpy as np
from chess_games import Player, at_random, match_result, model_player, one_ply, play

from transformer_jax.api import TrainedModel, load
from transformer_jax.base.vocabulary import BOS
from transformer_jax.data import sources
from transformer_jax.data.sources.files import read_lines
from transformer_jax.decoding.text.likelihood import likelihoods
from transformer_jax.evaluation.metrics import interval

_PLIES = (10, 20, 40, 80)  # ends of the parts of a game
_CONTENTS = 13  # of a square: nothing, or six pieces of either side
_RIDGE = 1.0
_PROBED = 60  # plies of a game that are probed, of games that have as many
Game = list[str]


def main() -> None:
    """Measure, and print the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workdir")
    parser.add_argument("games", type=Path)
    parser.add_argument("--checkpoint", default="best")
    parser.add_argument("--policy", help="the --workdir of a model of configs/chess.py")
    parser.add_argument("--probed", type=int, default=200, help="games of each split, to probe")
    parser.add_argument("--played", type=int, default=40, help="games to play, an even number")
    arguments = parser.parse_args()
    trained = load(arguments.workdir, arguments.checkpoint)
    games = [line.split("\t")[4].split() for line in read_lines(arguments.games)]
    training = [
        text.split()
        for text in sources.load(trained.experiment.data, "train", trained.experiment.objective).tgt
    ]
    for row in next_moves(trained, games, training):
        print(json.dumps(row), flush=True)
    for row in probe(trained, *(_begun(part, arguments.probed) for part in (training, games))):
        print(json.dumps(row), flush=True)
    chance = random.Random(0)
    opponents = {"random": at_random(chance), "one_ply": one_ply(chance)}
    if arguments.policy:
        opponents["policy"] = model_player(load(arguments.policy, arguments.checkpoint))
    for name, opponent in opponents.items():
        points = play(text_player(trained), opponent, arguments.played, random.Random(1))
        print(json.dumps({"name": f"against {name}", **match_result(points)}), flush=True)


def boards(game: Sequence[str]) -> Iterator[chess.Board]:
    """Yield the board before each move of a game, always the same object."""
    board = chess.Board()
    for move in game:
        yield board
        board.push_san(move)


def next_moves(
    trained: TrainedModel, games: Sequence[Game], training: Iterable[Game]
) -> Iterator[dict[str, object]]:
    """Yield shares of moves: predicted, legal, and what controls predict."""
    after: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for game in training:
        for i, move in enumerate(game):
            for length in range(3):
                after[tuple(game[max(i - length, 0) : i])][move] += 1
    commonest = {context: counts.most_common(1)[0][0] for context, counts in after.items()}
    codec = trained.tokenizers.tgt
    encoded = [[BOS, *ids] for ids in codec.encode([" ".join(game) for game in games])]
    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for game, given in zip(games, likelihoods(trained.loaded, encoded, best=1), strict=True):
        said = codec.pieces(given.best[:, 0].tolist())
        for ply, (board, move) in enumerate(zip(boards(game), game, strict=True)):
            contexts = (tuple(game[max(ply - length, 0) : ply]) for length in (2, 1, 0))
            guess = next(commonest[x] for x in contexts if x in commonest)
            found["next move"].append((ply, said[ply] == move))
            found["legal"].append((ply, is_legal(board, said[ply])))
            found["commonest after the last two"].append((ply, guess == move))
            found["random legal move"].append((ply, 1 / board.legal_moves.count()))
    for name, rows in found.items():
        total = sum(right for _, right in rows)
        row = {"name": name, "percent": round(100 * total / len(rows), 2), "moves": len(rows)}
        if name in ("next move", "legal"):
            row["interval"] = [round(100 * end, 2) for end in interval(total, len(rows))]
        begin = 0
        for end in (*_PLIES, 10_000):
            part = [right for ply, right in rows if begin <= ply < end]
            row[f"from {begin + 1}"] = round(100 * sum(part) / max(len(part), 1), 2)
            begin = end
        yield row


def is_legal(board: chess.Board, move: str) -> bool:
    """Return whether a piece is a legal move in algebraic notation."""
    try:
        board.parse_san(move)
    except ValueError:
        return False
    return True


def contents(board: chess.Board) -> np.ndarray:
    """Return what is on each square [64]: 0 for nothing, else a piece."""
    held = np.zeros(64, np.int64)
    for square, piece in board.piece_map().items():
        held[square] = piece.piece_type + 6 * (piece.color == chess.BLACK)
    return held


def after_moves(games: Sequence[Game]) -> list[np.ndarray]:
    """Return for each game what is on the squares after each move, [plies 64]."""
    found = []
    for game in games:
        board, held = chess.Board(), []
        for move in game:
            board.push_san(move)
            held.append(contents(board))
        found.append(np.array(held))
    return found


def _begun(games: Sequence[Game], count: int) -> list[Game]:
    return [game[:_PROBED] for game in games if len(game) >= _PROBED][:count]


def probe(
    trained: TrainedModel, training: Sequence[Game], games: Sequence[Game]
) -> Iterator[dict[str, object]]:
    """Yield for each layer the share of squares whose contents a linear map of its states says."""
    known, asked = after_moves(training), after_moves(games)
    boards_known, boards_asked = np.concatenate(known), np.concatenate(asked)
    occupied = boards_asked > 0

    def row(name: str, said: np.ndarray) -> dict[str, object]:
        right = said == boards_asked
        return {
            "name": name, "squares": round(100 * right.mean(), 2),
            "occupied": round(100 * right[occupied].mean(), 2),
            "whole boards": round(100 * right.all(1).mean(), 2),
        }  # fmt: skip

    plies = [np.concatenate([np.arange(len(held)) for held in all_]) for all_ in (known, asked)]
    yield row("probe: commonest after as many plies", commonest_by_ply(boards_known, *plies))
    targets = np.eye(_CONTENTS)[boards_known].reshape(len(boards_known), -1)
    states = [_states(trained, part) for part in (training, games)]
    for layer in range(states[0].shape[0]):
        x, asked_x = (_with_one(part[layer]) for part in states)
        gram = x.T @ x + _RIDGE * np.eye(x.shape[1])
        weights = np.linalg.solve(gram, x.T @ targets)
        said = (asked_x @ weights).reshape(len(asked_x), 64, _CONTENTS).argmax(-1)
        yield row(f"probe: layer {layer}", said)


def _with_one(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x, np.ones((len(x), 1))], axis=1).astype(np.float64)


def _states(trained: TrainedModel, games: Sequence[Game]) -> np.ndarray:
    """Return the states after each move of some games, [L+1 plies D]."""
    seen = trained.inside([" ".join(game) for game in games])
    parts = [
        one["decoder"].hidden[:, 1 : len(game) + 1]  # BOS is first
        for one, game in zip(seen, games, strict=True)
    ]
    return np.concatenate(parts, axis=1)


def commonest_by_ply(held: np.ndarray, known: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Return the commonest contents of each square after so many moves, [asked 64]."""
    last = int(known.max())
    table = np.zeros((last + 1, 64), np.int64)
    for ply in range(last + 1):
        rows = held[known == ply]
        table[ply] = [np.bincount(square, minlength=_CONTENTS).argmax() for square in rows.T]
    return table[np.minimum(asked, last)]


def text_player(trained: TrainedModel, best: int = 200) -> Player:
    """Return a player of the likeliest legal move after all moves of a game."""
    codec = trained.tokenizers.tgt

    def choose(positions: Sequence[chess.Board]) -> list[chess.Move]:
        texts = [" ".join(_written(board)) for board in positions]
        encoded = [[BOS, *ids] for ids in codec.encode(texts)]  # EOS stands for what comes next
        chosen = []
        for board, given in zip(
            positions, likelihoods(trained.loaded, encoded, best=best), strict=True
        ):
            legal = {board.san(move): move for move in board.legal_moves}
            said = codec.pieces(given.best[-1].tolist())
            chosen.append(legal[next((move for move in said if move in legal), min(legal))])
        return chosen

    return choose


def _written(board: chess.Board) -> Game:
    """Return the moves of a game so far."""
    again, moves = chess.Board(), []
    for move in board.move_stack:
        moves.append(again.san(move))
        again.push(move)
    return moves


if __name__ == "__main__":
    main()
