"""Classifying text pairs by decomposable attention: data, truncation, training, scores, Python."""

import dataclasses
import json

import numpy as np
import pytest
from itself import scores_tested
from starts import start_at_random
from tiny import RUN

import transformer_jax
from transformer_jax.base.errors import UserError
from transformer_jax.cli import compare, evaluate
from transformer_jax.config import ModelConfig, ObjectiveConfig, SideConfig, SourceConfig
from transformer_jax.data.batches.batch import Ragged, one_per_row
from transformer_jax.data.codecs.utf8 import Bytes
from transformer_jax.data.objectives import objective_named
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.experiments import train as runs
from transformer_jax.runs.workdir import WorkDir

WORDS = ["boat", "wave", "sail", "fish", "tide", "wing", "star", "wind", "bird", "rain"]
MODEL = ModelConfig(
    architecture="decomposable_attention", d_model=16, d_ff=24, positions="none", dropout_rate=0.0
)  # fmt: skip


def write(directory, part: str, count: int, seed: int) -> None:
    """Write pairs whose second text has words of the first, or none of them; a fifth of the former
    have a second class.
    """
    chance = np.random.default_rng(seed)
    lines, classes = [], []
    for number in range(count):
        order = chance.permutation(WORDS)
        inside = number % 2 == 0
        second = chance.choice(order[:5], 2) if inside else order[5:7]
        lines.append(f"{' '.join(order[:5])}\t{' '.join(second)}")
        several = inside and number % 10 == 0
        classes.append("inside also" if several else "inside" if inside else "outside")
    for ending, rows in (("pairs", lines), ("classes", classes)):
        (directory / f"{part}.{ending}").write_text("".join(f"{row}\n" for row in rows))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    directory = tmp_path_factory.mktemp("text_pairs")
    for seed, (part, count) in enumerate((("train", 400), ("validation", 60))):
        write(directory, part, count, seed)
    experiment = dataclasses.replace(
        RUN, model=MODEL, objective=ObjectiveConfig("classify_pairs", window=40),
        src=SourceConfig("words"), tgt=SideConfig("labels"),
        tokenizer=dataclasses.replace(RUN.tokenizer, vocab_size=14, joint=False),
        data=dataclasses.replace(
            RUN.data, source="text", directory=str(directory), source_language="pairs",
            target_language="classes", test=("validation",), batching="pack",
            num_examples=(50_000, 500, 500), max_number=10**9,
        ),
        optimizer=dataclasses.replace(RUN.optimizer, learning_rate=0.01),
        training=dataclasses.replace(RUN.training, steps=60, label_smoothing=0.0, log_every=30),
        checkpoint=dataclasses.replace(RUN.checkpoint, every_steps=30, best_by="accuracy"),
        evaluation=dataclasses.replace(RUN.evaluation, every_steps=30),
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSFORMER_JAX_CACHE", str(directory / "cache"))
        patch.setattr(runs.process, "use_compilation_cache", lambda: None)
        start_at_random(patch)
        assert runs.run_experiment(experiment, WorkDir(directory / "run")) == 0
        yield directory


def test_classes_are_learned_and_scored(home, capsys):
    """No single word reveals the class: both texts have the same words in either class. Any one of
    several classes counts as right, in packed rows and alone.
    """
    assert evaluate.main([f"--workdir={home}/run", "--split=validation"]) == 0
    assert "accuracy = " in capsys.readouterr().out
    found = json.loads((home / "run/eval/validation.best.json").read_text())
    accuracy = found["scores"]["accuracy"]["value"]
    assert accuracy > 85
    said = (home / "run/eval/validation.best.hyp").read_text().splitlines()
    assert {*said} == {"inside", "outside"}
    measured = map(json.loads, (home / "run/metrics.jsonl").read_text().splitlines())
    best = max(row.get("validation_accuracy", 0) for row in measured)
    assert 100 * best == pytest.approx(accuracy)
    lines = (home / "validation.classes").read_text().splitlines()
    right = sum(x in line.split() for x, line in zip(said, lines, strict=True))
    assert 100 * right / len(lines) == pytest.approx(accuracy)
    assert scores_tested(home / "run", "validation") == found["scores"].keys()
    assert compare.main([f"{home}/run", f"{home}/run", "--split=validation"]) == 0
    assert "McNemar" in capsys.readouterr().out


def test_classes_from_python(home):
    model = transformer_jax.load(home / "run")
    pairs = ["boat wave sail\twave boat", "boat wave sail\tbird star"]
    found = model.classify(pairs)
    assert [next(iter(one)) for one in found] == ["inside", "outside"]
    assert model.classify(pairs[0]) == pytest.approx(found[0])
    swapped = model.classify("sail boat wave\tboat wave")  # word order is not modelled
    assert swapped == pytest.approx(found[0], rel=1e-4)
    assert "classifier of pairs" in repr(model)
    for text in ("boat", "boat\t", "boat\twave\tsail"):
        with pytest.raises(UserError, match="text 1: must be two texts separated by a TAB"):
            model.classify(text)
    with pytest.raises(UserError, match="reads two texts at a time"):
        model.inside("boat")


def test_a_line_that_is_not_a_pair_is_rejected(home, tmp_path):
    files = tmp_path / "x.pairs", tmp_path / "x.classes"
    for path, text in zip(files, ("boat\twave\nboat\n", "inside\ninside\n"), strict=True):
        path.write_text(text)
    argv = [f"--source={files[0]}", f"--reference={files[1]}"]
    with pytest.raises(UserError, match=r"x\.pairs:2: must be two texts"):
        evaluate.main([f"--workdir={home}/run", *argv])


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("validation", "inside near", "'near' is not a label of the training data, which has"),
        ("validation", "", "names no class; give each text one"),
        ("train", " ", "names no class; give each text one"),
    ],
)
def test_unknown_and_missing_classes_are_rejected(home, tmp_path, monkeypatch, name, line, message):
    """Even as one of several in a line; before anything is written."""
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path / "cache"))
    for seed, part in enumerate(("train", "validation")):
        write(tmp_path, part, 16, seed)
    path = tmp_path / f"{name}.classes"
    path.write_text("".join(f"{x}\n" for x in ("outside", line, *["inside also"] * 14)))
    experiment = WorkDir(home / "run").experiment()
    data = dataclasses.replace(experiment.data, directory=str(tmp_path))
    with pytest.raises(UserError, match=rf"{name}\.classes:2: {message}"):
        runs.run_experiment(dataclasses.replace(experiment, data=data), WorkDir(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("window", [5, 8, 11, 30])
def test_the_longer_text_is_truncated(window):
    """One piece at a time, until both fit after BOS with an EOS each; when they are equally long,
    the one that was not longer at first.
    """
    lengths = [(6, 2), (2, 6), (9, 9), (1, 1), (4, 12)]
    texts = [range(10, 10 + n) for pair in lengths for n in pair]
    classes = Ragged.from_lists([[1]] * len(lengths))
    objective = objective_named("classify_pairs")
    config = ObjectiveConfig("classify_pairs", window=window)
    items = objective.items(TokenStore(Ragged.from_lists(texts), classes), config, Bytes())
    batch = objective.examples(items, one_per_row(np.arange(5)), 5, window, 1)
    assert (batch.targets["class"].labels == 1).all()
    for row, (one, two) in enumerate(lengths):
        tie = one <= two  # the first is cut
        while one + two + 3 > window:
            one, two = (one - 1, two) if one > two or (one == two and tie) else (one, two - 1)
        bos, eos = Bytes().special["bos"], Bytes().special["eos"]
        read = [bos, *range(10, 10 + one), eos, *range(10, 10 + two), eos]
        count = len(read)
        assert items.lengths.src[row] == count
        assert batch.src.inputs[row, :count].tolist() == read
        assert batch.src.kind[row, :count].tolist() == [0] * (one + 2) + [1] * (two + 1)
        assert batch.src.seg[row].sum() == count
