"""Exported StableHLO programs, read back and called, compute what the model computes."""

import dataclasses
import json

import jax
import jax.export
import numpy as np
import pytest
from safetensors.numpy import load_file
from tiny import MODEL, RECURRENT, random_params

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import load_config
from transformer_jax.config import (
    CheckpointConfig,
    DataConfig,
    EvaluationConfig,
    Experiment,
    ObjectiveConfig,
    SideConfig,
    SourceConfig,
    TokenizerConfig,
)
from transformer_jax.config.convert import parse
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.data.codecs.pair import CODECS, TokenizerPair
from transformer_jax.export import stablehlo
from transformer_jax.models.build import build_for

pytest.importorskip("flatbuffers", reason="jax.export serialises with it")
TEXTS = ["abc de", "fgh"]
TRANSLATION = Experiment(
    model=dataclasses.replace(MODEL, dropout_rate=0.0),
    src=SourceConfig("characters"), tgt=SideConfig("characters"), data=DataConfig(max_length=8),
)  # fmt: skip
WRITER = dataclasses.replace(
    TRANSLATION, src=SourceConfig(), objective=ObjectiveConfig("language_model", window=8),
    model=dataclasses.replace(
        MODEL, architecture="decoder", num_encoder_layers=6, positions="learned", max_positions=16,
    ),
    checkpoint=CheckpointConfig(best_by="loss"), evaluation=EvaluationConfig(bleu_sentences=0),
)  # fmt: skip


def written(experiment, directory):
    """Return the model, its parameters, a function that calls a program, and all programs."""
    codec = CODECS["characters"].train(TokenizerConfig(), TEXTS)
    model = build_for(experiment, codec.size, codec.size)
    params = random_params(model)
    stablehlo.export(
        experiment, params, TokenizerPair(codec, codec), directory, max_tokens=8, platforms=["cpu"]
    )
    programs = json.loads((directory / "README.json").read_text())["programs"]
    tensors = load_file(directory / "model.safetensors")

    def call(name, *inputs):
        file = directory / programs[name]["file"]
        return jax.export.deserialize(bytearray(file.read_bytes())).call(tensors, *inputs)

    return model, params, call, programs


def side(ids):
    places = np.broadcast_to(np.arange(ids.shape[1], dtype=np.int32), ids.shape)
    return Side(ids, places, (ids > 0).astype(np.int32))


def log_probs(model, params, batch):
    """Return the model's log-probabilities as a NumPy array."""
    outputs = jax.jit(lambda params, batch: model.outputs(params, batch, None)["tokens"].logits())
    logits = np.float64(outputs(params, batch))
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def close(one, other):
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_programs_match_a_translation_model(tmp_path):
    """Its sinusoids are a table of fixed size: lengths are fixed, the batch size is symbolic."""
    assert translates(TRANSLATION, tmp_path / "out")["source"] == "int32[batch, 8]"


@pytest.mark.e2e
def test_programs_match_a_recurrent_translation_model(tmp_path):
    gnmt = dataclasses.replace(
        TRANSLATION, model=dataclasses.replace(RECURRENT["gnmt"], dropout_rate=0.0)
    )
    assert translates(gnmt, tmp_path / "out")["source"] == "int32[batch, source]"


def translates(experiment, directory):
    """Check the programs of a translation model, and return the inputs of `forward`."""
    model, params, call, programs = written(experiment, directory)
    source = np.array([[4, 5, 6, 2, 0, 0, 0, 0], [7, 8, 2, 0, 0, 0, 0, 0]], np.int32)
    target = np.array([[1, 4, 9, 5, 7, 0, 0, 0], [1, 6, 6, 0, 0, 0, 0, 0]], np.int32)
    expected = log_probs(model, params, Batch(side(source), side(target), {}))
    found = call("forward", source, target)
    close(found[target > 0], expected[target > 0])
    steps(call, call("prefill", source), target[:, :3], expected)
    return programs["forward"]["inputs"]


def steps(call, state, pieces, expected):
    """Feed pieces one by one, and compare the prediction after each."""
    for place in range(pieces.shape[1]):
        found, state = call("step", state, pieces[:, place], np.full(len(pieces), place, np.int32))
        close(found, expected[:, place])


def test_programs_match_a_language_model(tmp_path):
    """Lengths are symbolic; a prompt may be shorter than the room for it."""
    writes(WRITER, tmp_path / "out")


@pytest.mark.thorough
def test_experts_compute_any_number_of_positions(tmp_path):
    """In blocks of a fixed size, as the number of positions is symbolic."""
    experts = dataclasses.replace(
        WRITER.model, feed_forward_pattern=("experts",), num_experts=3, activation="swiglu"
    )
    writes(dataclasses.replace(WRITER, model=experts), tmp_path / "out")


def writes(experiment, directory):
    """Check the programs of a language model."""
    model, params, call, programs = written(experiment, directory)
    assert programs["forward"]["inputs"]["text"] == "int32[batch, text]"
    assert json.loads((directory / "README.json").read_text())["before_prompt"] == [1]
    text = np.array([[1, 4, 9, 5, 7], [1, 6, 6, 4, 5]], np.int32)
    expected = log_probs(model, params, Batch(None, side(text), {}))
    close(call("forward", text), expected)
    prompt = np.pad(text[:, :2], ((0, 0), (0, 6)))
    steps(call, call("prefill", prompt), text[:, 2:], expected[:, 2:])


def test_models_that_read_more_than_pieces_are_rejected():
    prefix = dataclasses.replace(
        TRANSLATION, model=WRITER.model, objective=ObjectiveConfig("prefix_lm")
    )
    with pytest.raises(UserError, match=r"^config.objective.name='prefix_lm': such a model reads"):
        stablehlo.refuse(prefix)
    pictures = parse(load_config("configs/pictures.py"))
    with pytest.raises(UserError, match=r"^config.model.stem='linear': such a model reads vectors"):
        stablehlo.refuse(pictures)


BOTH_WAYS = dataclasses.replace(
    MODEL, architecture="encoder", num_decoder_layers=6, token_types=2
)  # fmt: skip
FORWARDS = dataclasses.replace(WRITER.model, pooling="last")


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("name", "predicts", "read_by"),
    [("masked_lm", "tokens", BOTH_WAYS), ("classify", "class", BOTH_WAYS),
     ("classify", "class", FORWARDS)],
)  # fmt: skip
def test_the_program_matches_a_masked_lm_or_classifier(name, predicts, read_by, tmp_path):
    """It predicts each piece, or the class of the text."""
    classifies = name == "classify"
    reader = dataclasses.replace(
        WRITER, objective=ObjectiveConfig(name, window=8, whole_words=False), model=read_by,
        src=SourceConfig("characters") if classifies else SourceConfig(),
        tgt=SideConfig("classes" if classifies else "characters"),
        tokenizer=TokenizerConfig(joint=not classifies),
        checkpoint=CheckpointConfig(best_by="accuracy" if classifies else "loss"),
    )  # fmt: skip
    model, params, call, programs = written(reader, tmp_path / "out")
    assert programs.keys() == {"forward"}
    text = np.array([[1, 4, 9, 5, 7, 2, 0, 0], [1, 6, 6, 2, 0, 0, 0, 0]], np.int32)
    one = np.ones((2, 1), np.int32)
    batch = Batch(side(text), Side(one, one - 1, one), {})
    logits = np.float64(model.outputs(params, jax.device_put(batch), None)[predicts].logits())
    expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    found = call("forward", text)
    if classifies:
        close(found, expected[:, 0])
    else:
        close(found[text > 0], expected[text > 0])
