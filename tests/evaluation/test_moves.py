"""Chess moves of models: whether they are legal, and whether they are the teacher's."""

import math
import random

import chess
import numpy as np
import pytest
from tiny import random_params

from transformer_jax.api.trained import TrainedModel
from transformer_jax.cli.arguments import load_config
from transformer_jax.config.convert import parse
from transformer_jax.data import sources
from transformer_jax.data.codecs import moves
from transformer_jax.data.codecs.pair import train_pair
from transformer_jax.data.sources import chess_positions as positions
from transformer_jax.evaluation import classes, run
from transformer_jax.evaluation.moves import judged, written
from transformer_jax.models.build import build_for
from transformer_jax.reports.paired import value
from transformer_jax.reports.units import units


@pytest.fixture(scope="module")
def drawn() -> list:
    return positions.draw(random.Random(7), 12)


def test_moves_are_judged_by_legality_and_the_teacher(drawn):
    """By python-chess, one position at a time; if no move is legal, neither holds."""
    for position in drawn:
        board = chess.Board(position.fen)
        legal = [move.uci() for move in board.legal_moves]
        wrong = [move for move in moves.all_moves() if move not in legal][:3]
        worse = [move for move in legal if move not in position.best]
        best = [*wrong, position.best[-1], *worse]
        assert judged(position.fen, best) == {"legal": False, "agreement": True}
        assert judged(position.fen, wrong) == {"legal": False, "agreement": False}
        for move in worse[:1]:
            assert judged(position.fen, [move, *best]) == {"legal": True, "agreement": False}
    assert written("a7 a8 q") == "a7a8q"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("target", ["policy", "moves", "squares"])
def test_eval_reports_both_rates(target, drawn, tmp_path):
    """With random parameters; the rates are those of the rows."""
    small = {"model.d_model": 16, "model.d_ff": 16, "model.num_heads": 2}
    if target == "squares":
        small |= {"model.num_decoder_layers": 1, "decoding.beam_size": 1,
                  "tokenizer.vocab_size": 20, "data.num_examples": "6,3,3"}  # fmt: skip
    changed = [(path, str(text)) for path, text in small.items()]
    experiment = parse(load_config(f"configs/chess.py:{target}", changed))
    fens, labels = [x.fen for x in drawn], [x.label(experiment.data.target_language) for x in drawn]
    pair = train_pair(experiment.tokenizer, fens, labels, experiment.codecs)
    model = build_for(experiment, pair.src.size, pair.tgt.size)
    trained = TrainedModel(experiment, model, random_params(model), pair, [1])
    if target != "squares":
        found = classes.evaluate(trained, sources.Corpus(fens, labels, ""), "test", "best")
    else:
        given = experiment.decoding, "test", "best", str(tmp_path / "stem")
        found = run.evaluate(trained, fens, labels, *given)
    table = units(experiment.objective.kind, experiment.evaluation)
    names = ("accuracy", "loss", "legal", "agreement")
    for name in names if target != "squares" else names[2:]:
        numbers = np.asarray(table[name].of(found.rows), float)
        score = found.result["scores"][name]
        assert score["value"] == pytest.approx(value(numbers, table[name].score))
        low, high = score.get("interval", (score["value"],) * 2)
        assert low <= score["value"] <= high
    for row, position in zip(found.rows, drawn, strict=True):
        board = chess.Board(position.fen)
        if target != "squares":
            said = trained.classify(position.fen)
            logs = [math.log(said[move]) for move in position.best]
            assert math.log(row["probability_of_reference"]) == pytest.approx(np.mean(logs))
            assert row["right"] == (row["hypothesis"] in position.best)
        assert row["legal"] == (written(row["hypothesis"]) in {x.uci() for x in board.legal_moves})
