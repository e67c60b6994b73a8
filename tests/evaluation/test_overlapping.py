"""Overlapping windows: what each piece is predicted from, and that each counts once."""

import dataclasses
import itertools
import string

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import VARIANTS, make

from transformer_jax.config import ObjectiveConfig, TokenizerConfig
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.data.codecs import characters
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.score import validation_log_probs
from transformer_jax.evaluation.sliding import sliding_log_probs

CODEC = characters.train(TokenizerConfig(), [string.ascii_lowercase])
MODEL = dataclasses.replace(VARIANTS["decoder"], positions="learned", max_positions=24)
WINDOW = 8
TEXTS = ["jackdaws", "love", "", "mybigsphinxofquartz", "love"]


@pytest.fixture(scope="module")
def loaded():
    objective = ObjectiveConfig("language_model", window=WINDOW)
    return Loaded(*make(MODEL, "causal"), TokenizerPair(CODEC, CODEC), objective)


def documents(loaded, document):
    """The pieces of each text as the model reads it, framed here; joined, all are one text."""
    each = CODEC.encode(TEXTS, bos=True)
    return [list(itertools.chain(*each))] if document == "joined" else each


@pytest.mark.parametrize("document", ["line", "joined"])
@pytest.mark.parametrize("stride", [1, 3, WINDOW])
def test_each_piece_is_predicted_from_as_many_as_the_stride_leaves(loaded, document, stride):
    """Every piece once, in order, by a model that is given the end of what precedes it."""
    objective = dataclasses.replace(loaded.objective, document=document)
    lined = dataclasses.replace(loaded, objective=objective)
    expected = []
    for ids in documents(loaded, document):
        labels = len(ids) - 1
        for label in range(1, labels + 1):  # ids[label] is predicted
            # The first window that has it ends here: at WINDOW, then every `stride`, then the end.
            beyond = max(0, -(-(label - WINDOW) // stride))
            end = min(WINDOW + beyond * stride, labels)
            window = jnp.asarray(ids[max(0, end - WINDOW) : label])[None]
            ones = jnp.ones_like(window)
            side = Side(window, jnp.cumsum(ones, 1) - 1, ones, jnp.cumsum(ones, 1))
            outputs = lined.model.outputs(lined.params, Batch(None, side, {}), None)
            said = jax.nn.log_softmax(outputs["tokens"].logits()[0, -1])
            expected.append(said[ids[label]])
    got = sliding_log_probs(lined, TEXTS, stride)
    np.testing.assert_allclose(np.concatenate(got), expected, atol=2e-5)
    trained = validation_log_probs(lined, TEXTS)
    assert [len(x) for x in got] == [len(x) for x in trained]  # rows are windows of training


def test_the_first_window_of_a_text_is_that_of_training(loaded):
    got, trained = sliding_log_probs(loaded, TEXTS, 2), validation_log_probs(loaded, TEXTS)
    for window in (0, 2, 3, 4):  # jackdaws, love, nothing, mybigsph
        np.testing.assert_allclose(got[window], trained[window], atol=1e-6)
    assert np.abs(got[5] - trained[5]).max() > 1e-3  # inxofqua, whose i has context now
