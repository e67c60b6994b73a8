"""Mixtures and tags, from a config to the batches of a run."""

import dataclasses
import re

import numpy as np
import pytest
from tiny import RUN, random_params

from transformer_jax.api.trained import TrainedModel
from transformer_jax.base.vocabulary import BOS, EOS
from transformer_jax.config import ObjectiveConfig
from transformer_jax.data.batches.batching import BatchSource
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.score import log_probs_of
from transformer_jax.decoding.text.writer import make_writer
from transformer_jax.experiments.prepare import describe, prepare
from transformer_jax.models.build import build_for
from transformer_jax.runs.workdir import WorkDir

SHARED = {
    "model": dataclasses.replace(RUN.model, architecture="decoder", num_encoder_layers=6),
    "objective": ObjectiveConfig("prefix_lm", window=40),
}


@pytest.mark.parametrize(("other", "most"), [({}, 48), (SHARED, 40)])
def test_long_sources_are_truncated_everywhere(tmp_path, monkeypatch, other, most):
    """Long texts and the names of their classes, in training, validation, decoding and scoring. In
    one row with its target, which is never truncated, a source leaves room for it.
    """
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path / "cache"))
    for part in ("train", "validation"):
        texts = (f"{i % 7} {i % 11} " * (3 + 97 * (i % 2)) for i in range(40))
        (tmp_path / f"{part}.text").write_text("".join(f"{text}\n" for text in texts))
        (tmp_path / f"{part}.label").write_text("pos\nneg\n" * 20)
    data = dataclasses.replace(
        RUN.data, source="text", directory=str(tmp_path), source_language="text",
        target_language="label", max_length_ratio=1000.0, prefixes=("train=sentiment:",),
        num_examples=(50_000, 500, 500), max_number=10**9,
    )  # fmt: skip
    tokenizer = dataclasses.replace(RUN.tokenizer, vocab_size=34)
    experiment = dataclasses.replace(RUN, data=data, tokenizer=tokenizer)
    long = prepare(experiment, WorkDir(tmp_path / "run")).selection
    assert (len(long.pairs), long.dropped["longer than 48 pieces"]) == (20, 20)
    data = dataclasses.replace(data, long_sources="cut")
    experiment = dataclasses.replace(experiment, data=data, **other)
    prepared = prepare(experiment, WorkDir(tmp_path / "run"))
    assert len(prepared.selection.pairs) == 40
    names = prepared.tokenizers.tgt.encode(["pos", "neg"])
    (shape,), longest = prepared.plan.shapes, max(map(len, names))
    assert shape[1:] == ((0, most + longest) if other else (most, longest))
    model = build_for(experiment, 34, 34)
    loaded = Loaded(
        model, random_params(model), prepared.tokenizers, experiment.objective, experiment.data
    )
    writer = make_writer(loaded, experiment.decoding)
    read = [part.ids for part in writer.sentences(prepared.validation.src)]
    for store in (prepared.train, prepared.validation_store):
        assert store.src.lengths.max() == most
        assert {store.src.sequence(i)[-1] for i in range(40)} == {EOS}
        assert [store.tgt.sequence(i).tolist() for i in (0, 1)] == names
    assert [prepared.validation_store.src.sequence(i).tolist() for i in range(40)] == read
    two = slice(2)  # one of them truncated
    trained = TrainedModel(experiment, model, loaded.params, prepared.tokenizers, [0])
    whole = prepared.validation.src[two], prepared.validation.tgt[two]
    expected = log_probs_of(loaded, read[two], names, 4096)
    for found, log_probs in zip(trained.score(*whole), expected, strict=True):
        np.testing.assert_array_equal(found.log_probs, log_probs)
    if other:
        prompts = map(trained.generator().reader.read, prepared.validation.src)
        assert [[*ids, BOS] for ids in read] == [*prompts]


def test_a_mixture_with_tags(tmp_path, monkeypatch):
    """Real and back-translated pairs: each source begins with its tags, and
    an epoch has the requested share of each part.
    """
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path / "cache"))
    for part, count in (("real", 300), ("back", 60), ("val", 5)):
        for ending in ("src", "tgt"):
            lines = (f"{part[0]} {i % 7} {i % 11} {i}\n" for i in range(count))
            (tmp_path / f"{part}.{ending}").write_text("".join(lines))
    experiment = dataclasses.replace(
        RUN,
        data=dataclasses.replace(
            RUN.data, source="text", directory=str(tmp_path), source_language="src",
            target_language="tgt", train=("real", "back"), validation=("val",), test=("val",),
            prefixes=("real=<2de>", "back=<BT> <2de>", "val=<2de>"), weights=("real=1", "back=1"),
            num_examples=(50_000, 500, 500), max_number=10**9, max_length_ratio=9.0,
        ),
        tokenizer=dataclasses.replace(RUN.tokenizer, symbols=("<2de>", "<BT>")),
    )  # fmt: skip
    prepared = prepare(experiment, WorkDir(tmp_path / "run"))
    codec = prepared.tokenizers.src
    to_german, back = map(codec.piece_id, ("<2de>", "<BT>"))
    source = BatchSource(prepared.train, prepared.plan, prepared.objective)
    tagged = total = 0
    for i in range(len(prepared.plan)):
        batch = source[i]
        rows = batch.src.seg.any(1)
        tagged += int((batch.src.inputs == back).any(1).sum())
        total += int(rows.sum())
        assert ((batch.src.inputs == to_german).sum(1) == rows).all()
        assert not np.isin(batch.tgt.inputs, [to_german, back]).any()
    assert abs(total - 360) < 6
    assert abs(tagged / total - 0.5) < 0.02
    lines = describe(prepared)
    assert "mixture: back: 60 items, 50.0 % of an epoch, each appearing 3 times" in lines
    assert prepared.validation.src[0].startswith("<2de> v")


def test_a_mixture_of_objectives(tmp_path, monkeypatch):
    """Pairs to translate, and a text to denoise, which has no source file."""
    monkeypatch.setenv("TRANSFORMER_JAX_CACHE", str(tmp_path / "cache"))
    for name, count in (("real.src", 90), ("real.tgt", 90), ("text.tgt", 60), ("val.src", 5),
                        ("val.tgt", 5)):  # fmt: skip
        lines = (f"{name[0]} {i % 7} {i % 11} {i}\n" for i in range(count))
        (tmp_path / name).write_text("".join(lines))
    experiment = dataclasses.replace(
        RUN,
        objective=ObjectiveConfig(window=40, document="joined", parts=("text=denoising",)),
        data=dataclasses.replace(
            RUN.data, source="text", directory=str(tmp_path), source_language="src",
            target_language="tgt", train=("text", "real"), validation=("val",), test=("val",),
            weights=("real=1", "text=1"), num_examples=(50_000, 500, 500), max_number=10**9,
        ),
    )  # fmt: skip
    prepared = prepare(experiment, WorkDir(tmp_path / "run"))
    mask, codec = prepared.tokenizers.tgt.piece_id("<mask>"), prepared.tokenizers.tgt
    source = BatchSource(prepared.train, prepared.plan, prepared.objective)
    kinds = {"t": 0, "r": 0}
    for i in range(len(prepared.plan)):
        batch = source[i]
        labels, weight = batch.targets["tokens"]
        for row in np.flatnonzero(weight.any(1)):
            first = codec.decode(labels[row].tolist())
            of = "r" if "r" in first else "t"
            kinds[of] += 1
            assert (mask in batch.src.inputs[row]) <= (of == "t")
    assert abs(kinds["r"] - kinds["t"]) < 8
    assert len(prepared.validation_store) == 5
    lines = describe(prepared)
    assert "translate: 90 training pairs" in lines
    assert any(re.fullmatch(r"denoising: \d+ training windows", line) for line in lines)
    assert any(line.startswith("mixture: text: ") and "50.0 %" in line for line in lines)
