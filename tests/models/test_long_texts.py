"""Texts of any length pass through windows and states in constant memory."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import VOCAB, Stepping, random_params

from transformer_jax.base.vocabulary import UNK
from transformer_jax.config import ModelConfig
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.build import build

MODEL = ModelConfig(
    architecture="decoder", d_model=8, d_ff=8, num_heads=2, num_encoder_layers=6,
    num_decoder_layers=2, decoder_pattern=("local", "linear"), window=16, positions="none",
    residual="pre_norm", dropout_rate=0.0,
)  # fmt: skip
KEPT = {
    "windows and sums": MODEL,
    "dilated windows": dataclasses.replace(MODEL, decoder_pattern=("dilated",)),
    "states": dataclasses.replace(MODEL, decoder_pattern=("ssru", "gru"), window=None),
    "keys": dataclasses.replace(MODEL, decoder_pattern=("local", "full")),
}


def side(ids) -> Side:
    """Return one text per row."""
    ids = jnp.asarray(ids, jnp.int32)
    pos = jnp.broadcast_to(jnp.arange(ids.shape[1]), ids.shape)
    return Side(ids, pos, jnp.ones_like(ids), pos)


@pytest.mark.parametrize("name", KEPT)
def test_the_decoding_state_has_constant_size(name):
    """For all prompts and all outputs, unless a layer attends to all of them."""
    model = build(KEPT[name], VOCAB, VOCAB)
    params = random_params(model)

    def size(prompt: int, length: int) -> int:
        def start(ids):
            state = model.stepper(params).start(Batch(None, side(ids), {}), 4, length)
            return jax.tree.leaves(state)

        state = jax.eval_shape(start, jax.ShapeDtypeStruct((2, prompt), jnp.int32))
        return sum(math.prod(x.shape) * x.dtype.itemsize for x in state)

    short, long = size(100, 50), size(2**16, 1000)
    assert long > 100 * short if name == "keys" else long == short


@pytest.mark.thorough
def test_reading_in_chunks_equals_one_pass():
    """65,536 tokens, 1,024 at a time: the same logits, and a state of constant shape."""
    model = build(MODEL, VOCAB, VOCAB)
    params, size, count = random_params(model), 1024, 64
    ids = np.random.default_rng(0).integers(UNK, VOCAB, (1, 8 + size * count)).astype(np.int32)
    whole = jax.jit(lambda: model.outputs(params, Batch(None, side(ids), {}), None)["tokens"])()
    stepper, active = Stepping(model, params), jnp.array([True])

    def read(state, tokens, number):
        positions = (number * size + jnp.arange(size))[None]
        logits, _, state = stepper.step(state, tokens, positions, active)
        return logits[0, 0], state

    state = stepper.start(Batch(None, side(ids[:, :8]), {}), width=1, length=size * count)
    found, shapes = [], []
    for number in range(count):
        tokens = ids[:, None, 8 + number * size : 8 + (number + 1) * size]
        logits, state = read(state, tokens, number)
        found.append(np.asarray(logits))
        shapes.append([x.shape for x in jax.tree.leaves(state)])
    np.testing.assert_allclose(np.concatenate(found), whole.logits()[0, 8:], atol=2e-4)
    assert all(shape == shapes[0] for shape in shapes)
    kept = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))
    assert kept < 512 * size  # bytes, mostly a state for each token of the last step
