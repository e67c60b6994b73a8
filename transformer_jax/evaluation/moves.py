"""Evaluation of chess moves: how often they are legal and agree with the teacher."""

from collections.abc import Iterable, Sequence
from typing import Any

from transformer_jax.api import TrainedModel
from transformer_jax.config.choices.codecs import CODECS
from transformer_jax.config.choices.record import with_
from transformer_jax.data.sources import chess_positions
from transformer_jax.evaluation.metrics import interval

RATES = ("legal", "agreement")


def written(text: str) -> str:
    """Return a move in UCI notation, given its squares separated by a space."""
    return text.replace(" ", "")


def judged(fen: str, said: Iterable[str]) -> dict[str, bool]:
    """Return which of these hold for the predicted moves of a position, in UCI notation, the
    likeliest first:

    legal      the likeliest move is legal, without masking (Ruoss et al. 2024, arXiv:2402.04494,
               mask illegal moves)
    agreement  the likeliest legal move is one of the teacher's best moves; ties all count
    """
    moves, board = [*said], chess_positions.read(fen)
    values = {move.uci(): value for move, value in chess_positions.move_values(board).items()}
    legal = next((move for move in moves if move in values), None)
    return {
        "legal": moves[0] in values,
        "agreement": legal is not None and values[legal] == max(values.values()),
    }


def evaluated(
    trained: TrainedModel, fens: Sequence[Any], said: Iterable[Iterable[str]]
) -> tuple[list[dict[str, bool]], dict[str, dict[str, Any]], list[str]]:
    """Return the result of `judged` for each position, and both rates (%) as scores and as text;
    all empty if the model does not predict chess moves, as classes or as text.
    """
    experiment = trained.experiment
    of_moves = experiment.tgt.codec == "moves" or experiment.objective.translates
    of_chess = experiment.src.codec in with_(CODECS, chess=True) and of_moves
    judgements = [judged(*pair) for pair in zip(fens, said, strict=True)] if of_chess else []
    scores, details, total = {}, [], len(judgements)
    for name in RATES if judgements else ():
        right = sum(one[name] for one in judgements)
        low, high = (100 * end for end in interval(right, total))
        value = 100 * right / total
        scores[name] = {"value": value, "signature": "", "interval": [low, high]}
        details.append(
            f"{name} = {value:.2f} % ({right} of {total}), 95 % interval {low:.1f} to {high:.1f} %"
        )
    return judgements, scores, details
