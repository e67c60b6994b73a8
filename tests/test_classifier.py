"""From masked pieces to classes: pre-training, fine-tuning, scoring, and what is rejected."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from flax.traverse_util import flatten_dict
from itself import scores_tested
from starts import start_at_random
from tiny import RUN, random_params, random_store

import transformer_jax
from transformer_jax.api.trained import TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.cli import compare, evaluate, generate, score, translate
from transformer_jax.cli.arguments import load_config
from transformer_jax.config import (
    DataConfig,
    Experiment,
    InitConfig,
    ObjectiveConfig,
    SideConfig,
    SourceConfig,
    TokenizerConfig,
)
from transformer_jax.config.convert import parse
from transformer_jax.data.codecs.pair import CODECS, TokenizerPair
from transformer_jax.data.objectives import noun_of, objective_named
from transformer_jax.data.sources import Corpus
from transformer_jax.evaluation.metrics import interval
from transformer_jax.evaluation.validation import notes
from transformer_jax.experiments import train as runs
from transformer_jax.experiments import warm_start
from transformer_jax.experiments.warm_start import tokenizers_of
from transformer_jax.models.build import build_for
from transformer_jax.reports import runs as reports
from transformer_jax.reports.report import gather
from transformer_jax.runs.workdir import WorkDir
from transformer_jax.sweeps.points import Point
from transformer_jax.sweeps.table import measure
from transformer_jax.training.state import TrainState

WORDS = {"pos": ["good", "fine", "a joy", "moving"], "neg": ["bad", "dull", "a bore", "flat"]}
STEPS = {"steps": 40, "label_smoothing": 0.0, "log_every": 20}


def texts(count: int, seed: int) -> tuple[list[str], list[str]]:
    """Return reviews and their classes."""
    generator = np.random.default_rng(seed)
    labels = [("pos", "neg")[i % 2] for i in range(count)]
    chosen = [generator.permutation(WORDS[label])[:3] for label in labels]
    return ["a film , " + " and ".join(words) for words in chosen], labels


def experiments(directory: Path) -> tuple[Experiment, Experiment]:
    """Return an experiment on masked pieces, and one on classes that is initialised from it."""
    for part, count in (("train", 96), ("validation", 24)):
        reviews, labels = texts(count, count)
        for ending, lines in (("text", reviews), ("label", labels)):
            (directory / f"{part}.{ending}").write_text("".join(f"{line}\n" for line in lines))
    model = dataclasses.replace(
        RUN.model, architecture="encoder", num_encoder_layers=1, num_decoder_layers=6,
        token_types=2, input_norm=True, embedding_scale=False, positions="learned",
        dropout_rate=0.0, biases=(), norm="rms_norm",
    )  # fmt: skip
    data = dataclasses.replace(
        RUN.data, source="text", directory=str(directory), source_language="text",
        target_language="text", test=("validation",), tokens_per_batch=48 * 16,
        num_examples=(50_000, 500, 500), max_number=10**9,
    )  # fmt: skip
    masked = dataclasses.replace(
        RUN, model=model, data=data, training=dataclasses.replace(RUN.training, **STEPS),
        checkpoint=dataclasses.replace(RUN.checkpoint, every_steps=20),
        evaluation=dataclasses.replace(RUN.evaluation, every_steps=20),
        optimizer=dataclasses.replace(RUN.optimizer, learning_rate=0.02),
        objective=ObjectiveConfig("masked_lm", window=48, document="joined", whole_words=True),
        tokenizer=dataclasses.replace(RUN.tokenizer, vocab_size=60),
    )  # fmt: skip
    classes = dataclasses.replace(
        masked, data=dataclasses.replace(data, target_language="label"),
        objective=ObjectiveConfig("classify", window=48), tgt=SideConfig("classes"),
        tokenizer=dataclasses.replace(masked.tokenizer, joint=False),
        init=InitConfig(source=str(directory / "masked")),
        checkpoint=dataclasses.replace(masked.checkpoint, best_by="accuracy"),
    )  # fmt: skip
    return masked, classes


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with the trained runs masked/ and classes/."""
    directory = tmp_path_factory.mktemp("reviews")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSFORMER_JAX_CACHE", str(directory / "cache"))
        patch.setattr(runs.process, "use_compilation_cache", lambda: None)
        start_at_random(patch)
        for name, experiment in zip(("masked", "classes"), experiments(directory), strict=True):
            assert runs.run_experiment(experiment, WorkDir(directory / name)) == 0
        yield directory


def rows(workdir: Path) -> list[dict]:
    found = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return [row for row in found if "validation_loss" in row]


@pytest.mark.thorough
def test_masked_pieces_are_learned_and_scored(home, capsys):
    """eval.py masks the same pieces as validation: its loss is that of the best checkpoint."""
    first, last = rows(home / "masked")
    assert first["validation_loss"] < 3  # of 60 pieces, ln 60 is 4.1
    assert evaluate.main([f"--workdir={home}/masked", "--split=validation"]) == 0
    printed = capsys.readouterr().out
    assert "pieces, masked as in validation; written to" in printed
    assert "pseudo_perplexity = " in printed
    written = json.loads((home / "masked/eval/validation.best.json").read_text())
    best = min(first["validation_loss"], last["validation_loss"])
    assert written["scores"]["loss"]["value"] == pytest.approx(best, rel=1e-4)
    # Perplexity masks whole words; pseudo-perplexity masks one piece beside the word's others.
    pseudo, perplexity = (
        written["scores"][name]["value"] for name in ("pseudo_perplexity", "perplexity")
    )
    assert 1 < pseudo < 2 * perplexity
    assert scores_tested(home / "masked", "validation") == written["scores"].keys()


@pytest.mark.thorough
def test_fine_tuning_starts_from_the_encoder_of_the_source(home):
    """The encoder and its tokenizer are taken over; what predicts the class is new."""
    log = (home / "classes/train.log").read_text()
    for line in ("taken: encoder/layer_0 (8)", "taken: embedding (1)", "new: pooler (2)",
                 "not taken: piece_head/dense (2)"):  # fmt: skip
        assert line in log
    one, other = (transformer_jax.load(home / name).tokenizers for name in ("masked", "classes"))
    assert one.src.digest == other.src.digest
    assert other.tgt.pieces(range(2)) == ["neg", "pos"]


def test_classes_are_learned_and_scored(home, capsys):
    """The texts are easy; the file of predictions is that of the best checkpoint."""
    last = rows(home / "classes")[-1]
    assert last["validation_accuracy"] > 0.9
    assert evaluate.main([f"--workdir={home}/classes", "--split=validation"]) == 0
    best = max(row["validation_accuracy"] for row in rows(home / "classes"))
    right = round(24 * best)
    assert f"({right} of 24), 95 % interval" in capsys.readouterr().out
    stem = home / "classes/eval/validation.best"
    written = json.loads(Path(f"{stem}.json").read_text())
    accuracy = written["scores"]["accuracy"]
    assert accuracy["value"] == pytest.approx(100 * best)
    assert accuracy["interval"] == [100 * end for end in interval(right, 24)]
    said = [json.loads(line) for line in Path(f"{stem}.jsonl").read_text().splitlines()]
    assert [row["hypothesis"] for row in said] == Path(f"{stem}.hyp").read_text().split()
    assert sum(row["hypothesis"] == row["reference"] for row in said) == right
    assert scores_tested(home / "classes", "validation") == written["scores"].keys()


def test_classify_from_python(home):
    model = transformer_jax.load(home / "classes")
    found = model.classify("a film , good and fine and moving")
    assert next(iter(found)) == "pos"
    assert sum(found.values()) == pytest.approx(1)
    assert model.classify(["a film , bad and dull and flat"])[0]["neg"] > 0.5
    assert "classifier of text" in repr(model)
    long = model.classify("good " * 500)  # truncated to what it reads
    assert long == model.classify("good " * 400)
    with pytest.raises(UserError, match="'masked_lm': such a model predicts no class"):
        transformer_jax.load(home / "masked").classify("text")


def test_reports_and_tables_show_accuracy(home):
    workdir = WorkDir(home / "classes")
    facts = reports.facts(reports.read(workdir))
    assert facts["translates"] is False
    assert facts["model"].startswith("1 encoder layers, ")
    assert facts["validation"]["accuracy"] > 90
    assert facts["parameters"] == sum(
        np.size(x) for x in flatten_dict(transformer_jax.load(workdir.path).params).values()
    )
    point = Point("", {}, workdir.experiment(), workdir, ())
    measured = measure(point, None)
    assert measured["validation accuracy"] == facts["validation"]["accuracy"]
    assert measured["parameters"] == facts["parameters"]


def test_notes_state_the_uncertainty_of_few_texts(home):
    trained = transformer_jax.load(home / "classes")
    store = random_store([(3, 1)] * 200)
    (said,) = notes(store, trained.experiment)
    assert "of 200 texts, an accuracy near 50 % is known to 6.9 points either way" in said
    assert "texts, an accuracy near" in (home / "classes/train.log").read_text()


@pytest.mark.parametrize(
    ("config", "noun"),
    [("pictures", "picture"), ("movie_reviews", "text"), ("etth1", "window"),
     ("multi30k", "pair"), ("picture_codes", "picture")],
)  # fmt: skip
def test_items_are_called_what_they_are(config, noun):
    """Also in the log, and in errors: an objective of texts may read pictures."""
    experiment = parse(load_config(f"configs/{config}.py"))
    assert noun_of(objective_named(experiment.objective.name), experiment) == noun


def test_intervals_of_accuracy_are_wilsons():
    """Their ends are the roots of (p - share)^2 = z^2 p (1 - p) / n."""
    for right, total in ((0, 10), (7, 10), (10, 10), (172, 200)):
        low, high = interval(right, total)
        for p in (low, high):
            z = abs(p - right / total) / max((p * (1 - p) / total) ** 0.5, 1e-12)
            assert p in (0.0, 1.0) or z == pytest.approx(1.959964, rel=1e-6)
        assert 0 <= low <= right / total <= high <= 1


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (lambda a: translate.main([*a]), "'classify': such a model writes no text; see classify"),
        (lambda a: generate.main([*a, "--prompt=x"]), "such a model does not continue"),
        (lambda a: compare.main([a[0].partition("=")[2]] * 2), "test.best.json: no such scores; "
         "create them with: python eval.py"),
        (lambda a: score.main([*a, "--source=x", "--target=x"]), "predicts classes; see eval.py"),
        (lambda a: evaluate.main([*a, "--checkpoint=best,last"]), "classify needs a single model"),
    ],
)  # fmt: skip
def test_unsuitable_commands_are_rejected(home, command, message):
    with pytest.raises(UserError, match=message):
        command([f"--workdir={home}/classes"])


def test_a_source_with_another_tokenizer_is_rejected(home):
    """The target side's codec, and whether the tokenizer is joint, do not matter."""
    _, classes = experiments(home)
    labels = dataclasses.replace(classes, tgt=SideConfig("labels"))
    assert tokenizers_of(labels, Corpus([], ["a b", "b"], "")).tgt.encode(["b a"]) == [[1, 0]]
    other = dataclasses.replace(classes.tokenizer, vocab_size=61)
    with pytest.raises(UserError, match=r"^config\.tokenizer\.vocab_size=61: .* has 60; set it"):
        tokenizers_of(dataclasses.replace(classes, tokenizer=other), None)
    plain = dataclasses.replace(RUN.tokenizer, vocab_size=32000, joint=False)
    src = dataclasses.replace(classes, src=SourceConfig("bytes"), tokenizer=plain)
    with pytest.raises(UserError, match=r"^config\.src\.codec='bytes': .* has 'subwords'"):
        tokenizers_of(src, None)


def test_a_renumbered_class_keeps_its_row_and_bias(home, monkeypatch):
    classes = experiments(home)[1]
    pair = transformer_jax.load(home / "masked").tokenizers
    one, other = (
        CODECS["classes"].train(classes.tokenizer, x, ()) for x in (["b", "c"], ["a", "b"])
    )
    model = build_for(classes, pair.src.size, 2)
    theirs, ours = random_params(model, 1), random_params(model, 2)
    source = TrainedModel(classes, model, theirs, TokenizerPair(pair.src, one), [6])
    monkeypatch.setattr(warm_start, "_load", lambda _: [source])
    init = InitConfig(source="source")
    experiment = dataclasses.replace(classes, init=init)
    state = TrainState(0, 0, ours, None)
    found = warm_start.begin(experiment, state, TokenizerPair(pair.src, other)).state.params
    for name in ("table", "bias"):
        mine, given = (np.asarray(x["class_head"][name]) for x in (found, theirs))
        np.testing.assert_array_equal(mine[1], given[0])  # "b"
        assert not np.isclose(mine[0], given).any()  # "a", which the source lacks


def test_fine_tuning_starts_from_the_encoder_of_a_translation_model(home, monkeypatch):
    """Its layers and embeddings are taken, the latter by a rename where each side has its own."""
    _, classes = experiments(home)
    plain = dataclasses.replace(
        classes.model, token_types=0, input_norm=False, positions="sinusoidal", embedding_scale=True
    )  # fmt: skip
    classes = dataclasses.replace(classes, model=plain)
    masked = transformer_jax.load(home / "masked").tokenizers
    model = build_for(classes, masked.src.size, 2)
    params = random_params(model, 1)
    for tied, rename in (("all", ()), ("decoder", ("src_embedding/=embedding/",))):
        theirs = dataclasses.replace(
            RUN, model=dataclasses.replace(RUN.model, tied_embeddings=tied)
        )
        other = build_for(theirs, masked.src.size, masked.src.size)
        source = TrainedModel(theirs, other, random_params(other, 2), masked, [6])
        monkeypatch.setattr(warm_start, "_load", lambda _, source=source: [source])
        init = dataclasses.replace(classes.init, take=("embedding/.*", "encoder/.*"), rename=rename)
        state = TrainState(0, 0, params, None)
        tokenizers = TokenizerPair(
            masked.src, transformer_jax.load(home / "classes").tokenizers.tgt
        )
        experiment = dataclasses.replace(classes, init=init)
        found, _ = warm_start.begin(experiment, state, tokenizers)
        given, fresh, ours = (
            flatten_dict(x, sep="/") for x in (source.params, params, found.params)
        )
        for name, array in ours.items():
            there = f"src_{name}" if rename and name.startswith("embedding") else name
            reads = name.startswith(("embedding", "encoder"))
            np.testing.assert_array_equal(array, given[there] if reads else fresh[name])


@pytest.mark.thorough
def test_an_image_classifier_is_trained_resumed_and_reported(tmp_path, monkeypatch, capsys):
    """From arrays in files to a report that shows them; resuming changes nothing."""
    rng = np.random.default_rng(0)
    for part, count in (("train", 64), ("validation", 12)):
        labels = np.arange(count) % 2
        images = rng.integers(0, 60, (count, 8, 8), np.uint8)
        images[:, :, :4] += (150 * labels[:, None, None]).astype(np.uint8)
        np.savez(tmp_path / f"{part}.npz", images=images, labels=labels, names=["dark", "bright"])
    model = dataclasses.replace(
        RUN.model, architecture="encoder", num_encoder_layers=2, num_decoder_layers=6,
        stem="linear", pooler=False, positions="learned", max_positions=5, dropout_rate=0.0,
        residual="pre_norm",
    )  # fmt: skip
    data = DataConfig(
        source="arrays", directory=str(tmp_path), source_language="images",
        target_language="labels", test=("validation",), max_length=5, tokens_per_batch=16 * 5,
        num_buckets=1, augment=("crop",), crop_padding=1,
    )  # fmt: skip
    experiment = dataclasses.replace(
        RUN, model=model, data=data, objective=ObjectiveConfig("classify", window=5),
        src=SourceConfig("patches"), tgt=SideConfig("classes"),
        tokenizer=TokenizerConfig(joint=False),
        training=dataclasses.replace(RUN.training, steps=12),
        checkpoint=dataclasses.replace(RUN.checkpoint, every_steps=6, best_by="accuracy"),
        evaluation=dataclasses.replace(RUN.evaluation, every_steps=6),
        optimizer=dataclasses.replace(RUN.optimizer, learning_rate=0.02),
    )  # fmt: skip
    whole, parts = WorkDir(tmp_path / "whole"), WorkDir(tmp_path / "parts")
    runs.run_experiment(experiment, whole)
    half = dataclasses.replace(experiment.training, steps=6)
    runs.run_experiment(dataclasses.replace(experiment, training=half), parts)
    runs.run_experiment(experiment, parts)
    one, other = (transformer_jax.load(place.path, "last") for place in (whole, parts))
    for name, leaf in flatten_dict(one.params, sep="/").items():
        assert np.array_equal(leaf, flatten_dict(other.params, sep="/")[name]), name
    assert evaluate.main([f"--workdir={whole.path}", "--split=validation"]) == 0
    assert "accuracy = " in capsys.readouterr().out
    found = gather([(whole, None)], "validation")["gallery"]
    (shown,) = found
    assert len(shown["examples"]) == 12
    log = (whole.path / "train.log").read_text()
    assert "data: 64 training pictures kept" in log
    assert "of 12 pictures, an accuracy near" in log
    assert "text" not in log
    assert all({"picture", "looked", "probability"} <= row.keys() for row in shown["examples"])
