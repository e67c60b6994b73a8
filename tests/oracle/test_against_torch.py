"""Our model and loss equal independent ones with the same random weights (`make oracle`)."""

import dataclasses

import numpy as np
import pytest
from oracle.batches import ONE_PER_ROW, PACKED, make_batch
from oracle.compare import EPSILON, Results, assert_close, assert_same, float32_logits, ours, shapes
from oracle.weights import TORCH_NN, TRANSFORMERS, from_torch

from transformer_jax.config import ModelConfig
from transformer_jax.nn.positions import Sinusoidal, SinusoidalTensor2Tensor

pytestmark = pytest.mark.oracle

TINY = ModelConfig(
    d_model=24, d_ff=40, num_heads=3, num_encoder_layers=2, num_decoder_layers=2,
    dropout_rate=0.0, norm_epsilon=1e-5, max_positions=16,
)  # fmt: skip


@pytest.fixture(scope="module")
def peers():
    # Not at the top of the file, which the default run collects even without torch. And no skip:
    # whoever asks for the comparison should learn that a peer is missing.
    from oracle import peers

    return peers


def compare(peers, model, words, config, sizes, batch) -> None:
    """Randomise their model, and assert that ours gives the same results."""
    peers.randomise(model)
    model.double()
    tree = shapes(config, *sizes)
    params = from_torch(peers.to_numpy(model.tensors()), tree, words)
    logits, losses, gradients = peers.run(model, batch, EPSILON)
    translated = {name: from_torch(leaves, tree, words) for name, leaves in gradients.items()}
    assert_same(ours(config, sizes, params, batch), Results(logits, losses, translated))


@pytest.mark.parametrize("residual", ["post_norm", "pre_norm"])
def test_equals_marian_and_pegasus(peers, residual):
    config = dataclasses.replace(TINY, residual=residual)
    model = peers.Transformers(config, 61)
    batch = make_batch(ONE_PER_ROW, 61, 61)
    compare(peers, model, TRANSFORMERS, config, (61, 61), batch)


@pytest.mark.parametrize("lengths", [ONE_PER_ROW, PACKED], ids=["one_per_row", "packed"])
@pytest.mark.parametrize("residual", ["post_norm", "pre_norm"])
def test_equals_torch_layers(peers, residual, lengths):
    config = dataclasses.replace(TINY, residual=residual)
    model = peers.TorchLayers(config, 61, 61)
    compare(peers, model, TORCH_NN, config, (61, 61), make_batch(lengths, 61, 61))


@pytest.mark.parametrize(("tied", "positions"), [("decoder", "learned"), ("none", "sinusoidal")])
def test_equals_torch_layers_with_two_vocabularies(peers, tied, positions):
    config = dataclasses.replace(TINY, tied_embeddings=tied, positions=positions)
    model = peers.TorchLayers(config, 61, 43)
    compare(peers, model, TORCH_NN, config, (61, 43), make_batch(ONE_PER_ROW, 61, 43))


def test_float32_logits_of_the_base_model_equal_marians(peers):
    config, vocab = ModelConfig(dropout_rate=0.0), 8000
    batch = make_batch([[(20, 17)], [(11, 20)], [(16, 5)], [(3, 12)]], vocab, vocab)
    model = peers.Transformers(config, vocab)
    peers.randomise(model)
    tensors = peers.to_numpy(model.float().tensors())
    params = from_torch(tensors, shapes(config, vocab, vocab), TRANSFORMERS)
    mine = float32_logits(config, (vocab, vocab), params, batch)
    assert_close("logits", mine, peers.logits(model, batch), relative=1e-4)


def test_position_tables_equal_those_of_transformers(peers):
    marian, fsmt = peers.position_tables(40, 24)
    paper = Sinusoidal(ModelConfig(d_model=24)).table(40)
    sines_first = np.concatenate([paper[:, 0::2], paper[:, 1::2]], 1)
    np.testing.assert_allclose(sines_first, marian, rtol=0, atol=1e-7)  # rounded to float32
    # Computed in float32: angles up to 40 are rounded to 2e-6 before the sine is taken.
    np.testing.assert_allclose(
        SinusoidalTensor2Tensor(ModelConfig(d_model=24)).table(40), fsmt, rtol=0, atol=1e-5
    )
