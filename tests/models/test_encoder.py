"""Encoders: what positions and classes depend on, alone, packed and padded."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import MODEL, VOCAB, random_params

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import UNK
from transformer_jax.config import DecodingConfig, ObjectiveConfig, TrainingConfig
from transformer_jax.data.batches.batch import Batch, Side, Target
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.codecs.utf8 import Bytes
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.stepper import stepper_of
from transformer_jax.decoding.text.generate import Generator
from transformer_jax.decoding.text.score import score_texts
from transformer_jax.models.build import build
from transformer_jax.nn.embedding import token_dropout
from transformer_jax.training.step import batch_sums

CONFIG = dataclasses.replace(
    MODEL, architecture="encoder", num_decoder_layers=6, token_types=2, input_norm=True,
    positions="learned", embedding_scale=False,
)  # fmt: skip
OTHER = dataclasses.replace(
    CONFIG, pooling="mean", positions="none", relative_positions="rope", residual="pre_norm",
    num_encoder_layers=2, encoder_pattern=("full", "local"), window=3, activation="swiglu",
    tied_embeddings="none", biases=(), norm="rms_norm", token_dropout=int(UNK),
)  # fmt: skip
BOTH = pytest.mark.parametrize("config", [CONFIG, OTHER], ids=["bert", "other"])
PREDICTS = ("tokens", "class", "next_sentence", "tags", "span")
IDS = np.random.default_rng(0).integers(UNK, VOCAB, (3, 5)).astype(np.int32)


def batch_of(ids, pos=None, seg=None) -> Batch:
    """Return texts, one per row or packed, with pieces and classes to predict."""
    pos = np.broadcast_to(np.arange(ids.shape[1]), ids.shape) if pos is None else np.asarray(pos)
    seg = np.ones_like(ids) if seg is None else np.asarray(seg)
    side = Side(ids, pos, seg, kind=np.where(seg > 0, pos % 2, 0))
    asked = np.arange(1, seg.max() + 1) * np.ones_like(seg[:, :1])
    tgt = Side(0 * asked, 0 * asked, np.where(asked <= seg.max(1, keepdims=True), asked, 0))
    targets = {"tokens": Target(ids, np.float32(seg > 0)),
               "class": Target(tgt.seg % 3, np.float32(tgt.seg > 0)),
               "span": Target(tgt.seg - 1, np.float32(tgt.seg > 0)),
               "tags": Target(ids % 3, np.float32(seg > 0)),
               "next_sentence": Target(tgt.seg % 2, np.float32(tgt.seg > 0))}  # fmt: skip
    as_ints = jax.tree.map(lambda x: jnp.asarray(x, "int32"), (side, tgt))
    return Batch(*as_ints, jax.device_put(targets))


@functools.cache
def model_of(config):
    model = build(config, VOCAB, 3, predicts=PREDICTS)
    return model, random_params(model)


def logits(config, batch: Batch) -> dict[str, np.ndarray]:
    model, params = model_of(config)
    return jax.tree.map(np.asarray, _logits(model, params, batch))


@functools.partial(jax.jit, static_argnums=0)
def _logits(model, params, batch):
    outputs = model.outputs(params, batch, None)
    return {name: output.logits() for name, output in outputs.items()}


PACKED = batch_of(
    np.concatenate([IDS[:2].reshape(1, -1), np.full((1, 2), 7, np.int32)], 1),
    [[*range(5), *range(5), 1, 1]], [[1] * 5 + [2] * 5 + [0] * 2],
)  # fmt: skip


@BOTH
def test_packing_does_not_change_the_output(config):
    """Two texts in one row, with arbitrary padding: the same pieces and classes."""
    alone, packed = logits(config, batch_of(IDS)), logits(config, PACKED)
    close = {"rtol": 1e-5, "atol": 1e-5}
    for name in ("tokens", "tags"):
        places = packed[name][0, :10].reshape(2, 5, -1)
        np.testing.assert_allclose(places, alone[name][:2], **close)
    for number, places in enumerate((slice(5), slice(5, 10))):
        found = packed["span"][0, number]
        np.testing.assert_allclose(found[places], alone["span"][number, 0], **close)
        assert (np.delete(found, places) < -1e8).all()
    for name in ("class", "next_sentence"):
        np.testing.assert_allclose(packed[name][0], alone[name][:2, 0], **close)


@BOTH
def test_every_position_attends_in_both_directions(config):
    """A piece changes all positions of its text, and its class, but nothing of other texts."""
    expected = logits(config, batch_of(IDS))
    for place in (0, 4):
        ids = IDS.copy()
        ids[1, place] = (ids[1, place] - UNK + 1) % (VOCAB - UNK) + UNK
        found = logits(config, batch_of(ids))
        for name in PREDICTS:
            changed = np.abs(found[name] - expected[name]).max(-1)
            assert (changed[1] > 1e-5).all()
            assert not changed[[0, 2]].any()


def test_a_decoder_classifies_by_the_last_position():
    """Packing changes nothing, and the class depends on the whole text; it cannot generate."""
    forwards = {"architecture": "decoder", "num_encoder_layers": 6, "pooling": "last"}
    model = build(dataclasses.replace(MODEL, **forwards), VOCAB, 3, predicts=("class",))
    params = random_params(model)

    def class_logits(batch: Batch) -> np.ndarray:
        return np.asarray(_logits(model, params, batch)["class"])

    expected = class_logits(batch_of(IDS))
    np.testing.assert_allclose(class_logits(PACKED)[0], expected[:2, 0], rtol=1e-5, atol=1e-5)
    for place in range(5):
        ids = IDS.copy()
        ids[1, place] = (ids[1, place] - UNK + 1) % (VOCAB - UNK) + UNK
        changed = np.abs(class_logits(batch_of(ids)) - expected).max((1, 2))
        assert changed[1] > 1e-5
        assert not changed[[0, 2]].any()
    assert model.stepper(params) is None


def test_token_dropout_by_hand():
    """ESM-2's scale of each vector, by loops: a text without masks, one with two, one of masks
    only, padding; alone or in one row.
    """
    x = np.random.default_rng(0).normal(size=(2, 8, 3)).astype(np.float32)
    ids = np.array([[4, 5, 6, 9, 9, 7, 4, 4], [9, 9, 4, 5, 9, 6, 0, 0]])
    seg = np.array([[1, 1, 1, 2, 2, 2, 2, 2], [1, 1, 2, 2, 2, 2, 0, 0]])
    expected = np.zeros_like(x)
    for row, column in np.argwhere(ids != 9):
        same = ids[row][seg[row] == seg[row, column]]
        expected[row, column] = x[row, column] * 0.88 / (1 - np.mean(same == 9))
    found = token_dropout(jnp.asarray(x), jnp.asarray(ids == 9), jnp.asarray(seg))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    np.testing.assert_allclose(found[0, :3], 0.88 * x[0, :3], rtol=1e-6)
    alone = token_dropout(*(jnp.asarray(y[:1, 3:]) for y in (x, ids == 9, seg)))
    assert np.array_equal(alone, found[:1, 3:])


def test_token_types_matter_and_default_to_0():
    batch = batch_of(IDS)
    expected = logits(CONFIG, batch)["class"]
    zeros = batch._replace(src=batch.src._replace(kind=jnp.zeros_like(batch.src.kind)))
    none = batch._replace(src=batch.src._replace(kind=None))
    assert np.abs(logits(CONFIG, zeros)["class"] - expected).max() > 1e-3
    np.testing.assert_array_equal(logits(CONFIG, zeros)["class"], logits(CONFIG, none)["class"])


@functools.partial(jax.jit, static_argnums=0)
def _gradient(model, params, batch):
    return jax.grad(lambda x: batch_sums(model, TrainingConfig(), x, batch, None).loss)(params)


def gradient(config, batch):
    model, params = model_of(dataclasses.replace(config, dropout_rate=0.0))
    return _gradient(model, params, batch)


def assert_same(found, expected) -> None:
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@BOTH
def test_padding_changes_no_gradient(config):
    """And every parameter has one, from the sum over pieces and classes."""
    plain = gradient(config, PACKED)
    plain_but_one = plain | {"span_head": plain["span_head"]["table"]}  # softmax ignores the bias
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(plain_but_one))
    noisy = PACKED._replace(src=PACKED.src._replace(inputs=PACKED.src.inputs.at[:, 10:].set(9)))
    assert_same(gradient(config, noisy), plain)


@pytest.mark.parametrize(
    "config", [pytest.param(CONFIG, marks=pytest.mark.e2e), OTHER], ids=["bert", "other"]
)
def test_scan_and_remat_change_no_gradient(config):
    looped = dataclasses.replace(config, layer_loop="scan", remat="full")
    assert_same(gradient(looped, PACKED), gradient(config, PACKED))


def test_fused_attention_equals_dense_attention():
    batch, fused = PACKED, dataclasses.replace(OTHER, attention="fused")
    for name, expected in logits(OTHER, batch).items():
        at = np.asarray(batch.targets[name].weight) > 0
        np.testing.assert_allclose(logits(fused, batch)[name][at], expected[at], atol=1e-4)


def test_bfloat16_is_close_to_float32():
    """As close as 8 bits of precision allow."""
    for name, expected in logits(CONFIG, batch_of(IDS)).items():
        found = logits(dataclasses.replace(CONFIG, compute_dtype="bfloat16"), batch_of(IDS))[name]
        assert np.linalg.norm(found - expected) < 0.03 * np.linalg.norm(expected)


def test_there_are_heads_only_for_what_is_predicted():
    for predicts, heads in (
        (["tokens"], {"piece_head"}),
        (["class"], {"pooler", "class_head"}),
        (["tags"], {"tags_head"}),
        (["span"], {"span_head"}),
        (["tokens", "next_sentence"], {"piece_head", "pooler", "next_sentence_head"}),
    ):
        params = random_params(build(CONFIG, VOCAB, 3, predicts=predicts))
        assert params.keys() == {"embedding", "positions", "kinds", "input_norm", "encoder", *heads}


def test_generating_and_scoring_are_rejected():
    with pytest.raises(UserError, match=r"architecture='encoder': such a model writes no text"):
        stepper_of(*model_of(CONFIG))
    objective, codecs = ObjectiveConfig("masked_lm"), TokenizerPair(Bytes(), Bytes())
    with pytest.raises(UserError, match=r"'masked_lm': such a model does not continue a prompt"):
        Generator(model_of(CONFIG)[0], Bytes(), objective, DecodingConfig())
    with pytest.raises(UserError, match=r"'masked_lm': .* both sides, and gives no probability"):
        score_texts(Loaded(*model_of(CONFIG), codecs, objective), ["a text"])
