"""Two-stream models: no piece sees itself when it is predicted, whatever the order."""

import dataclasses
import itertools

import jax
import numpy as np
import pytest
from tiny import MODEL, VOCAB, logits_of, random_params

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import UNK
from transformer_jax.config import DecodingConfig, ModelConfig, ObjectiveConfig, TrainingConfig
from transformer_jax.data.batches.batch import Batch, Side, Target
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.codecs.utf8 import Bytes
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.stepper import stepper_of
from transformer_jax.decoding.text.generate import Generator
from transformer_jax.decoding.text.score import score_texts, validation_log_probs
from transformer_jax.models.build import build
from transformer_jax.training.step import batch_sums

CONFIG = dataclasses.replace(
    MODEL, architecture="two_stream", num_encoder_layers=6, num_decoder_layers=2,
    positions="none", relative_positions="rope",
)  # fmt: skip
# Pieces that all others see, and every order of three more; the shape is that of other tests.
ORDERS = np.array([(0, 0, 0, *order) for order in itertools.permutations((1, 2, 3))], np.int32)
INPUTS = np.random.default_rng(0).integers(UNK, VOCAB, ORDERS.shape).astype(np.int32)


def batch_of(inputs, rank) -> Batch:
    pos = np.broadcast_to(np.arange(inputs.shape[1], dtype=np.int32), inputs.shape)
    target = Target(inputs, (rank > 0).astype(np.float32))
    side = Side(inputs, pos, np.ones_like(inputs), rank)
    return jax.device_put(Batch(None, side, {"tokens": target}))


def model_of(config: ModelConfig):
    model = build(config, VOCAB, VOCAB, order="ranked")
    return model, random_params(model)


def logits(config: ModelConfig, batch: Batch) -> np.ndarray:
    return np.asarray(logits_of(*model_of(config), batch))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attention": "fused", "num_kv_heads": 1, "residual": "pre_norm"},
        {"relative_positions": "alibi", "query_key_norm": "all_heads", "biases": ()},
    ],
    ids=["rope", "fused", "alibi"],
)
def test_a_piece_is_predicted_without_seeing_itself(changes):
    """Replacing it changes no prediction of its own rank or a lower one, and all of higher ones."""
    config = dataclasses.replace(CONFIG, **changes)
    expected = logits(config, batch_of(INPUTS, ORDERS))
    for place in range(3, 6):
        inputs = INPUTS.copy()
        inputs[:, place] = (inputs[:, place] - UNK + 1) % (VOCAB - UNK) + UNK
        changed = np.abs(logits(config, batch_of(inputs, ORDERS)) - expected).max(-1)
        reads = ORDERS[:, place, None] < ORDERS
        assert (changed[~reads & (ORDERS > 0)] == 0).all()
        assert (changed[reads] > 1e-4).all()


def test_packing_does_not_change_the_output():
    """Two texts in one row, each in its own order, followed by padding."""
    alone = logits(CONFIG, batch_of(INPUTS, ORDERS))
    row = batch_of(INPUTS[:2].reshape(1, -1), ORDERS[:2].reshape(1, -1))
    seg = np.array([[1] * 6 + [2] * 6], np.int32)
    pos = np.array([[*range(6)] * 2], np.int32)
    packed = row._replace(tgt=row.tgt._replace(seg=seg, pos=pos))
    packed = jax.tree.map(lambda x: np.pad(x, ((0, 0), (0, 3))), packed)
    found = logits(CONFIG, packed)[0, :12].reshape(2, 6, -1)
    at = ORDERS[:2] > 0
    np.testing.assert_allclose(found[at], alone[:2][at], rtol=1e-5, atol=1e-5)


HEADS = {"query_key_norm": "all_heads", "biases": ("value",), "num_kv_heads": 1}


def test_scan_and_remat_change_no_gradient():
    """And every parameter has one."""

    def gradient(**changes):
        few = {"dropout_rate": 0.0, "norm": "rms_norm"}  # operations, to compile
        config = dataclasses.replace(CONFIG, **few, **HEADS, **changes)
        model, params = model_of(config)
        batch = batch_of(INPUTS, ORDERS)

        def loss(params):
            return batch_sums(model, TrainingConfig(), params, batch, None).loss

        return jax.jit(jax.grad(loss))(params)

    plain = gradient()
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(plain))
    found = gradient(layer_loop="scan", remat="full")
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


def test_bfloat16_is_close_to_float32():
    """As close as 8 bits of precision allow."""
    config = dataclasses.replace(CONFIG, **HEADS)
    batch, at = batch_of(INPUTS, ORDERS), ORDERS > 0
    expected = logits(config, batch)[at]
    found = logits(dataclasses.replace(config, compute_dtype="bfloat16"), batch)[at]
    assert np.linalg.norm(found - expected) < 0.02 * np.linalg.norm(expected)


def test_decoding_is_rejected():
    with pytest.raises(UserError, match=r"architecture='two_stream': such a model writes no text"):
        stepper_of(*model_of(CONFIG))


def test_continuing_a_prompt_and_scoring_are_rejected():
    objective = ObjectiveConfig("permutation_lm")
    model, params = model_of(CONFIG)
    codec = Bytes()
    with pytest.raises(UserError, match=r"'permutation_lm': such a model does not continue a"):
        Generator(model, codec, objective, DecodingConfig())
    with pytest.raises(UserError, match=r"'permutation_lm': .* gives no probability of a text"):
        score_texts(Loaded(model, params, TokenizerPair(codec, codec), objective), ["a text"])


def test_validation_scores_do_not_depend_on_the_batch():
    """The same pieces in the same orders, whatever else is in a batch."""
    codec, texts = Bytes(), ["some pieces of this text", "and a few"]
    objective = ObjectiveConfig("permutation_lm", window=8, partial_prediction=2)
    model = build(CONFIG, codec.size, codec.size, order="ranked")
    loaded = Loaded(model, random_params(model), TokenizerPair(codec, codec), objective)
    found = validation_log_probs(loaded, texts)
    one_by_one = validation_log_probs(loaded, texts, tokens_per_batch=8)
    windows = [8, 8, 8, 5, 8, 4]  # BOS, 24 or 9 bytes and EOS; one of each pair is read twice
    assert [len(window) for window in found] == [max((n - 1) // 2, 1) for n in windows]
    for window, again in zip(found, one_by_one, strict=True):
        np.testing.assert_allclose(window, again, rtol=1e-5, atol=1e-5)
    assert np.concatenate(found).max() < 0


def test_unsupported_options_are_rejected():
    """Queries must know their position, and always have something to attend to."""
    with pytest.raises(UserError, match=r"^positions='none': .*'two_stream'"):
        dataclasses.replace(CONFIG, relative_positions="none")
    with pytest.raises(UserError, match=r"^decoder_pattern=.*: .*choose 'full'"):
        dataclasses.replace(CONFIG, decoder_pattern=("local",), window=2)
