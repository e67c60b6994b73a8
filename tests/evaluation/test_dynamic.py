"""Dynamic evaluation: a loop by hand, and what learning from a text must and must not change."""

import dataclasses
import functools
import string

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import VARIANTS, make

from transformer_jax.base.errors import UserError
from transformer_jax.config import ObjectiveConfig, TokenizerConfig
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.data.codecs import characters
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.score import validation_log_probs
from transformer_jax.evaluation.dynamic import dynamic_log_probs

CODEC = characters.train(TokenizerConfig(), [string.ascii_lowercase])
MODEL = dataclasses.replace(VARIANTS["decoder"], positions="learned", max_positions=24)
LINES = ObjectiveConfig("language_model", window=8)
TEXTS = ["jackdaws", "love", "mybigsphinxofquartz", "love"]  # of 2, 1, 3 and 1 windows
RATE, DECAY = 0.05, 0.25


@pytest.fixture(scope="module")
def loaded():
    return Loaded(*make(MODEL, "causal"), TokenizerPair(CODEC, CODEC), LINES)


@pytest.fixture(scope="module")
def learned(loaded):
    return dynamic_log_probs(loaded, TEXTS, RATE, DECAY)


def test_each_window_moves_the_parameters_as_by_hand(loaded, learned):
    """Windows alone and without padding, of pieces framed here; p - rate g + decay (began - p)."""
    began = params = loaded.params
    expected = []

    @functools.partial(jax.grad, has_aux=True)
    def loss(params, window):
        ones = jnp.ones((1, len(window) - 1), int)
        side = Side(window[None, :-1], jnp.cumsum(ones, 1) - 1, ones, jnp.cumsum(ones, 1))
        logits = loaded.model.outputs(params, Batch(None, side, {}), None)["tokens"].logits()[0]
        of = logits[jnp.arange(len(window) - 1), window[1:]]
        said = of - jax.scipy.special.logsumexp(logits, axis=-1)
        return -said.mean(), said

    gradient_of = jax.jit(loss)
    for text in TEXTS:
        (ids,) = CODEC.encode([text], bos=True)
        for begin in range(0, len(ids) - 1, LINES.window):
            gradient, said = gradient_of(params, jnp.asarray(ids[begin : begin + LINES.window + 1]))
            expected.append(said)
            params = jax.tree.map(
                lambda p, g, b: (1 - DECAY) * p + DECAY * b - RATE * g, params, gradient, began
            )
    for got, by_hand in zip(learned, expected, strict=True):
        np.testing.assert_allclose(got, by_hand, atol=2e-5)


def test_a_text_read_twice_is_likelier_the_second_time(loaded, learned):
    """What comes first is as without learning, and the parameters that were given stay."""
    static = validation_log_probs(loaded, TEXTS)
    np.testing.assert_allclose(learned[0], static[0], atol=1e-5)
    assert learned[-1].sum() > static[-1].sum() + 0.1
    np.testing.assert_array_equal(static[3], validation_log_probs(loaded, TEXTS)[3])
    frozen = dynamic_log_probs(loaded, TEXTS, 1e-12, 0.0)
    for got, same in zip(frozen, static, strict=True):
        np.testing.assert_allclose(got, same, atol=1e-5)


def test_a_rate_at_which_the_model_diverges_is_refused(loaded):
    """A score that is not a number could neither be compared nor reported."""
    with pytest.raises(UserError, match=r"dynamic_rate=1e\+30: .* window 2 of 7; lower it"):
        dynamic_log_probs(loaded, TEXTS, 1e30, 0.0)
