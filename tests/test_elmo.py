"""ELMo: two language models of a text, pre-trained and scored; and a classifier on top of them."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from starts import start_at_random
from tiny import RUN, random_params

import transformer_jax
from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS, EOS
from transformer_jax.cli import evaluate
from transformer_jax.config import (
    InitConfig,
    ModelConfig,
    ObjectiveConfig,
    SideConfig,
    SourceConfig,
)
from transformer_jax.data.batches.batch import Batch, Placement, Ragged, Side
from transformer_jax.data.objectives.both_ways import BidirectionalLM
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.experiments import train as runs
from transformer_jax.models.build import build
from transformer_jax.runs.workdir import WorkDir

MODEL = ModelConfig(
    architecture="elmo", d_model=16, num_encoder_layers=2, encoder_pattern=("lstm",),
    positions="none", dropout_rate=0.0,
)  # fmt: skip
WORDS = ["boat", "wave", "sail", "fish", "tide", "wing"]


def experiments(directory):
    """Return a language model of words in cyclic order, and a classifier of their direction."""
    for seed, (part, count) in enumerate((("train", 300), ("validation", 40))):
        chance = np.random.default_rng(seed)
        lines, classes = [], []
        for number in range(count):
            step, start = (1, -1)[number % 2], chance.integers(6)
            lines.append(" ".join(WORDS[(start + step * i) % 6] for i in range(5)))
            classes.append(("up", "down")[number % 2])
        for ending, rows in (("lines", lines), ("classes", classes)):
            (directory / f"{part}.{ending}").write_text("".join(f"{row}\n" for row in rows))
    lm = dataclasses.replace(
        RUN, model=MODEL, objective=ObjectiveConfig("bidirectional_lm", window=5),
        tgt=SideConfig("words"),
        tokenizer=dataclasses.replace(RUN.tokenizer, vocab_size=10),
        data=dataclasses.replace(
            RUN.data, source="text", directory=str(directory), source_language="lines",
            target_language="lines", test=("validation",), batching="pack",
            num_examples=(50_000, 500, 500), max_number=10**9,
        ),
        optimizer=dataclasses.replace(RUN.optimizer, learning_rate=0.02),
        training=dataclasses.replace(RUN.training, steps=40, label_smoothing=0.0, log_every=20),
        checkpoint=dataclasses.replace(RUN.checkpoint, every_steps=20),
        evaluation=dataclasses.replace(RUN.evaluation, every_steps=20),
    )  # fmt: skip
    classes = dataclasses.replace(
        lm, objective=ObjectiveConfig("classify", window=8), src=SourceConfig("words"),
        tgt=SideConfig("classes"),
        model=dataclasses.replace(MODEL, pooling="mean"),
        tokenizer=dataclasses.replace(lm.tokenizer, joint=False),
        data=dataclasses.replace(lm.data, target_language="classes"),
        init=InitConfig(source=str(directory / "lm")),
        checkpoint=dataclasses.replace(lm.checkpoint, best_by="accuracy"),
        optimizer=dataclasses.replace(
            lm.optimizer, frozen=("embedding/.*", "forward/.*", "backward/.*")
        ),
    )  # fmt: skip
    return lm, classes


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    directory = tmp_path_factory.mktemp("elmo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSFORMER_JAX_CACHE", str(directory / "cache"))
        patch.setattr(runs.process, "use_compilation_cache", lambda: None)
        start_at_random(patch)
        for name, experiment in zip(("lm", "classes"), experiments(directory), strict=True):
            assert runs.run_experiment(experiment, WorkDir(directory / name)) == 0
        yield directory


def validated(workdir):
    found = map(json.loads, (workdir / "metrics.jsonl").read_text().splitlines())
    return [row for row in found if "validation_loss" in row]


@pytest.mark.e2e
def test_both_directions_are_learned_and_scored(home, capsys):
    """Each direction's loss is the one validation measured; the training loss is their sum."""
    best = min(validated(home / "lm"), key=lambda row: row["validation_loss"])
    assert max(best["validation_loss"], best["validation_backward_loss"]) < 1.5  # ln 10 is 2.3
    assert evaluate.main([f"--workdir={home}/lm", "--split=validation"]) == 0
    assert "backward_perplexity = " in capsys.readouterr().out
    found = json.loads((home / "lm/eval/validation.best.json").read_text())
    assert found["tokens"] == 40 * 6
    for name in ("loss", "backward_loss"):
        expected = pytest.approx(best[f"validation_{name}"], rel=1e-4)
        assert found["scores"][name]["value"] == expected
    metrics = map(json.loads, (home / "lm/metrics.jsonl").read_text().splitlines())
    assert all(row["loss"] > 1.2 * row["nll"] for row in metrics if "nll" in row)
    with pytest.raises(UserError, match="predicts pieces from either side"):
        transformer_jax.load(home / "lm").score("boat wave")


@pytest.mark.e2e
def test_the_classifier_starts_from_the_frozen_language_models(home):
    """The layers stay frozen; their mixture, the pooler and the head are trained."""
    log = (home / "classes/train.log").read_text()
    for line in ("taken: forward/layer_0 (4)", "taken: backward/layer_1 (4)", "new: mixture (2)",
                 "new: class_head (2)"):  # fmt: skip
        assert line in log
    before, after = (transformer_jax.load(home / name) for name in ("lm", "classes"))
    for name in ("embedding", "forward", "backward"):
        one, other = before.params[name], after.params[name]
        jax.tree.map(np.testing.assert_array_equal, one, other)
    assert max(row["validation_accuracy"] for row in validated(home / "classes")) > 0.9
    found = after.classify(["boat wave sail fish tide", "tide fish sail wave boat"])
    assert [next(iter(one)) for one in found] == ["up", "down"]


def test_each_direction_sees_only_its_side_of_the_text():
    """With two texts in a row, each direction sees its side of a text; tags see it all."""
    model = build(MODEL, 12, 5, predicts=("tokens", "backward", "tags"))
    params = random_params(model)
    seg = np.repeat([[1, 2, 0]], [5, 3, 1], axis=1).astype(np.int32)
    ids = np.arange(4, 13, dtype=np.int32)[None] % 12

    @jax.jit
    def logits(ids):
        side = Side(ids, jnp.asarray(seg), jnp.asarray(seg))
        outputs = model.outputs(params, Batch(side, None, {}), None)
        return {name: output.logits() for name, output in outputs.items()}

    before, after = logits(ids), logits(ids + (np.arange(9) == 2)[None])
    expected = {"tokens": range(2, 5), "backward": range(3), "tags": range(5)}
    for name, places in expected.items():
        changed = np.abs(np.asarray(after[name] - before[name])).max(-1)[0, :8]
        assert np.flatnonzero(changed).tolist() == [*places]


def test_each_piece_is_predicted_once_in_each_direction():
    """Across windows, which overlap by one piece; packed or not."""
    text = [BOS, *range(4, 13), EOS]
    store = TokenStore(Ragged.from_lists([]), Ragged.from_lists([text, [BOS, 7, EOS]]))
    items = BidirectionalLM().items(store, ObjectiveConfig("bidirectional_lm", window=5))
    assert items.lengths.src.tolist() == [5, 5, 3, 3]
    rows = [range(4), [0, 1, 1, 1], [0, 0, 5, 8], [0] * 4, [1, 1, 2, 3]]
    batch = BidirectionalLM().examples(items, Placement(*map(np.array, rows)), 2, 12, 0)
    said = {name: sorted(target.labels[target.weight > 0].tolist())
            for name, target in batch.targets.items()}  # fmt: skip
    assert said["tokens"] == sorted([*text[1:], 7, EOS])
    assert said["backward"] == sorted([*text[:-1], 7, BOS])
    for name, ahead in (("tokens", 1), ("backward", -1)):
        row, place = np.nonzero(batch.targets[name].weight)
        expected = batch.src.inputs[row, place + ahead]
        np.testing.assert_array_equal(batch.targets[name].labels[row, place], expected)
