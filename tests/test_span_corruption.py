"""Pre-training an encoder-decoder: resumed, scored, and what is rejected."""

import dataclasses
import json
import re

import pytest
from starts import start_at_random
from tiny import RUN

import transformer_jax
from transformer_jax.base.errors import UserError
from transformer_jax.cli import evaluate, score
from transformer_jax.config import ObjectiveConfig
from transformer_jax.experiments import train as runs
from transformer_jax.runs.workdir import WorkDir

SIX = dataclasses.replace(
    RUN,
    model=dataclasses.replace(RUN.model, dropout_rate=0.0, biases=(), norm="rms_norm"),
    objective=ObjectiveConfig("span_corruption", window=48, document="joined", sentinels=4),
    optimizer=dataclasses.replace(RUN.optimizer, learning_rate=0.02),
    tokenizer=dataclasses.replace(RUN.tokenizer, vocab_size=60),
)
THREE = dataclasses.replace(SIX, training=dataclasses.replace(SIX.training, steps=3))


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Return a folder with whole/, and continued/, which was resumed after three steps."""
    directory = tmp_path_factory.mktemp("spans")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRANSFORMER_JAX_CACHE", str(directory / "cache"))
        patch.setattr(runs.process, "use_compilation_cache", lambda: None)
        start_at_random(patch)
        for name, experiment in (("whole", SIX), ("continued", THREE), ("continued", SIX)):
            assert runs.run_experiment(experiment, WorkDir(directory / name)) == 0
        yield directory


@pytest.mark.thorough
def test_a_resumed_run_equals_an_uninterrupted_run(home):
    """Resuming draws the same spans for the epoch."""
    one, other = (home / name / "metrics.jsonl" for name in ("whole", "continued"))
    assert one.read_bytes() == other.read_bytes()
    rows = [json.loads(line) for line in one.read_text().splitlines()]
    assert rows[-1]["validation_loss"] < rows[0]["loss"]


@pytest.mark.thorough
def test_targets_are_shorter_than_sources(home):
    """Batches are compiled with these lengths."""
    log = (home / "whole/train.log").read_text()
    (source, target) = re.findall(r"batches of 16 x (\d+) and (\d+):", log)[0]
    assert (int(source), int(target)) == (48, 12)
    pieces = transformer_jax.load(home / "whole").tokenizers.tgt.pieces(range(4, 8))
    assert pieces == [f"<extra_id_{i}>" for i in range(4)]


def test_eval_gives_the_validation_loss(home, capsys):
    assert evaluate.main([f"--workdir={home}/whole", "--split=validation"]) == 0
    assert "pieces, in the spans that validation removes, with sentine" in capsys.readouterr().out
    written = json.loads((home / "whole/eval/validation.best.json").read_text())
    rows = map(json.loads, (home / "whole/metrics.jsonl").read_text().splitlines())
    best = min(row["validation_loss"] for row in rows if "validation_loss" in row)
    assert written["scores"]["loss"]["value"] == pytest.approx(best, rel=1e-4)
    assert written["scores"].keys() == {"loss", "perplexity"}


def test_unsupported_operations_are_rejected(home):
    with pytest.raises(UserError, match="predicts the spans that a text has lost, and gives no pr"):
        score.main([f"--workdir={home}/whole", f"--target={__file__}"])
    with pytest.raises(UserError, match="--codebook: such a model writes no codes of pictures"):
        evaluate.main([f"--workdir={home}/whole", "--codebook=book.npz"])
    with pytest.raises(UserError, match="'span_corruption': such a model has no source to transl"):
        transformer_jax.load(home / "whole").translate("x")
