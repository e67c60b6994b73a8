"""Playing strength of a model of configs/chess.py: legal moves, teacher agreement, and games.

    python benchmarks/studies/chess_games.py runs/chess [--split=test] [--positions=N] [--games=N]

legal      how often the likeliest of all 1,968 moves is legal, without masking; as in eval.py
agreement  how often the likeliest legal move is one of the teacher's best (ties all count); for
           models that write moves, eval.py takes the move written, this script one from a beam.
           Baselines: capturing the most valuable piece (averaged over ties), a random legal move
games      against a random player, and against one that looks one ply ahead (the capture or
           promotion that wins most, ties broken at random): each opening of four random plies is
           played with both colours, and a game of 200 moves a side is a draw. Elo is computed from
           the share of points, with Wilson's interval; null if one side wins all points.

One JSON line for each.
"""

import argparse
import json
import math
import random
from collections.abc import Callable, Sequence

import chess

from transformer_jax.api import TrainedModel, load
from transformer_jax.data import sources
from transformer_jax.data.sources import chess_positions
from transformer_jax.evaluation import moves
from transformer_jax.evaluation.metrics import interval

_MOVES = 200
_BEAM = 20  # moves requested from a "squares" model
Player = Callable[[Sequence[chess.Board]], list[chess.Move]]


def main() -> None:
    """Evaluate, and print the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workdir")
    parser.add_argument("--checkpoint", default="best")
    parser.add_argument("--split", default="test", choices=("validation", "test"))
    parser.add_argument("--positions", type=int, default=1000)
    parser.add_argument("--games", type=int, default=100, help="an even number")
    arguments = parser.parse_args()
    trained = load(arguments.workdir, arguments.checkpoint)
    corpus = sources.load(trained.experiment.data, arguments.split, trained.experiment.objective)
    fens = list(corpus.src)[: arguments.positions]
    for name, (right, total) in agreement(trained, fens).items():
        shares = (right / total, *interval(right, total))
        percent, *ends = (round(100 * share, 2) for share in shares)
        print(json.dumps({"name": name, "percent": percent, "interval": ends, "positions": total}))
    chance = random.Random(0)
    opponents = {"random": at_random(chance), "one_ply": one_ply(chance)}
    for name, opponent in opponents.items():
        points = play(model_player(trained), opponent, arguments.games, random.Random(1))
        print(json.dumps({"name": f"against {name}", **match_result(points)}), flush=True)


def agreement(trained: TrainedModel, fens: Sequence[str]) -> dict[str, tuple[float, int]]:
    """Return for each rate the number of positions where it holds, and of all positions."""
    found = dict.fromkeys((*moves.RATES, "greedy capture", "random legal move"), 0.0)
    for fen, said in zip(fens, likeliest(trained, fens), strict=True):
        board = chess_positions.read(fen)
        values = chess_positions.move_values(board)
        best = {move for move, value in values.items() if value == max(values.values())}
        takes = largest_gains(board)
        for name, holds in moves.judged(fen, said).items():
            found[name] += holds
        found["greedy capture"] += len({*takes} & best) / len(takes)
        found["random legal move"] += len(best) / len(values)
    return {name: (right, len(fens)) for name, right in found.items()}


def likeliest(trained: TrainedModel, fens: Sequence[str]) -> list[list[str]]:
    """Return moves for each position, likeliest first: all moves, or the hypotheses of a beam."""
    if trained.experiment.objective.record.classifies:
        return [list(shares) for shares in trained.classify(list(fens))]
    found = trained.translate(list(fens), n_best=_BEAM, beam_size=_BEAM)
    return [[moves.written(said.text) for said in hypotheses] for hypotheses in found]


def largest_gains(board: chess.Board) -> list[chess.Move]:
    """Return the legal moves with the largest immediate gain."""
    gains = {move: chess_positions.gain(board, move) for move in board.legal_moves}
    return [move for move, gain in gains.items() if gain == max(gains.values())]


def model_player(trained: TrainedModel) -> Player:
    """Return a player of the model's likeliest legal move."""

    def choose(boards: Sequence[chess.Board]) -> list[chess.Move]:
        chosen = []
        fens = [board.fen(en_passant="fen") for board in boards]
        for board, said in zip(boards, likeliest(trained, fens), strict=True):
            legal = {move.uci(): move for move in board.legal_moves}
            # If none of them is legal, the alphabetically first legal move.
            chosen.append(legal[next((move for move in said if move in legal), min(legal))])
        return chosen

    return choose


def at_random(chance: random.Random) -> Player:
    """Return a player of random legal moves."""
    return lambda boards: [chance.choice(list(board.legal_moves)) for board in boards]


def one_ply(chance: random.Random) -> Player:
    """Return a player of moves with the largest immediate gain."""
    return lambda boards: [chance.choice(largest_gains(board)) for board in boards]


def play(one: Player, other: Player, games: int, chance: random.Random) -> list[float]:
    """Return the first player's points in each game: 1, 1/2 or 0. Games are played in parallel."""
    boards, white = [], []
    for _ in range(games // 2):
        board = chess.Board()
        for _ in range(4):
            board.push(chance.choice(list(board.legal_moves)))
        boards += [board, board.copy()]
        white += [True, False]
    for _ in range(_MOVES):
        for player, turn in ((one, True), (other, False)):
            mine = [
                board
                for board, color in zip(boards, white, strict=True)
                if not board.is_game_over() and (board.turn == color) == turn
            ]
            for board, move in zip(mine, player(mine) if mine else [], strict=True):
                board.push(move)
    points = {"1-0": 1.0, "0-1": 0.0}
    scored = (points.get(board.result(), 0.5) for board in boards)
    return [x if color else 1 - x for x, color in zip(scored, white, strict=True)]


def match_result(points: Sequence[float]) -> dict[str, object]:
    """Return the share of points and the Elo difference, with 95 % intervals."""
    total = sum(points)
    low, high = interval(total, len(points))
    return {
        "games": len(points), "won": points.count(1.0), "drawn": points.count(0.5),
        "lost": points.count(0.0), "share": round(total / len(points), 4),
        "elo": elo(total / len(points)), "elo_interval": [elo(low), elo(high)],
    }  # fmt: skip


def elo(share: float) -> float | None:
    """Return the Elo difference for a share of points; None if the share is 0 or 1."""
    return round(400 * math.log10(share / (1 - share)), 1) if 0 < share < 1 else None


if __name__ == "__main__":
    main()
