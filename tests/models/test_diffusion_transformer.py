"""Diffusion transformers: how they start, what they read, and laws of the model."""

import dataclasses

import jax
import numpy as np
import pytest
from flax.linen import unbox
from tiny import MODEL, random_params

from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.build import build, init_params, roles_of

CHANNELS, PATCHES, CLASSES = 5, 4, 3
DIT = dataclasses.replace(
    MODEL, architecture="diffusion_transformer", stem="linear", grid=(2, 2), num_decoder_layers=6,
    residual="adaptive_norm", grid_positions="sinusoidal", positions="none", num_encoder_layers=2,
)  # fmt: skip
TEXT = dataclasses.replace(DIT, condition="text")
CONFIGS = {
    "class": DIT,
    "text": TEXT,
    "joint": dataclasses.replace(
        TEXT, encoder_pattern=("joint", "joint_last"), query_key_norm="per_head"
    ),
    "clip": dataclasses.replace(  # a bias of keys has no gradient but rounding
        DIT,
        grid=(2, 1, 2),
        encoder_pattern=("divided", "time"),
        biases=("query", "value", "output", "feed_forward"),
    ),
    "rms": dataclasses.replace(DIT, norm="rms_norm", encoder_pattern=("full", "linear")),
}
RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(3, PATCHES, CHANNELS)).astype(np.float32)
TIME = np.array([0.1, 0.5, 0.9], np.float32)


def side(ids, length=None, seg=1) -> Side:
    """Return ids [B T], padded to a length."""
    ids = np.asarray(ids, np.int32)
    real = np.full_like(ids, seg)
    pos = np.tile(np.arange(ids.shape[1], dtype=np.int32), (len(ids), 1))
    behind = ((0, 0), (0, (length or ids.shape[1]) - ids.shape[1]))
    return Side(*(np.pad(x, behind) for x in (ids, pos, real)))


def batch_of(tgt: Side, time=TIME, vectors=VECTORS) -> Batch:
    places = np.tile(np.arange(PATCHES, dtype=np.int32), (len(vectors), 1))
    return Batch(Side(vectors, places, np.ones_like(places)), tgt, {}, time)


def model_of(name: str, start=random_params):
    model = build(CONFIGS[name], CHANNELS, CLASSES, single=True, predicts=("diffusion",))
    return model, start(model)


def predicted(model, batch: Batch) -> np.ndarray:
    network, params = model
    run = jax.jit(lambda params, batch: network.outputs(params, batch, None)["diffusion"].logits())
    return np.asarray(run(params, jax.device_put(batch)))


def said(name: str) -> Side:
    return side([[0], [1], [2]]) if CONFIGS[name].condition == "class" else (
        side([[0, 1], [1, 2], [2, 0]])
    )  # fmt: skip


@pytest.fixture(scope="module", params=CONFIGS)
def named(request):
    return request.param, model_of(request.param)


@pytest.mark.one_in(2)
def test_time_and_condition_lead_the_prediction(named):
    """Each of them, and the picture, changes what is predicted, in its own row alone."""
    name, model = named
    found = predicted(model, batch_of(said(name)))
    other = said(name)._replace(inputs=said(name).inputs[[1, 1, 2]])
    none = said(name)._replace(seg=said(name).seg * np.array([[0], [1], [1]], np.int32))
    noisy = VECTORS.copy()
    noisy[0, 1] += 1
    for changed in (
        batch_of(said(name), TIME + np.array([0.2, 0, 0], np.float32)), batch_of(other),
        batch_of(none), batch_of(said(name), vectors=noisy),
    ):  # fmt: skip
        moved = predicted(model, changed)
        assert np.abs(moved[0] - found[0]).max() > 1e-3
        np.testing.assert_allclose(moved[1:], found[1:], rtol=1e-4, atol=1e-5)


def test_padding_of_a_text_changes_nothing():
    for name in ("text", "joint"):
        model = model_of(name)
        ids = [[0, 1], [1, 2], [2, 0]]
        found = predicted(model, batch_of(side(ids)))
        padded = predicted(model, batch_of(side(ids, 5)))
        np.testing.assert_allclose(padded, found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["class", "joint"])
def test_an_untrained_model_predicts_zero(name):
    """Gates and the last map start at zero (adaLN-Zero), so that every layer is the identity."""
    params = jax.jit(lambda key: init_params(build(CONFIGS[name], CHANNELS, CLASSES), key))(
        jax.random.key(0)
    )
    params = unbox(params)
    model = build(CONFIGS[name], CHANNELS, CLASSES, predicts=("diffusion",)), params
    assert not predicted(model, batch_of(said(name))).any()
    zero = {name for name, role in roles_of(model[0]).items() if "modulation" in name}
    assert zero
    leaves = jax.tree_util.tree_leaves_with_path(params)
    for path, leaf in leaves:
        where = jax.tree_util.keystr(path, simple=True, separator="/")
        assert where not in zero or not np.asarray(leaf).any()


def test_scan_and_remat_change_nothing():
    for name in ("class", "joint", "clip"):
        found = predicted(model_of(name), batch_of(said(name)))
        config = dataclasses.replace(CONFIGS[name], layer_loop="scan", remat="full")
        model = build(config, CHANNELS, CLASSES, single=True, predicts=("diffusion",))
        again = predicted((model, model_of(name)[1]), batch_of(said(name)))
        np.testing.assert_allclose(again, found, rtol=1e-5, atol=1e-6)
