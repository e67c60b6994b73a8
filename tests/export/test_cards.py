"""Exported directories have a README.md that the Hugging Face Hub reads: what is known is in it,
and nothing else.
"""

import dataclasses

import pytest
import written
from huggingface_hub import ModelCard
from tiny import random_params

from transformer_jax.base.errors import UserError
from transformer_jax.cli.main import dispatch
from transformer_jax.config import Experiment
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.models.build import build_for
from transformer_jax.reports import card
from transformer_jax.runs.checkpoint import Checkpoints

EXPERIMENT = dataclasses.replace(
    written.EXPERIMENT,
    checkpoint=dataclasses.replace(written.EXPERIMENT.checkpoint, best_by="loss"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A translator with a checkpoint, scores of it, and scores of another."""
    place = written.trained(tmp_path_factory.mktemp("runs") / "pairs", EXPERIMENT)
    sizes = TokenizerPair.load(place.path, True, EXPERIMENT.codecs).sizes
    checkpoints = Checkpoints(place.checkpoints, EXPERIMENT.checkpoint)
    checkpoints.save(200, random_params(build_for(EXPERIMENT, *sizes)), {}, {}, {"loss": 1.0})
    checkpoints.close()
    texts = written.PLAIN
    written.scored(place, texts, texts, texts[1:] + texts[:1])
    written.scored(place, texts, texts, texts, checkpoint="a+b.best")
    return place


def exported(run, output, *options) -> tuple[ModelCard, str]:
    """Return the card of an export, as the Hub's library reads it, and its text."""
    argv = ["export", "--to=huggingface", f"--workdir={run.path}", f"--output={output}", *options]
    assert dispatch(argv) == 0
    return ModelCard.load(output / "README.md"), (output / "README.md").read_text(encoding="utf-8")


def test_a_card_says_what_is_known(run, tmp_path):
    found, text = exported(run, tmp_path / "marian")
    data = found.data
    assert (data.library_name, data.pipeline_tag) == ("transformers", "translation")
    assert data.language == ["en", "de"]  # the data are files with these endings
    assert data.license == "unknown"
    assert text.count("not stated") == 2  # the licences of the model and of the data
    assert data.datasets is None
    assert {"transformer-jax", "marian"} <= {*data.tags}
    assert data.metrics == ["bleu", "chrf"]
    scores = {one.metric_type: one for one in data.eval_results}
    assert scores["bleu"].dataset_split == "test"
    assert scores["bleu"].dataset_name == "made/up"
    assert f"| test | BLEU | {scores['bleu'].metric_value:.4g} |" in text
    assert "checkpoint best, search beam, beam_size=4; nrefs:1" in text  # sacrebleu's signature
    assert "a+b" not in text  # the scores of an ensemble
    assert "678 sentence pairs" in text
    assert written.START["command"] in text
    assert "checkpoint: step 200" in text


def test_what_people_state_is_written(run, tmp_path):
    given = ["license=apache-2.0", "data-license=cc-by-4.0", "language=de,en", "datasets=wmt/wmt14"]
    found, text = exported(run, tmp_path / "stated", *(f"--{option}" for option in given))
    assert (found.data.license, found.data.language) == ("apache-2.0", ["de", "en"])
    assert found.data.datasets == ["wmt/wmt14"]
    assert {one.dataset_type for one in found.data.eval_results} == {"wmt/wmt14"}
    assert "not stated" not in text
    assert "- of the data: cc-by-4.0" in text


@pytest.mark.parametrize("option", ["license=Apache 2", "language=German", "datasets=a b"])
def test_what_the_hub_would_refuse_is_refused_first(option, run, tmp_path):
    with pytest.raises(UserError, match=f"^--{option}: the Hugging Face Hub has no such name"):
        exported(run, tmp_path / "refused", f"--{option}")
    assert not (tmp_path / "refused").exists()


def test_onnx_is_refused_with_a_remedy(run, tmp_path):
    argv = ["export", "--to=onnx", f"--workdir={run.path}", f"--output={tmp_path / 'onnx'}"]
    with pytest.raises(UserError, match=r"^--to=onnx: .*--to=huggingface.*optimum-cli export onnx"):
        dispatch(argv)


def test_options_of_another_format_are_refused(run, tmp_path):
    with pytest.raises(UserError, match=r"^--dtype=float16: is for --to=gguf; leave it out"):
        exported(run, tmp_path / "refused", "--dtype=float16")


def test_tasks_and_languages():
    """By objective and by what is read; languages only where data are named after them."""
    plain = Experiment()
    assert card.task(plain) == "translation"
    assert card.languages(plain) == ("en", "de")
    columns = dataclasses.replace(plain.data, columns=("source=a", "target=b"))
    assert card.languages(dataclasses.replace(plain, data=columns)) == ()
    words = dataclasses.replace(plain.data, source_language="text", target_language="codes")
    assert card.languages(dataclasses.replace(plain, data=words)) == ()
