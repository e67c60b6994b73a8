"""The Python API: its public names, and models loaded from a work directory."""

import dataclasses
import itertools
import subprocess
import sys

import jax
import numpy as np
import pytest
from tiny import random_params

import transformer_jax
from transformer_jax.api import save_average
from transformer_jax.api.stored import read_draft, write_alike
from transformer_jax.base.errors import UserError
from transformer_jax.config import (
    CheckpointConfig,
    EvaluationConfig,
    Experiment,
    ModelConfig,
    ObjectiveConfig,
    TokenizerConfig,
)
from transformer_jax.data.codecs.pair import train_pair
from transformer_jax.decoding.text.score import _log_probs
from transformer_jax.decoding.text.teacher_forced import each_pair
from transformer_jax.models.build import build
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.runs.workdir import WorkDir

SRC = [f"{a}{b}" for a in ("ein", "zwei", "drei") for b in ("und", "zig", "hundert", "tausend")]
TGT = [f"{a} {b}" for a in ("one", "two", "three") for b in ("and", "ty", "hundred", "thousand")]
EXPERIMENT = Experiment(
    model=ModelConfig(
        d_model=16, d_ff=16, num_heads=2, num_encoder_layers=1, num_decoder_layers=1,
        tied_embeddings="decoder", biases=(),
    ),
    tokenizer=TokenizerConfig(vocab_size=25, joint=False),
)  # fmt: skip
MODEL_OF_LINES = Experiment(
    model=ModelConfig(architecture="decoder"), objective=ObjectiveConfig("language_model"),
    evaluation=EvaluationConfig(bleu_sentences=0), checkpoint=CheckpointConfig(best_by="loss"),
)  # fmt: skip
GREEDY = transformer_jax.DecodingConfig(beam_size=1, max_extra_length=4)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> tuple[WorkDir, list]:
    """A work directory with two untrained models, and their parameters."""
    workdir = WorkDir(tmp_path_factory.mktemp("runs") / "untrained")
    tokenizers = train_pair(EXPERIMENT.tokenizer, SRC, TGT)
    model = build(EXPERIMENT.model, tokenizers.src.size, tokenizers.tgt.size)
    params = [random_params(model, seed) for seed in (0, 1)]
    with workdir.claim(EXPERIMENT):
        tokenizers.save(workdir.path)
        checkpoints = Checkpoints(workdir.checkpoints, EXPERIMENT.checkpoint)
        checkpoints.save(1, params[0], {}, {"run": "a"}, {"bleu": 2.0, "loss": 1.0})
        checkpoints.save(2, params[1], {}, {"run": "a"}, {"bleu": 1.0, "loss": 2.0})
        checkpoints.close()
    return workdir, params


def same(one, other) -> None:
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_public_names_are_exported():
    assert all(getattr(transformer_jax, name) for name in transformer_jax.__all__)
    assert {"load", "load_ensemble", "save_average"} <= {*transformer_jax.__all__}
    assert {*transformer_jax.__all__} <= {*dir(transformer_jax)}
    with pytest.raises(AttributeError, match="has no attribute 'train'"):
        transformer_jax.train  # noqa: B018


def test_reading_a_config_does_not_import_jax():
    program = (
        "import sys, transformer_jax; transformer_jax.Experiment(); print('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n"


def test_equal_settings_share_a_translator(run):
    """It translates lines up to the maximum length of training in one piece."""
    model = transformer_jax.load(run[0].path)
    first, again = model.translator(GREEDY), model.translator(dataclasses.replace(GREEDY))
    assert first is again
    assert first is not model.translator(dataclasses.replace(GREEDY, max_extra_length=5))
    assert first.longest == EXPERIMENT.data.max_length


def test_load_reads_the_named_checkpoint(run):
    workdir, params = run
    for name, steps, expected in (
        (None, [1], params[0]),  # the experiment's default: the best
        ("best", [1], params[0]),
        ("last", [2], params[1]),
        ("2", [2], params[1]),
        (2, [2], params[1]),
    ):
        loaded = transformer_jax.load(str(workdir.path), name)
        assert isinstance(loaded, transformer_jax.TrainedModel)
        assert loaded.steps == steps
        assert loaded.experiment == EXPERIMENT
        same(loaded.params, expected)
    mean = transformer_jax.load(workdir.path, "average:2")
    assert mean.steps == [1, 2]
    same(mean.params, jax.tree.map(lambda x, y: np.float32((np.float64(x) + y) / 2), *params))


def test_load_defaults_to_the_checkpoint_of_the_experiment(run, tmp_path):
    workdir, params = run
    evaluation = dataclasses.replace(EXPERIMENT.evaluation, checkpoint="2")
    workdir.write_config(dataclasses.replace(EXPERIMENT, evaluation=evaluation))
    same(transformer_jax.load(workdir.path).params, params[1])
    workdir.write_config(EXPERIMENT)
    same(transformer_jax.load(workdir.path).params, params[0])


def test_translate_returns_one_line_per_input_line(run):
    model = transformer_jax.load(run[0].path)
    found = model.translate(["zweihundert", "", "einund", "zweihundert"], GREEDY)
    assert len(found) == 4
    assert found[1] == ""
    assert found[0] == found[3] != found[2]
    turned = model.translate(("einund", "zweihundert", "zweihundert", ""), GREEDY)
    assert turned == [found[2], found[0], found[0], ""]
    assert model.translate([], GREEDY) == model.translate(()) == []


def test_translate_returns_a_string_for_a_string(run):
    model = transformer_jax.load(run[0].path)
    (expected,) = model.translate(["zweihundert"], GREEDY)
    assert model.translate("zweihundert", GREEDY) == expected != ""
    (found,) = model.translate("zweihundert", GREEDY, n_best=1)
    assert found.text == expected


def test_keyword_arguments_override_single_settings(run):
    model = transformer_jax.load(run[0].path)
    lines = ["zweihundert", "einund", "dreizig"]  # as many as in other tests, to share programs
    expected = model.translate(lines, GREEDY)
    assert model.translate(lines, beam_size=1, max_extra_length=4) == expected
    before = len(model._translators)
    assert model.translate(lines, GREEDY, max_extra_length=4) == expected
    assert len(model._translators) == before
    for fields, message in (
        ({"beam": 1}, r"^config\.decoding\.beam: unknown field \(did you mean 'beam_size'\?\)$"),
        ({"beam_size": "4"}, r"^config\.decoding\.beam_size='4': must be a whole number$"),
        ({"alpha": -1}, r"^config\.decoding\.alpha=-1.0: must be at least 0 and at most 7$"),
        ({"n_best": 5, "beam_size": 1}, "n_best=5: must lie between 1 and"),
    ):
        with pytest.raises(UserError, match=message):
            model.translate(lines, **fields)


@pytest.mark.thorough
def test_a_draft_does_not_change_the_translation(run):
    """The draft is another checkpoint or n-grams; unsuitable ones are rejected when read."""
    path, lines = run[0].path, ["zweihundert", "einund", "dreizig"]
    model = transformer_jax.load(path)
    expected = model.translate(lines, GREEDY)
    drafted = dataclasses.replace(GREEDY, draft=f"{path}@2", draft_length=2)
    assert model.translate(lines, drafted) == expected
    figures = model.translator(drafted).acceptance
    assert 0 < figures.accepted < figures.judged <= 2 * figures.passes
    assert figures.as_dict()["tokens_per_pass"] > 1
    assert model.translate(lines, GREEDY, draft="ngram", draft_length=2) == expected
    assert model.translator(GREEDY).acceptance.passes == 0
    other = train_pair(EXPERIMENT.tokenizer, TGT, SRC)
    with pytest.raises(UserError, match=r"decoding\.draft='.*': its tokenizer differs from that"):
        read_draft(str(path), EXPERIMENT, other)
    with pytest.raises(UserError, match="name='translate', and cannot draft for a model of"):
        read_draft(str(path), MODEL_OF_LINES, model.tokenizers)
    with pytest.raises(UserError, match=r"^config\.decoding\.draft='.*nothing': .*nothing"):
        model.translate(lines, GREEDY, draft=str(path / "nothing"))


def test_hypothesis_scores_agree_with_the_model(run):
    """A hypothesis has the log-probability that the model gives its pieces; its score is that
    divided by the length penalty."""
    model = transformer_jax.load(run[0].path)
    (found, nothing) = model.translate(["zwei", ""], GREEDY, beam_size=3, n_best=2, alpha=1.0)
    assert [(item.text, item.score, item.log_prob) for item in nothing] == [("", 0.0, 0.0)]
    assert len(found) == 2
    assert found[0].score > found[1].score
    for item in found:
        assert item.score == pytest.approx(item.log_prob / ((5 + len(item.ids)) / 6))
        pair = model.tokenizers.src.encode(["zwei"]), [item.ids]
        ((_, log_probs),) = each_pair(_log_probs, model.loaded, *pair, 64)
        assert item.log_prob == pytest.approx(log_probs[: len(item.ids)].sum(), rel=1e-5)


def test_scores_of_given_translations(run):
    model = transformer_jax.load(run[0].path)
    one = model.score("zwei", "two")
    assert one.pieces == model.tokenizers.tgt.pieces(one.ids)
    assert len(one.pieces) == len(one.log_probs)
    assert one.total == sum(one.log_probs) < 0
    several = model.score(["drei", "zwei"], ["three", "two"])
    assert several[1].log_probs == pytest.approx(one.log_probs, rel=1e-5)
    assert model.score([], []) == []
    for pair in (("zwei", ["two"]), (["zwei"], "two"), (["zwei"], [])):
        with pytest.raises(UserError, match="a translation for each line"):
            model.score(*pair)


def test_repr_shows_the_source_steps_and_size(run):
    workdir, params = run
    size = f"{sum(leaf.size for leaf in jax.tree.leaves(params[0])):,} parameters"
    mean = transformer_jax.load(workdir.path, "average:2")
    assert repr(transformer_jax.load(workdir.path)).endswith(
        f"from {workdir.path}, step 1, {size}>"
    )
    assert f"{workdir.path}, mean of steps 1, 2, {size}" in repr(mean)
    both = repr(transformer_jax.load_ensemble([workdir.path], "1,2"))
    assert both.startswith("<TrainedEnsemble of [<TrainedModel ")
    assert "step 1," in both
    assert "step 2," in both


def test_a_checkpoint_named_twice_causes_a_warning(run, caplog):
    """Under any names; best and last of a finished run may be the same checkpoint."""
    path = run[0].path
    for paths, name, count in (([path], "best,1", 2), ([path, f"{path}/"], "last", 2)):
        caplog.clear()
        found = transformer_jax.load_ensemble(paths, name)
        assert len(found.members) == count
        assert f"checkpoint {found.steps[0]} is a member of the ensemble 2 times" in caplog.text
    caplog.clear()
    assert transformer_jax.load_ensemble(path, "1,2").steps == [1, 2]
    assert transformer_jax.load_ensemble(path, 2).steps == [2]
    assert caplog.text == ""
    for refused in ("score", "attention"):
        with pytest.raises(UserError, match="a single model: load one checkpoint"):
            getattr(found, refused)("zwei", "two")


def test_the_models_of_an_ensemble_write_one_text(run, monkeypatch):
    """As a model and its draft do."""
    members = [transformer_jax.load(run[0].path) for _ in range(2)]
    members[1].experiment = MODEL_OF_LINES
    given = iter(members)
    monkeypatch.setattr(sys.modules["transformer_jax.api.load"], "load", lambda *_: next(given))
    with pytest.raises(UserError, match=r"^--workdir=b: .*'language_model', and a with 'trans"):
        transformer_jax.load_ensemble(["a", "b"])
    pairs = itertools.combinations(map(ObjectiveConfig, ("translate", "prefix_lm", "ctc")), 2)
    assert [write_alike(*pair) for pair in pairs] == [True, False, False]


def test_decoding_settings_default_to_those_of_the_experiment(run):
    model = transformer_jax.load(run[0].path)
    model.experiment = dataclasses.replace(EXPERIMENT, decoding=GREEDY)
    lines = ["dreizig", "einund", "zweihundert"]
    assert model.translate(lines) == model.translate(lines, GREEDY)


def test_save_average_writes_only_new_work_directories(run, tmp_path):
    workdir, _ = run
    output = WorkDir(tmp_path / "mean")
    assert save_average(workdir.path, 2, output.path) == [1, 2]
    same(
        transformer_jax.load(output.path).params,
        transformer_jax.load(workdir.path, "average:2").params,
    )
    assert output.experiment().evaluation.checkpoint == "last"
    # It records which run it belongs to, as the averaged checkpoints do.
    written = Checkpoints(output.checkpoints, EXPERIMENT.checkpoint).record(2)["host"]
    digest = transformer_jax.load(workdir.path).tokenizers.digest
    assert written == {"step": 2, "average_of": [1, 2], "tokenizer": digest, "run": "a"}
    for other in (output, workdir):
        with pytest.raises(UserError, match=r"holds a run already; name a new directory$"):
            save_average(workdir.path, 2, other.path)


def test_a_missing_work_directory_is_rejected_and_not_created(tmp_path):
    with pytest.raises(UserError, match=r"no config\.json here; train first, or check the path$"):
        transformer_jax.load(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


def test_a_translation_model_rejects_prompts(run):
    model = transformer_jax.load(run[0].path)
    with pytest.raises(UserError, match=r"objective\.name='translate': .* use translate"):
        model.generate("zwei")
    with pytest.raises(UserError, match="a translation for each line"):
        model.score("zwei")
