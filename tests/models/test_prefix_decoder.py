"""Text after vectors: laws of the model, and decoding."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import MODEL, Stepping, random_params

from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.build import build

CONFIG = dataclasses.replace(
    MODEL, architecture="prefix_decoder", stem="linear", residual="pre_norm", positions="learned",
    relative_positions="rope", dropout_rate=0.0, num_kv_heads=1, num_decoder_layers=2,
)  # fmt: skip
CHANNELS, VOCAB = 5, 11
RNG = np.random.default_rng(0)


def side_of(values, count) -> Side:
    """Return rows; row i has count[i] positions."""
    length = values.shape[1]
    here = np.arange(length) < np.array(count)[:, None]
    pos = np.where(here, np.arange(length), 0).astype(np.int32)
    return Side(values, pos, here.astype(np.int32))


VECTORS = RNG.normal(size=(2, 6, CHANNELS)).astype(np.float32)
WORDS = RNG.integers(4, VOCAB, (2, 4)).astype(np.int32)
SRC, TGT = side_of(VECTORS, [6, 4]), side_of(WORDS, [3, 4])


@pytest.fixture(scope="module")
def model():
    found = build(CONFIG, CHANNELS, VOCAB, single=True)
    return found, random_params(found)


@pytest.fixture(scope="module")
def logits(model):
    """Return a function from a batch to the logits of teacher forcing, [2 4 11]."""
    network, params = model
    call = jax.jit(lambda batch: network.outputs(params, batch, None)["tokens"].logits())
    return lambda src, tgt: np.asarray(call(Batch(src, tgt, {})))


def test_text_attends_to_all_vectors_and_to_earlier_text(logits):
    found = logits(SRC, TGT)
    later = WORDS.copy()
    later[:, 2] = (later[:, 2] - 3) % 7 + 4
    changed = logits(SRC, TGT._replace(inputs=later))
    assert np.array_equal(changed[:, :2], found[:, :2])
    assert not np.allclose(changed[:, 2], found[:, 2])
    for place in (0, 3):
        vectors = VECTORS.copy()
        vectors[:, place] += 1
        assert np.abs(logits(SRC._replace(inputs=vectors), TGT) - found).min(-1).max() > 1e-4


def test_padding_changes_nothing(logits):
    """Next to longer rows, and whatever the padding holds."""
    found = logits(SRC, TGT)
    vectors, words = VECTORS.copy(), WORDS.copy()
    vectors[1, 4:], words[0, 3] = 9.0, 5
    changed = logits(SRC._replace(inputs=vectors), TGT._replace(inputs=words))
    assert np.array_equal(changed[1], found[1])
    assert np.array_equal(changed[0, :3], found[0, :3])
    alone = logits(
        Side(*(None if x is None else x[[1, 1], :4] for x in SRC)),
        Side(*(None if x is None else x[[1, 1]] for x in TGT)),
    )
    np.testing.assert_allclose(alone[0], found[1], rtol=2e-4, atol=2e-5)


def test_pictures_are_encoded_independently():
    """The encoding of one depends neither on another nor on its place among them."""
    network = build(dataclasses.replace(CONFIG, grid=(1, 3)), CHANNELS, VOCAB, single=True)
    params = random_params(network)
    turned = np.roll(VECTORS, 3, axis=1)

    @jax.jit
    def encoded(x):
        side = SRC._replace(inputs=x)
        return network.apply({"params": params}, side, False, method="encode").hidden

    one, other = (np.asarray(encoded(x)) for x in (VECTORS, turned))
    np.testing.assert_allclose(one[0], np.roll(other, 3, axis=1)[0], rtol=2e-5, atol=1e-6)


def test_stepwise_decoding_equals_teacher_forcing(model, logits):
    """For two identical hypotheses."""
    network, params = model
    stepper, expected = Stepping(network, params), logits(SRC, TGT)
    src = Side(*(None if x is None else jnp.asarray(x) for x in SRC))
    state = stepper.start(network.context(src), width=2, length=4)
    for place in range(4):
        tokens = jnp.asarray(WORDS[:, None, place : place + 1].repeat(2, 1))
        position, active = jnp.full((2, 1), place), jnp.ones(2, bool)
        found, attention, state = stepper.step(state, tokens, position, active)
        assert attention is None
        here = np.array(TGT.seg[:, place]) > 0
        for w in range(2):
            actual = np.asarray(found)[here, w, 0]
            np.testing.assert_allclose(actual, expected[here, place], rtol=2e-4, atol=2e-5)
