"""Reversible layers, undone in the backward pass: ordinary gradients in the memory of one layer."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import MODEL, VOCAB, alone, random_params, random_store

from transformer_jax.config import TrainingConfig
from transformer_jax.models import reversible
from transformer_jax.models.build import build
from transformer_jax.models.model import Keys
from transformer_jax.training.step import batch_sums

CONFIG = dataclasses.replace(
    MODEL, residual="reversible", num_encoder_layers=1, num_decoder_layers=2, dropout_rate=0.3,
    attention_dropout_rate=0.2, activation_dropout_rate=0.1, relative_positions="toeplitz",
    relative_clip=2, biases=(), norm="rms_norm",
)  # fmt: skip
BATCH = jax.device_put(alone(random_store([(5, 7), (6, 8)]), 2, 6, 8))


def in_turn(forwards, backwards, x, params):
    for step, own in zip(forwards, params, strict=True):
        x = step(x, own)
    return x


@pytest.mark.thorough
def test_gradients_equal_those_of_ordinary_layers(monkeypatch):
    """With all kinds of dropout; also for what layers share: the source, a table of distances."""
    with jax.enable_x64(True):
        model = build(CONFIG, VOCAB, VOCAB, dtype="float64")
        params = jax.tree.map(lambda x: x.astype(jnp.float64), random_params(model))
        keys = Keys(jax.random.key(0), jax.random.key(1))

        def gradient():
            def loss(params):
                return batch_sums(model, TrainingConfig(), params, BATCH, keys).loss

            return jax.jit(jax.grad(loss))(params)

        ours = gradient()
        monkeypatch.setattr(reversible, "run", in_turn)
        expected = gradient()
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), ours, expected
        )
        assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(ours))


@pytest.mark.thorough
def test_memory_does_not_grow_with_depth():
    """Apart from the parameters; with ordinary layers it does."""

    def kept(residual: str, layers: int) -> int:
        config = dataclasses.replace(
            CONFIG, residual=residual, num_decoder_layers=layers, relative_positions="none",
            relative_clip=16,
        )  # fmt: skip
        model = build(config, VOCAB, VOCAB)
        params, keys = random_params(model), Keys(jax.random.key(0), jax.random.key(1))

        def back(params):
            def loss(p):
                return batch_sums(model, TrainingConfig(), p, BATCH, keys).loss

            return jax.vjp(loss, params)[1]

        held = jax.tree.leaves(jax.eval_shape(back, params))
        sizes = [leaf.size for leaf in jax.tree.leaves(params)]
        return sum(leaf.size for leaf in held) - sum(sizes)

    assert kept("pre_norm", 5) - kept("pre_norm", 2) > 10_000
    assert kept("reversible", 5) - kept("reversible", 2) < 1000
