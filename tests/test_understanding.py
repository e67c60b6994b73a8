"""Pre-training on segment pairs, fine-tuning on labels, numbers and answers; scores and Python."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from itself import scores_tested
from starts import start_at_random
from tiny import RUN

import transformer_jax
from transformer_jax.base.errors import UserError
from transformer_jax.cli import compare, evaluate, score
from transformer_jax.config import Experiment, InitConfig, ObjectiveConfig, SideConfig
from transformer_jax.experiments import train as runs
from transformer_jax.reports import runs as reports
from transformer_jax.runs.workdir import WorkDir

TOPICS = {
    "SEA": ["boat", "wave", "harbour", "sail", "fish", "tide"],
    "SKY": ["cloud", "wing", "star", "wind", "bird", "rain"],
}
NAMES = "pairs", "tags", "values", "answers"
STEPS = {"steps": 40, "label_smoothing": 0.0, "log_every": 20}


def documents(count: int, seed: int) -> list[list[list[str]]]:
    """Return texts of six sentences of four words, each all of one topic."""
    generator = np.random.default_rng(seed)
    found = []
    for number in range(count):
        topic = ("SEA", "SKY")[number % 2]
        found.append([generator.choice(TOPICS[topic], 4).tolist() for _ in range(6)])
    return found


def label(word: str, before: str | None) -> str:
    kind = "SEA" if word in TOPICS["SEA"] else "SKY"
    return f"{'B' if before is None else 'I'}-{kind}"


def experiments(directory: Path) -> tuple[Experiment, Experiment, Experiment, Experiment]:
    """Return an experiment on segment pairs, and those on labels, numbers and answers that start
    from it.
    """
    for part, count in (("train", 40), ("validation", 12)):
        texts = documents(count, count)
        lines = [line for text in texts for line in (*map(" ".join, text), "")]
        words = [[*one, *two] for text in texts for one, two in zip(text, texts[0], strict=True)]
        labels = [[label(w, row[i - 1] if i % 4 else None) for i, w in enumerate(row)]
                  for row in words]  # fmt: skip
        for ending, rows in (
            ("lines", lines), ("words", map(" ".join, words)), ("labels", map(" ".join, labels)),
            ("asked", [f"where?\t{' '.join(row)}" for row in words]),
            ("spans", [f"0\t{row[0]}" for row in words]),
            ("values", [10 + 0.5 * sum(word in TOPICS["SEA"] for word in row) for row in words]),
        ):  # fmt: skip
            (directory / f"{part}.{ending}").write_text("".join(f"{row}\n" for row in rows))
    model = dataclasses.replace(
        RUN.model, architecture="encoder", num_encoder_layers=1, num_decoder_layers=6,
        token_types=2, input_norm=True, embedding_scale=False, positions="learned",
        dropout_rate=0.0, biases=(), norm="rms_norm",
    )  # fmt: skip
    data = dataclasses.replace(
        RUN.data, source="text", directory=str(directory), source_language="words",
        target_language="lines", test=("validation",), tokens_per_batch=48 * 16,
        num_examples=(50_000, 500, 500), max_number=10**9, batching="pack",
    )  # fmt: skip
    pairs = dataclasses.replace(
        RUN, model=model, data=data, training=dataclasses.replace(RUN.training, **STEPS),
        checkpoint=dataclasses.replace(RUN.checkpoint, every_steps=20),
        evaluation=dataclasses.replace(RUN.evaluation, every_steps=20),
        optimizer=dataclasses.replace(RUN.optimizer, learning_rate=0.02),
        objective=ObjectiveConfig("masked_lm_nsp", window=31),
        tokenizer=dataclasses.replace(RUN.tokenizer, vocab_size=60),
    )  # fmt: skip
    tags = dataclasses.replace(
        pairs, data=dataclasses.replace(data, target_language="labels", batching="bucket"),
        objective=ObjectiveConfig("tag", window=24), tgt=SideConfig("labels"),
        tokenizer=dataclasses.replace(pairs.tokenizer, joint=False),
        init=InitConfig(source=str(directory / "pairs")),
        checkpoint=dataclasses.replace(pairs.checkpoint, best_by="accuracy"),
    )  # fmt: skip
    values = dataclasses.replace(
        tags, data=dataclasses.replace(tags.data, target_language="values"),
        objective=ObjectiveConfig("regress", window=24), tgt=SideConfig("values"),
        checkpoint=pairs.checkpoint,
    )  # fmt: skip
    answers = dataclasses.replace(
        tags, data=dataclasses.replace(data, source_language="asked", target_language="spans"),
        objective=ObjectiveConfig("answer", window=32), tgt=SideConfig("spans"),
    )  # fmt: skip
    return pairs, tags, values, answers


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a folder in which pairs/, tags/, values/ and answers/ were trained."""
    directory = tmp_path_factory.mktemp("understanding")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSFORMER_JAX_CACHE", str(directory / "cache"))
        patch.setattr(runs.process, "use_compilation_cache", lambda: None)
        start_at_random(patch)
        for name, experiment in zip(NAMES, experiments(directory), strict=True):
            assert runs.run_experiment(experiment, WorkDir(directory / name)) == 0
        yield directory


def rows(workdir: Path) -> list[dict]:
    found = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return [row for row in found if "validation_loss" in row]


def scores(workdir: Path) -> dict[str, float]:
    written = json.loads((workdir / "eval/validation.best.json").read_text())
    return {name: score["value"] for name, score in written["scores"].items()}


@pytest.mark.thorough
def test_pairs_are_learned_and_scored(home, capsys):
    """eval.py draws the same pairs as validation, so its scores are those of the best checkpoint;
    the training loss includes both tasks.
    """
    best = min(rows(home / "pairs"), key=lambda row: row["validation_loss"])
    assert best["validation_loss"] < 3.5  # of 60 pieces, ln 60 is 4.1
    assert best["validation_next_sentence_loss"] < 1
    assert evaluate.main([f"--workdir={home}/pairs", "--split=validation"]) == 0
    assert "next_sentence_accuracy = " in capsys.readouterr().out
    found = scores(home / "pairs")
    assert scores_tested(home / "pairs", "validation") == found.keys()
    assert found["loss"] == pytest.approx(best["validation_loss"], rel=1e-4)
    # Validation weights each pair by its number of hidden pieces; eval.py does not.
    said = best["validation_next_sentence_accuracy"]
    assert found["next_sentence_accuracy"] == pytest.approx(100 * said, abs=8)
    metrics = map(json.loads, (home / "pairs/metrics.jsonl").read_text().splitlines())
    trained = [row for row in metrics if "nll" in row]
    assert all(row["loss"] > row["nll"] for row in trained)


def test_follows_gives_a_probability_per_pair(home):
    model = transformer_jax.load(home / "pairs")
    sea, sky = "boat wave sail fish", "cloud wing star wind"
    found = model.follows([sea, sea], ["tide harbour wave fish", sky])
    assert all(0 < probability < 1 for probability in found)
    assert model.follows(sea, sky) == pytest.approx(found[1], rel=1e-4)
    long = [f"{words} " * 9 for words in (sky, sea)]  # one's end, the other's beginning
    assert model.follows("".join(long), long[0]) == pytest.approx(model.follows(*long[::-1]))
    for pair, message in (((sea, [sky]), "texts, or two lists"), ((sea, ""), "pair 1 is empty")):
        with pytest.raises(UserError, match=message):
            model.follows(*pair)
    with pytest.raises(UserError, match="'tag': such a model does not say whether one text"):
        transformer_jax.load(home / "tags").follows(sea, sky)


def test_the_tagger_starts_from_the_pre_trained_encoder(home):
    """The encoder is taken over; the pooler and the other head are not needed."""
    log = (home / "tags/train.log").read_text()
    for line in ("taken: encoder/layer_0 (8)", "new: tags_head (2)", "not taken: pooler (2)",
                 "not taken: next_sentence_head (2)"):  # fmt: skip
        assert line in log


def test_labels_are_learned_and_scored(home, capsys):
    """Scored by words and by entities; texts longer than the window get all their labels."""
    best = max(row["validation_accuracy"] for row in rows(home / "tags"))
    assert best > 0.75
    assert evaluate.main([f"--workdir={home}/tags", "--split=validation"]) == 0
    printed = capsys.readouterr().out
    assert "of 576 words), 95 % interval" in printed
    assert "f1 = " in printed
    found = scores(home / "tags")
    assert scores_tested(home / "tags", "validation") == found.keys()
    assert found["accuracy"] == pytest.approx(100 * best)
    assert 0 < found["f1"] <= 100
    said = (home / "tags/eval/validation.best.hyp").read_text().splitlines()
    true = (home / "validation.labels").read_text().splitlines()
    assert [len(line.split()) for line in said] == [len(line.split()) for line in true]
    right = sum(x == y for a, b in zip(said, true, strict=True)
                for x, y in zip(a.split(), b.split(), strict=True))  # fmt: skip
    assert found["accuracy"] == pytest.approx(100 * right / 576)


def test_labels_from_python(home):
    model = transformer_jax.load(home / "tags")
    found = model.tag("boat wave cloud wing")
    assert [name.partition("-")[2] for name in found] == ["SEA", "SEA", "SKY", "SKY"]
    assert model.tag(["boat wave cloud wing", "", "star"])[:2] == [found, []]
    assert "tagger of words" in repr(model)
    with pytest.raises(UserError, match="'masked_lm_nsp': such a model predicts no labels"):
        transformer_jax.load(home / "pairs").tag("boat")


def test_numbers_are_learned_and_scored(home, capsys):
    """In the unit of the files, however they are scaled internally."""
    last = rows(home / "values")[-1]
    assert "validation_accuracy" not in last
    assert last["validation_loss"] < 0.5  # in units of the variance
    assert evaluate.main([f"--workdir={home}/values", "--split=validation"]) == 0
    assert "spearman = " in capsys.readouterr().out
    found = scores(home / "values")
    assert scores_tested(home / "values", "validation") == found.keys()
    assert found["pearson"] > 0.7
    variance = np.var([float(x) for x in (home / "train.values").read_text().split()])
    best = min(row["validation_loss"] for row in rows(home / "values"))
    assert found["mean_squared_error"] == pytest.approx(best * variance, rel=1e-3)
    model = transformer_jax.load(home / "values")
    low, high = model.value(["cloud wing star wind", "boat wave sail fish"])
    assert 9 < low < high < 15
    assert "regression of words" in repr(model)
    with pytest.raises(UserError, match="'tag': such a model predicts no number of a text"):
        transformer_jax.load(home / "tags").value("boat")
    (home / "x.values").write_text("1\n2,5\n")
    (home / "x.words").write_text("boat\nwave\n")
    argv = [f"--source={home}/x.words", f"--reference={home}/x.values"]
    with pytest.raises(UserError, match=r"x\.values:2: '2,5' is not a number, such as 3\.5"):
        evaluate.main([f"--workdir={home}/values", *argv])


def test_answers_are_learned_and_scored(home, capsys):
    """The answer is always the first word; examples are packed in training, alone in inference."""
    assert rows(home / "answers")[-1]["validation_accuracy"] > 0.5
    assert evaluate.main([f"--workdir={home}/answers", "--split=validation"]) == 0
    assert "exact match = " in capsys.readouterr().out
    found = scores(home / "answers")
    assert scores_tested(home / "answers", "validation") == found.keys()
    assert 40 < found["exact_match"] <= found["f1"] <= 100
    model = transformer_jax.load(home / "answers")
    context = "boat wave sail fish tide harbour boat wave"
    (one,) = model.answer(["where?"], [context])
    assert one == model.answer("where?", context)
    assert context[one.begin :].startswith(one.text)
    assert one.log_prob < 0
    long = model.answer("where?", f"{context} " * 9)  # in windows
    assert long.text
    for pair, message in (((["a"], []), "a context for each"), (("a", ""), "question 1 or its")):
        with pytest.raises(UserError, match=message):
            model.answer(*pair)
    with pytest.raises(UserError, match="'tag': such a model answers no question"):
        transformer_jax.load(home / "tags").answer("a", "b")


def test_report_facts_have_validation_scores_and_no_translation(home):
    for name, measured in (("pairs", "perplexity"), ("tags", "accuracy")):
        facts = reports.facts(reports.read(WorkDir(home / name)))
        assert facts["validation"][measured] > 0
        assert facts["translates"] is False


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            lambda at: compare.main([at, at.replace("tags", "values"), "--split=validation"]),
            "one has objective.name='regress' and the other 'tag'; compare models of one kind",
        ),
        (lambda at: score.main([f"--workdir={at}", "--target=x"]), "predicts labels; see eval.py"),
        (lambda at: transformer_jax.load(at).translate("x"), "writes no text; see tag"),
        (lambda at: transformer_jax.load(at).score("x"), "predicts labels; see tag"),
        (lambda at: evaluate.main([f"--workdir={at}", "--checkpoint=best,last"]), "of taggers"),
    ],
)
def test_unsupported_operations_are_rejected(home, command, message):
    with pytest.raises(UserError, match=message):
        command(str(home / "tags"))


def test_wrong_numbers_of_labels_and_unknown_labels_are_rejected(home, tmp_path):
    """Each word needs one label, which occurs in training."""
    for labels, message in (("B-SEA", r"words:1: 2 words and 1 labels"),
                            ("B-SEA B-FIRE", "'B-FIRE' is not a label of the")):  # fmt: skip
        files = tmp_path / "x.words", tmp_path / "x.labels"
        for path, text in zip(files, ("boat wave", labels), strict=True):
            path.write_text(f"{text}\n")
        argv = [f"--source={files[0]}", f"--reference={files[1]}"]
        with pytest.raises(UserError, match=message):
            evaluate.main([f"--workdir={home}/tags", *argv])
