"""Distances of chains, from training to scores and predictions for files."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from itself import scores_tested
from starts import start_at_random
from tiny import RUN

import transformer_jax
from transformer_jax.base.errors import UserError
from transformer_jax.cli import evaluate
from transformer_jax.cli.main import dispatch
from transformer_jax.config import (
    DataConfig,
    ModelConfig,
    ObjectiveConfig,
    SideConfig,
    TokenizerConfig,
)
from transformer_jax.data import sources
from transformer_jax.data.objectives.distances import distances_of
from transformer_jax.experiments import train
from transformer_jax.reports.report import gather
from transformer_jax.runs.workdir import WorkDir

CHAINS = dataclasses.replace(
    RUN,
    model=ModelConfig(
        architecture="evoformer", stem="pairs", positions="none", d_model=4, num_heads=1,
        num_encoder_layers=1, pair_width=4, pair_heads=1, outer_width=2, pair_parts=("outgoing",),
        recycling=1, distance_bins=6, nearest_distance=0.5, farthest_distance=6.5,
    ),
    objective=ObjectiveConfig("distances", known_share=0.3),
    tgt=SideConfig("coordinates"), tokenizer=TokenizerConfig(),
    data=DataConfig(
        source="chains", num_examples=(12, 5, 5), example_lengths=(5, 8), max_length=8,
        tokens_per_batch=8 * 8, num_buckets=1,
    ),
    training=dataclasses.replace(RUN.training, steps=4, label_smoothing=0.0),
    checkpoint=dataclasses.replace(RUN.checkpoint, every_steps=2),
    evaluation=dataclasses.replace(RUN.evaluation, every_steps=4),
)  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    place = tmp_path_factory.mktemp("folding")
    with pytest.MonkeyPatch.context() as patch:
        start_at_random(patch)
        train.run_experiment(CHAINS, WorkDir(place / "run"))
    return place


@pytest.mark.thorough
def test_chains_are_scored_beside_what_needs_no_model(home, capsys):
    assert evaluate.main([f"--workdir={home}/run"]) == 0
    said = capsys.readouterr().out
    for words in ("model", "shortest paths", "points that fit", "bounds", "separation", "5 chains"):
        assert words in said
    result = json.loads((home / "run/eval/test.best.json").read_text())
    rows = [*map(json.loads, (home / "run/eval/test.best.jsonl").read_text().splitlines())]
    assert result["scores"]["mae"]["value"] == pytest.approx(np.mean([row["mae"] for row in rows]))
    assert scores_tested(home / "run", "test") == {"lddt", "mae"}
    assert '"picture"' in json.dumps(gather([(WorkDir(home / "run"), None)]))


@pytest.mark.thorough
def test_matrices_of_ones_own_are_completed(home, tmp_path, monkeypatch):
    """From an array, or from files as people have them."""
    monkeypatch.chdir(tmp_path)
    model = transformer_jax.load(home / "run", "last")
    known = distances_of(np.random.default_rng(0).standard_normal((6, 3)))
    known[known > np.median(known)] = np.nan
    made = model.distances(known)
    assert made.shape == (6, 6)
    np.testing.assert_allclose(made, made.T, atol=1e-5)
    assert not np.diagonal(made).any()
    several = model.distances([known, known[:5, :5]])
    np.testing.assert_allclose(several[0], made, atol=1e-4)
    np.save("known.npy", known)
    command = ["predict", f"--workdir={home}/run", "known.npy", "--output=made.jsonl"]
    assert dispatch(command) == 0
    row = json.loads((tmp_path / "made.jsonl").read_text())
    np.testing.assert_allclose(row["distances"], made, atol=1e-4)
    assert dispatch(["predict", f"--workdir={home}/run", "known.npy", "--output=made.txt"]) == 0
    name, *lines = (tmp_path / "made.txt").read_text().splitlines()
    assert name == "# known.npy"
    written = [[float(x) for x in line.split("\t")] for line in lines]
    np.testing.assert_allclose(written, made, atol=1e-4)
    np.save("known.npy", known[:4])
    with pytest.raises(UserError, match=r"known.npy: has shape \(4, 6\)"):
        dispatch(command)


@pytest.mark.thorough
def test_a_resumed_run_equals_an_uninterrupted_one(home, monkeypatch):
    start_at_random(monkeypatch)
    workdir = WorkDir(home / "twice")
    for steps in (2, 4):
        training = dataclasses.replace(CHAINS.training, steps=steps)
        train.run_experiment(dataclasses.replace(CHAINS, training=training), workdir)
    again, whole = (transformer_jax.load(home / name, "last").params for name in ("twice", "run"))
    assert all(map(np.array_equal, *map(jax.tree.leaves, (again, whole))))


def test_chains_of_ones_own_are_read_from_arrays(tmp_path):
    chains = np.random.default_rng(0).standard_normal((4, 7, 3))
    np.savez(tmp_path / "train.npz", chains=chains)
    data = dataclasses.replace(
        DataConfig(), source="arrays", directory=str(tmp_path), source_language="chains",
        target_language="chains",
    )  # fmt: skip
    corpus = sources.load(data, "train", CHAINS.objective)
    np.testing.assert_array_equal(np.stack(corpus.tgt), chains)
