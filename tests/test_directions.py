"""One table says, for every score, whether higher or lower is better."""

import json

import pytest

from transformer_jax.config import CheckpointConfig, Experiment, convert
from transformer_jax.config.convert import to_json
from transformer_jax.config.metrics import VALIDATION, Metric
from transformer_jax.runs.retention import Record, best
from transformer_jax.runs.workdir import WorkDir
from transformer_jax.sweeps.points import Point
from transformer_jax.sweeps.table import tabulate


@pytest.fixture(params=["f1", "bits_per_character"])
def added(request, monkeypatch) -> str:
    """A score that validation might measure one day; higher or lower is better."""
    metric = Metric(request.param, request.param == "f1")
    monkeypatch.setitem(VALIDATION, request.param, metric)
    hints = dict(CheckpointConfig.__annotations__, best_by=str)
    monkeypatch.setattr(CheckpointConfig, "__annotations__", hints)
    monkeypatch.setattr(convert, "_HINTS", {})
    return request.param


def test_a_new_score_needs_only_an_entry_in_the_table(added, tmp_path):
    """It can then select the best checkpoint and rank the points of a sweep."""
    values = [0.5, 0.9, 0.7]
    order = [1, 2, 0] if added == "f1" else [0, 2, 1]
    records = {i: Record(host={}, scores={added: x}, passing=False, arrays={})
               for i, x in enumerate(values)}  # fmt: skip
    assert best(records, added) == (1 if added == "f1" else 0)
    points = []
    for i, value in enumerate(values):
        experiment = Experiment(seed=i, checkpoint=CheckpointConfig(best_by=added))
        place = WorkDir(tmp_path / str(i))
        place.path.mkdir()
        place.config.write_text(to_json(experiment))
        place.metrics.write_text(json.dumps({"step": 1, f"validation_{added}": value}) + "\n")
        points.append(Point("", {"model.d_ff": i}, experiment, place, ()))
    rows = tabulate(points, tmp_path, None)
    assert [int(row.settings["model.d_ff"]) for row in rows] == order
