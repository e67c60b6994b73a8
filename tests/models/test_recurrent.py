"""Recurrent translation models: stepwise decoding equals one pass, and padding changes nothing."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import RECURRENT, VOCAB, Stepping, alone, logits_of, make, random_store

from transformer_jax.base.vocabulary import UNK
from transformer_jax.config import TrainingConfig
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.model import Keys
from transformer_jax.training.step import batch_sums

STORE = random_store([(5, 6), (3, 6)])
TIGHT, LOOSE = alone(STORE, 2, 5, 6), alone(STORE, 3, 9, 8)
ONE = [pytest.param(name, marks=() if name == "luong" else pytest.mark.e2e) for name in RECURRENT]


@pytest.mark.parametrize("name", ONE)
def test_stepwise_decoding_equals_one_pass(name):
    """One or several tokens at a time, with reordering, rewinding and growing in between."""
    model, params = make(RECURRENT[name])
    stepper, chance = Stepping(model, params), np.random.default_rng(0)
    batch = Batch(jax.device_put(TIGHT.src), None, {})
    state = stepper.start(batch, width=2, length=6)
    texts = np.zeros((2, 2, 0), np.int32)

    def feed(state, texts, count):
        tokens = chance.integers(UNK, VOCAB, (2, 2, count)).astype(np.int32)
        positions = jnp.asarray(np.broadcast_to(texts.shape[2] + np.arange(count), (2, count)))
        given = jnp.asarray(tokens), positions.astype(jnp.int32), jnp.ones(2, bool)
        logits, _, state = stepper.step(state, *given)
        texts = np.concatenate([texts, tokens], axis=2)
        each = texts.reshape(4, -1)  # both of the first row, then both of the second
        places = np.broadcast_to(np.arange(each.shape[1], dtype=np.int32), each.shape)
        src = jax.tree.map(lambda x: np.repeat(x, 2, axis=0), TIGHT.src)
        batch = Batch(src, Side(each, places, np.ones_like(each)), {})
        expected = logits_of(model, params, batch)[:, -count:]
        np.testing.assert_allclose(logits.reshape(expected.shape), expected, atol=1e-5)
        return state, texts

    state, texts = feed(state, texts, 1)
    state, texts = feed(state, texts, 2)
    parents = np.array([[1, 0], [1, 1]])
    state = stepper.reorder(state, jnp.asarray(parents))
    texts = np.take_along_axis(texts, parents[:, :, None], axis=1)
    state, texts = stepper.rewind(state, jnp.array([2, 2])), texts[:, :, :2]
    state, texts = feed(stepper.grow(state, src_length=8, length=9), texts, 2)


@pytest.mark.parametrize("name", ONE)
def test_padding_changes_nothing(name):
    model, params = make(RECURRENT[name])
    tight, loose = (np.asarray(logits_of(model, params, batch)) for batch in (TIGHT, LOOSE))
    np.testing.assert_allclose(loose[:2, :6], tight, atol=1e-5)


@functools.partial(jax.jit, static_argnums=0)
def loss_of(model, params, batch, keys):
    return batch_sums(model, TrainingConfig(), params, batch, keys).loss


def test_dropout_depends_on_the_rate_and_the_key():
    """At rate 0, training equals evaluation; above it, every key gives another loss."""
    losses = []
    batch = jax.device_put(TIGHT)
    for rate, key in ((0.0, 0), (0.5, 0), (0.5, 1), (0.5, None)):
        model, params = make(dataclasses.replace(RECURRENT["luong"], dropout_rate=rate))
        keys = None if key is None else Keys(jax.random.key(key), jax.random.key(key))
        losses.append(float(loss_of(model, params, batch, keys)))
    assert losses[0] == pytest.approx(losses[3])
    assert len({round(loss, 3) for loss in losses[:3]}) == 3
