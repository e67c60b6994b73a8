"""The Perceiver: operations linear in the length of a text, padding, and parameter counts."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from tiny import MODEL, VOCAB, random_params

from transformer_jax.base import counting
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.build import abstract_params, build

CONFIG = dataclasses.replace(
    MODEL, architecture="perceiver", num_decoder_layers=6, num_encoder_layers=2, num_latents=4,
    input_norm=True, residual="pre_norm", positions="learned",
)  # fmt: skip
PREDICTS = ("tokens", "class")
CLASSES = 3


def batch_of(ids, length: int) -> Batch:
    """Return texts of a length, the rest as padding, and a position for the class of each."""
    seg = (np.arange(ids.shape[1]) < length) * np.ones_like(ids)
    pos = np.where(seg > 0, np.arange(ids.shape[1]), 0)
    ones = np.ones((len(ids), 1))
    tgt = Side(0 * ones, 0 * ones, ones)
    return jax.tree.map(lambda x: jnp.asarray(x, "int32"), Batch(Side(ids, pos, seg), tgt, {}))


@functools.cache
def operations(architecture: str, length: int) -> int:
    """Return the operations of reading a text and predicting its class and all of its pieces."""
    latents = {"num_latents": 4 if architecture == "perceiver" else 256}
    config = dataclasses.replace(
        CONFIG, architecture=architecture, positions="sinusoidal", **latents
    )
    model = build(config, VOCAB, CLASSES, predicts=PREDICTS)
    batch = jax.eval_shape(lambda: batch_of(np.zeros((1, length)), length))

    def logits(params, batch):
        return {name: x.logits() for name, x in model.outputs(params, batch, None).items()}

    params = nn.unbox(abstract_params(model))
    return counting.operations(counting.program(logits, params, batch)).products


def test_operations_are_linear_in_the_length():
    """The exponent of the length, from 256 to 4096 positions; that of an encoder is near 2."""

    def exponent(architecture):
        few, many = (operations(architecture, length) for length in (256, 4096))
        return np.log(many / few) / np.log(4096 / 256)

    assert 0.9 < exponent("perceiver") < 1.01
    assert exponent("encoder") > 1.5


def test_padding_changes_nothing():
    model = build(CONFIG, VOCAB, CLASSES, predicts=PREDICTS)
    params = random_params(model)
    ids = np.random.default_rng(0).integers(4, VOCAB, (2, 7))
    other = ids.copy()
    other[:, 5:] = 9
    run = jax.jit(lambda batch: [x.logits() for x in model.outputs(params, batch, None).values()])
    (tokens, said), (same, again) = run(batch_of(ids, 5)), run(batch_of(other, 5))
    assert np.allclose(said, again, rtol=1e-6)
    assert np.allclose(tokens[:, :5], same[:, :5], rtol=1e-6)
    whole, _ = run(batch_of(ids, 7))
    assert not np.allclose(tokens[:, :5], whole[:, :5], rtol=1e-2)


def test_parameter_count_equals_the_count_by_hand():
    """Layers as in an encoder, one more on each side, latents, a query and tables."""
    d, width, latents, layers = 16, 2 * 6, 4, 2
    attention = 3 * (d * width + width) + width * d + d
    feed_forward = 2 * d * 24 + 24 + d
    norms = 2 * 2 * d
    body = (layers + 2) * (attention + feed_forward + norms) + 2 * 2 * d  # of inputs, of latents
    tables = (VOCAB + latents + 1 + 2 * CONFIG.max_positions) * d + VOCAB
    expected = body + tables + CLASSES * (d + 1)
    model = build(CONFIG, VOCAB, CLASSES, predicts=PREDICTS)
    assert counting.parameters(abstract_params(model)) == expected
