"""Hidden states and attention are those that produce the logits."""

import dataclasses

import jax
import numpy as np
import pytest
from decoding.test_generate import CODEC, LINES, PREFIX, WINDOWS, made
from tiny import MODEL, VOCAB, make, random_params

from transformer_jax.base.errors import UserError
from transformer_jax.config import ObjectiveConfig
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.attention import cross_attention
from transformer_jax.decoding.text.inside import inside
from transformer_jax.decoding.text.score import score_pairs, score_texts
from transformer_jax.models.build import build

PAIR = TokenizerPair(CODEC, CODEC)


def check_attention(attention, causal):
    np.testing.assert_allclose(attention.sum(-1), 1, rtol=1e-5)
    assert np.allclose(np.triu(attention, 1), 0) == causal


def log_probs(states, params, ids):
    table = np.asarray(params["embedding"]["table"])
    found = jax.nn.log_softmax(states @ table.T)
    return np.asarray(found)[np.arange(len(ids)), ids]


def test_states_of_a_language_model_reproduce_its_scores():
    model, params = made(LINES)
    loaded = Loaded(model, params, PAIR, LINES)
    (stack,) = inside(loaded, "hound", None).values()
    assert stack.pieces == ["<s>", *"hound", "</s>"]
    layers, width = model.config.num_decoder_layers, model.config.d_model
    assert stack.hidden.shape == (layers + 1, 7, width)
    assert stack.attention.shape == (layers, model.config.num_heads, 7, 7)
    assert stack.cross_attention is None
    check_attention(stack.attention, causal=True)
    (scored,) = score_texts(loaded, ["hound"])
    found = log_probs(stack.output[:-1], params, scored.ids)
    np.testing.assert_allclose(found, scored.log_probs, atol=1e-5)


def test_a_prefix_language_model_reads_a_text_bidirectionally():
    (stack,) = inside(Loaded(*made(WINDOWS), PAIR, WINDOWS), "hound", None).values()
    check_attention(stack.attention, causal=False)


@pytest.mark.thorough
def test_states_of_a_translation_model_reproduce_its_scores():
    """Its cross-attention is also what a search sees."""
    model, params = make()
    loaded = Loaded(model, params, PAIR)
    stacks = inside(loaded, "dog", "hund")
    assert stacks.keys() == {"encoder", "decoder"}
    encoder, decoder = stacks.values()
    assert encoder.pieces == [*"dog", "</s>"]
    assert decoder.pieces == ["<s>", *"hund"]
    check_attention(encoder.attention, causal=False)
    check_attention(decoder.attention, causal=True)
    source, target = CODEC.encode(["dog", "hund"])
    searched = cross_attention(loaded, source, target)
    np.testing.assert_allclose(decoder.cross_attention, searched.weights, atol=1e-6)
    (scored,) = score_pairs(loaded, ["dog"], ["hund"])
    np.testing.assert_allclose(log_probs(decoder.output, params, target), scored.log_probs,
                               atol=1e-5)  # fmt: skip


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["span_corruption", "denoising", "text_continuation"])
def test_a_pretrained_encoder_decoder_reads_both_texts_unchanged(name):
    stacks = [
        inside(Loaded(*make(), PAIR, objective), "dog", "hund")
        for objective in (ObjectiveConfig(), ObjectiveConfig(name))
    ]
    np.testing.assert_array_equal(stacks[0]["decoder"].output, stacks[1]["decoder"].output)


@pytest.mark.parametrize(
    ("name", "predicts"),
    [("classify", "class"), ("regress", "value"), ("answer", "span"), ("masked_lm_nsp", "class")],
)
def test_an_encoder_reads_a_text_whatever_it_predicts(name, predicts):
    config = dataclasses.replace(MODEL, architecture="encoder", num_decoder_layers=6)
    model = build(config, VOCAB, 3, predicts=(predicts,))
    loaded = Loaded(model, random_params(model), PAIR, ObjectiveConfig(name))
    (stack,) = inside(loaded, "dog", None).values()
    assert stack.pieces[:4] == ["<s>", *"dog"]
    assert np.isfinite(stack.output).all()


def test_a_classifier_reads_nothing_beyond_its_window():
    config = dataclasses.replace(MODEL, architecture="encoder", num_decoder_layers=6)
    model = build(config, VOCAB, 3, predicts=("class",))
    loaded = Loaded(model, random_params(model), PAIR, ObjectiveConfig("classify", window=6))
    cut, whole = (inside(loaded, text, None)["encoder"] for text in ("dogs hunt", "dogs"))
    assert cut.pieces == whole.pieces == ["<s>", *"dogs", "</s>"]
    np.testing.assert_array_equal(cut.output, whole.output)


def test_texts_longer_than_max_positions_are_rejected():
    config = dataclasses.replace(
        MODEL, architecture="decoder", num_encoder_layers=6, positions="learned", max_positions=6
    )
    model = build(config, VOCAB, VOCAB)
    loaded = Loaded(model, random_params(model), PAIR, LINES)
    assert len(inside(loaded, "dogs", None)["decoder"].pieces) == 6
    with pytest.raises(UserError, match=r"7 pieces .*max_positions=6"):
        inside(loaded, "hound", None)


def test_wrong_texts_and_unsupported_objectives_are_rejected():
    model, params = made(LINES)
    with pytest.raises(UserError, match="reads one text; give no translation"):
        inside(Loaded(model, params, PAIR, LINES), "dog", "hund")
    with pytest.raises(UserError, match="give a text and its translation"):
        inside(Loaded(*made(PREFIX), PAIR, PREFIX), "dog", None)
    with pytest.raises(UserError, match="see values, not pieces"):
        inside(Loaded(model, params, PAIR, ObjectiveConfig("forecast")), "dog", None)
    with pytest.raises(UserError, match="reads a text in several orders"):
        inside(Loaded(model, params, PAIR, ObjectiveConfig("permutation_lm")), "dog", None)
