"""Laws of layers along axes of a clip, and of encoders made of them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax.linen import unbox
from tiny import MODEL, random_params

from transformer_jax.base.errors import UserError
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.build import build, init_params
from transformer_jax.nn.mixers.kinds import MIXERS
from transformer_jax.nn.view import self_view

GRID, CHANNELS, CLASSES = (3, 1, 2), 5, 4
CLIP = dataclasses.replace(
    MODEL, architecture="encoder", stem="linear", grid=GRID, num_decoder_layers=6,
    grid_positions="learned", positions="none", residual="pre_norm", num_encoder_layers=2,
    dropout_rate=0.0,
)  # fmt: skip
RNG = np.random.default_rng(0)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", ["space", "time"])
def test_a_mixer_is_attention_within_segments(kind):
    """Of a time, or of a place: the same maps and a mask over the whole clip."""
    config = dataclasses.replace(CLIP, encoder_pattern=(kind,))
    x = jnp.asarray(RNG.normal(size=(2, 6, config.d_model)), jnp.float32)
    pos = jnp.tile(jnp.arange(6), (2, 1))
    whole = self_view(pos, jnp.ones_like(pos), "all")
    own = jnp.asarray({"space": [1, 1, 2, 2, 3, 3], "time": [1, 2, 1, 2, 1, 2]}[kind])
    masked = self_view(pos, jnp.tile(own, (2, 1)), "all")
    mixer, full = (MIXERS[word](config, jnp.dtype("float32")) for word in (kind, "full"))
    params = full.init(jax.random.key(0), x, masked, False, method="mix")
    expected, _ = full.apply(params, x, masked, False, method="mix")
    found, _ = mixer.apply(params, x, whole, False, method="mix")
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def batch_of(vectors: np.ndarray, behind: int = 0) -> Batch:
    """Return clips [n L C] behind a class token, in rows with some padding."""
    n, length, channels = vectors.shape
    inputs = np.concatenate([np.zeros((n, 1, channels)), vectors], 1).astype(np.float32)
    pos = np.tile(np.arange(1 + length, dtype=np.int32), (n, 1))
    side = Side(inputs, pos, np.ones_like(pos))
    padded = (np.pad(x, ((0, 0), (0, behind), (0, 0))[: x.ndim]) for x in side[:3])
    ones = np.ones((n, 1), np.int32)
    return Batch(Side(*padded), Side(0 * ones, 0 * ones, ones), {})


@functools.cache
def compiled(model):
    def run(params, batch):
        (output,) = model.outputs(params, batch, None).values()
        return output.logits()

    return jax.jit(run)


def logits(model, params, batch: Batch) -> np.ndarray:
    return np.asarray(compiled(model)(params, jax.device_put(batch)))


CONFIGS = {
    "divided": dataclasses.replace(CLIP, encoder_pattern=("divided",)),
    "alternating": dataclasses.replace(CLIP, encoder_pattern=("space", "time")),
    "factorised": dataclasses.replace(
        CLIP, architecture="factorised_encoder", num_time_layers=1, positions="learned",
        grid_positions="none",
    ),
}  # fmt: skip
VECTORS = RNG.normal(size=(3, 6, CHANNELS))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CONFIGS)
def test_order_counts_and_padding_does_not(name):
    """The order of frames, through positions alone; rows are independent of one another."""
    config = CONFIGS[name]
    model = build(config, CHANNELS, CLASSES, single=True, predicts=("class",))
    params = random_params(model)
    found = logits(model, params, batch_of(VECTORS))
    np.testing.assert_allclose(
        logits(model, params, batch_of(VECTORS, 3)), found, rtol=1e-4, atol=1e-5
    )
    moved = VECTORS.copy()
    moved[0] = moved[0].reshape(3, 2, CHANNELS)[::-1].reshape(6, CHANNELS)
    other = logits(model, params, batch_of(moved))
    assert np.abs(other[0] - found[0]).max() > 1e-3
    np.testing.assert_allclose(other[1:], found[1:], rtol=1e-4, atol=1e-5)
    lost = {
        "divided": ("stem", "grid_positions", "times"), "factorised": ("time_positions", "table"),
        "alternating": ("stem", "grid_positions", "times"),
    }[name]  # fmt: skip
    *path, leaf = lost
    blind = jax.tree.map(lambda x: x, params)
    within = blind
    for step in path:
        within = within[step]
    within[leaf] = jnp.zeros_like(within[leaf])
    one, two = (logits(model, blind, batch_of(x)) for x in (VECTORS, moved))
    np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


def test_a_text_is_written_from_a_clip():
    """By an encoder-decoder, whose source has no class token; padding behind changes nothing."""
    config = dataclasses.replace(
        CONFIGS["divided"], architecture="encoder_decoder", num_encoder_layers=1,
        num_decoder_layers=1, tied_embeddings="decoder",
    )  # fmt: skip
    model = build(config, CHANNELS, CLASSES)
    params = random_params(model)
    places = np.tile(np.arange(6, dtype=np.int32), (3, 1))
    words = np.ones((3, 2), np.int32)
    tgt = Side(words, np.tile(np.arange(2, dtype=np.int32), (3, 1)), words)
    found = []
    for behind in (0, 2):
        side = Side(VECTORS.astype(np.float32), places, np.ones_like(places))
        padded = (np.pad(x, ((0, 0), (0, behind), (0, 0))[: x.ndim]) for x in side[:3])
        found.append(logits(model, params, Batch(Side(*padded), tgt, {})))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-5)


def test_a_fresh_divided_layer_reads_frames_alone():
    """The map after attention over time starts at zero: then layers are those of frames."""
    divided = build(CONFIGS["divided"], CHANNELS, CLASSES, predicts=("class",))
    fresh = jax.jit(lambda key: init_params(divided, key))(jax.random.key(0))
    params = unbox(fresh)
    config = dataclasses.replace(CLIP, encoder_pattern=("space",))
    frames = build(config, CHANNELS, CLASSES, predicts=("class",))
    kept = {
        name: part
        if name != "encoder"
        else {
            layer: {k: v for k, v in own.items() if not k.startswith("time_")}
            for layer, own in part.items()
        }
        for name, part in params.items()
    }
    batch = batch_of(VECTORS)
    np.testing.assert_allclose(
        logits(divided, params, batch), logits(frames, kept, batch), rtol=1e-5, atol=1e-6
    )


def test_a_clip_that_is_too_short_is_refused():
    model = build(CONFIGS["divided"], CHANNELS, CLASSES, predicts=("class",))
    with pytest.raises(UserError, match=r"config.model.grid=\(3, 1, 2\): .* 4 vectors; set it"):
        model.init(jax.random.key(0), batch_of(VECTORS[:, :4]), False)
