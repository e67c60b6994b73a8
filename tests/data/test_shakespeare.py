"""Language-model text from the file to the batches and back: configs/shakespeare.py on its data."""

import dataclasses
import runpy
from pathlib import Path

import numpy as np
import pytest

from transformer_jax.config import Experiment
from transformer_jax.config.convert import parse
from transformer_jax.data.batches.batching import BatchSource, fixed_batches
from transformer_jax.evaluation.validation import text_units
from transformer_jax.experiments.prepare import Prepared, describe, prepare
from transformer_jax.runs.workdir import WorkDir

ROOT = Path(__file__).parents[2]
TEXT = "To be, or not to be,\n\nthat is the question:\n" * 30


@pytest.fixture
def experiment(tmp_path, monkeypatch) -> Experiment:
    """Return the config, on a text of ours."""
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path / "cache"))
    (tmp_path / "train.txt").write_text(TEXT)
    (tmp_path / "validation.txt").write_text(TEXT[5:333])
    return on(tmp_path)


def on(directory: Path) -> Experiment:
    config = runpy.run_path(str(ROOT / "configs/shakespeare.py"))["get_config"]()
    config.data.directory = str(directory)
    return parse(config)


def read_back(prepared: Prepared) -> str:
    """Return the text that validation predicts."""
    items, found = prepared.validation_store, {}
    for shape, placement in fixed_batches(items, [64], 768, 4):
        batch = prepared.objective.examples(items, placement, *shape)
        labels, weight = batch.targets["tokens"]
        for row, item in enumerate(placement.pairs.tolist()):
            found[item] = labels[row, weight[row] > 0].tolist()
    return prepared.tokenizers.tgt.decode(i for item in sorted(found) for i in found[item])


def test_validation_predicts_each_character_once(experiment, tmp_path):
    prepared = prepare(experiment, WorkDir(tmp_path / "run"))
    assert read_back(prepared) == TEXT[5:333]
    units = text_units(experiment, prepared.tokenizers.tgt, prepared.validation)
    assert units == {"character": 328, "byte": 328}


def test_the_description_of_the_data(experiment, tmp_path):
    prepared = prepare(experiment, WorkDir(tmp_path / "run"))
    assert len(TEXT) == 20 * 64 + 40
    assert describe(prepared) == [
        "data: 21 training windows kept; dropped 0 empty; 6 for validation",
        f"vocabulary: {4 + len(set(TEXT))} pieces",
        "batches: 2 per epoch; shapes 12x64; 14.1% of target positions are padding; "
        "660 target tokens per step",
        "unknown pieces: 0.00% of the target side, in the training text",
    ]


def test_labels_are_the_inputs_shifted_by_one(experiment, tmp_path):
    prepared = prepare(experiment, WorkDir(tmp_path / "run"))
    batch = BatchSource(prepared.train, prepared.plan, prepared.objective)[0]
    assert batch.src is None
    assert batch.tgt.inputs.shape == (12, 64)
    codec = prepared.tokenizers.tgt
    for inputs, labels in zip(batch.tgt.inputs, batch.targets["tokens"].labels, strict=True):
        text = codec.decode(labels)
        assert text in TEXT
        assert codec.decode(inputs[1:]) == text[:-1]


@pytest.mark.parametrize(("document", "codec"), [("line", "subwords"), ("line", "bytes")])
def test_line_ends_are_predicted_as_eos(experiment, tmp_path, document, codec):
    """A line end counts as a character, predicted as EOS; subwords lose none of this text."""
    changed = dataclasses.replace(
        experiment,
        objective=dataclasses.replace(experiment.objective, document=document),
        tgt=dataclasses.replace(experiment.tgt, codec=codec),
        tokenizer=dataclasses.replace(
            experiment.tokenizer, **({"vocab_size": 40} if codec == "subwords" else {})
        ),
    )
    prepared = prepare(changed, WorkDir(tmp_path / "run"))
    assert prepared.selection.dropped == {"empty": 30}
    lines = TEXT[5:333].split("\n")
    units = text_units(changed, prepared.tokenizers.tgt, prepared.validation)
    assert units["character"] == len(TEXT[5:333]) + (lines[-1] != "")


def test_characters_unseen_in_training_leave_no_text_units(experiment, tmp_path):
    (tmp_path / "validation.txt").write_text("naïve")
    prepared = prepare(experiment, WorkDir(tmp_path / "run"))
    assert text_units(experiment, prepared.tokenizers.tgt, prepared.validation) == {}


def test_pairs_have_no_text_units(experiment, tmp_path):
    prepared = prepare(experiment, WorkDir(tmp_path / "run"))
    codec, corpus = prepared.tokenizers.tgt, prepared.validation
    assert text_units(Experiment(), codec, corpus) == {}


def test_the_full_data(tmp_path, monkeypatch):
    place = ROOT.parent / "shared/data/shakespeare"
    if not place.is_dir():
        pytest.skip(f"no {place}")
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path / "cache"))
    prepared = prepare(on(place), WorkDir(tmp_path / "run"))
    assert read_back(prepared) == (place / "validation.txt").read_text(encoding="utf-8")
    assert prepared.tokenizers.tgt.size == 65 + 4
    lengths = prepared.validation_store.tgt.lengths
    assert (int(lengths.sum()), len(np.unique(lengths))) == (111_540, 2)
    assert int(prepared.train.tgt.lengths[prepared.selection.pairs].sum()) == 1_003_854
