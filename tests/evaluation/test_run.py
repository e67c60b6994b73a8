"""What an evaluation leaves behind, even if it fails."""

from types import SimpleNamespace

import pytest
from tiny import RUN, VARIANTS, make

from transformer_jax.base.disk import DiskError
from transformer_jax.config import DecodingConfig, Experiment, TokenizerConfig
from transformer_jax.data.codecs import characters
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.decoding.text.translation import Translation
from transformer_jax.evaluation import run
from transformer_jax.evaluation.run import evaluate
from transformer_jax.evaluation.sentences import describe

LINES, REFERENCES = ["ein Hund", "eine Katze"], ["a dog", "a cat"]


def evaluate_reversal(stem):
    """Evaluate a translator that reverses lines."""

    def translate(params, src, progress):
        return [Translation(line[::-1], [], 0.0) for line in src]

    translator = SimpleNamespace(translate=translate)
    trained = SimpleNamespace(
        experiment=Experiment(), params=(), steps=[3], translator=lambda _: translator
    )
    return evaluate(trained, LINES, REFERENCES, DecodingConfig(), "test", "best", str(stem))


def test_translations_survive_a_failed_scoring(tmp_path, monkeypatch):
    """They are written first; scores of an earlier evaluation are removed."""
    stem = tmp_path / "test.best"
    for ending in ("json", "jsonl", "hyp"):
        (tmp_path / f"test.best.{ending}").write_text("of an earlier evaluation")

    def fail(*_):
        raise TypeError("don't know how to coerce float and float32")

    monkeypatch.setattr(run, "score", fail)
    with pytest.raises(TypeError):
        evaluate_reversal(stem)
    assert [path.name for path in tmp_path.iterdir()] == ["test.best.hyp"]
    assert (tmp_path / "test.best.hyp").read_text() == "dnuH nie\neztaK enie\n"


def test_scores_survive_a_full_disk(tmp_path, monkeypatch):
    """They are returned to be shown; writing them fails as before."""

    def full(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(run, "describe", lambda *_: [])
    monkeypatch.setattr(run, "write_text", full)
    found = evaluate_reversal(tmp_path / "test.best")
    assert found.hypotheses == [line[::-1] for line in LINES]
    assert found.result["scores"].keys() == {"BLEU", "chrF"}
    with pytest.raises(DiskError, match="No space left"):
        found.write(str(tmp_path / "test.best"))


def test_sentences_of_a_model_without_cross_attention():
    """A prefix language model has none: its rows have everything else."""
    model, params = make(VARIANTS["decoder"], "ranked")
    codec = characters.train(TokenizerConfig(), ["adghnotuw "])
    trained = SimpleNamespace(
        experiment=RUN, model=model, params=params, tokenizers=TokenizerPair(codec, codec),
        translator=lambda: SimpleNamespace(longest=100),
    )  # fmt: skip
    (row,) = describe(trained, ["hund"], ["a dog"], [Translation("a hat", [5, 6], 0.0)])
    assert row["hypothesis"] == "a hat"
    assert "attention" not in row
