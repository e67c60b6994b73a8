"""Autoencoders of pictures: the nearest code, gradients through it, normal latents, and laws of the
models.
"""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import MODEL, random_params

from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.build import build
from transformer_jax.nn.codes import Codes, Gaussian

CONFIG = dataclasses.replace(
    MODEL, architecture="autoencoder", stem="linear", residual="pre_norm", positions="learned",
    dropout_rate=0.0, num_codes=9, code_width=4, commitment=0.5,
)  # fmt: skip
CHANNELS = 5
RNG = np.random.default_rng(0)
VECTORS = RNG.normal(size=(3, 6, CHANNELS)).astype(np.float32)
POS = np.tile(np.arange(6, dtype=np.int32), (3, 1))
SIDE = Side(VECTORS, POS, np.ones_like(POS))


VARIATIONAL = dataclasses.replace(
    CONFIG, architecture="variational_autoencoder", num_codes=MODEL.num_codes, commitment=0.25,
    kl_weight=0.3,
)  # fmt: skip


@pytest.fixture(scope="module", params=[CONFIG, VARIATIONAL], ids=["codes", "latents"])
def model(request):
    found = build(request.param, CHANNELS, CHANNELS, predicts=("pixels",))
    return found, random_params(found)


def reconstruct(model, side) -> np.ndarray:
    network, params = model
    run = jax.jit(lambda batch: network.outputs(params, batch, None)["pixels"].logits())
    return np.asarray(run(Batch(jax.device_put(side), None, {})))


def test_the_decoder_depends_on_the_codes_alone(model):
    """Decoding a picture's codes, or its latents, gives the reconstruction of the picture."""
    network, params = model
    apply = jax.jit(network.apply, static_argnames="method")
    codes = apply({"params": params}, SIDE, method="to_codes")
    assert codes.shape[:2] == (3, 6)
    assert len(np.unique(codes)) > 2
    again = apply({"params": params}, SIDE._replace(inputs=codes), method="from_codes")
    assert np.allclose(again, reconstruct(model, SIDE), rtol=1e-4, atol=1e-5)


def test_padding_and_packing_change_nothing(model):
    alone = reconstruct(model, SIDE)
    seg = np.repeat([1, 2, 0], 6)[None].astype(np.int32)
    pos = np.where(seg > 0, np.tile(np.arange(6), 3)[None], 0).astype(np.int32)
    packed = reconstruct(model, Side(VECTORS.reshape(1, 18, CHANNELS), pos, seg))
    assert np.allclose(packed[0, :12].reshape(2, 6, CHANNELS), alone[:2], rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def codes():
    module = Codes(CONFIG, jnp.dtype("float32"))
    x = jnp.asarray(RNG.normal(size=(2, 8, CONFIG.d_model)), "float32")
    return module, nn.unbox(module.init(jax.random.key(0), x))["params"], x


def test_normal_latents_have_noise_in_training_alone():
    """Mean and deviation over many draws are those that the map gives, and the penalty is the
    divergence from a standard normal distribution, by quadrature.
    """
    module = Gaussian(VARIATIONAL, jnp.dtype("float32"))
    x = jnp.asarray(RNG.normal(size=(1, 2, VARIATIONAL.d_model)), "float32")
    key = jax.random.key(0)
    params = nn.unbox(module.init(key, x, False))["params"]
    kernel, bias = (np.float64(params["enter"][name]) for name in ("kernel", "bias"))
    mean, log_variance = np.split(np.float64(x) @ kernel + bias, 2, axis=-1)
    out, back = (np.float64(params["leave"][name]) for name in ("kernel", "bias"))
    quiet = module.apply({"params": params}, x, False)
    assert np.allclose(quiet.x, mean @ out + back, atol=1e-5)
    assert np.allclose(module.apply({"params": params}, x, method="of"), mean, atol=1e-5)
    grid = np.linspace(-80, 80, 40_001)
    deviation = np.exp(log_variance / 2)[..., None]
    away = (grid - mean[..., None]) / deviation
    density = np.exp(-np.square(away) / 2) / deviation / np.sqrt(2 * np.pi)
    logs = np.square(grid) / 2 - np.square(away) / 2 - np.log(deviation)
    nats = (density * logs).sum(-1) * (grid[1] - grid[0])
    assert np.allclose(quiet.penalty, 0.3 * nats.sum(-1), rtol=1e-4)
    many = jnp.tile(x, (4000, 1, 1))
    noisy = module.apply({"params": params}, many, True, rngs={"dropout": key}).x
    z = (np.float64(noisy) - back) @ np.linalg.pinv(out)
    assert np.allclose(z.mean(0), mean[0], atol=0.1)
    assert np.allclose(z.std(0), deviation[0, ..., 0], rtol=0.1)


def directions(codes):
    """Return positions and codes scaled to length 1, computed by hand in float64."""
    _, params, x = codes
    kernel, bias = (np.float64(params["enter"][name]) for name in ("kernel", "bias"))
    near, table = np.float64(x) @ kernel + bias, np.float64(params["table"])
    return [rows / np.linalg.norm(rows, axis=-1, keepdims=True) for rows in (near, table)]


def test_the_nearest_code_is_found_by_direction(codes):
    module, params, x = codes
    near, table = directions(codes)
    away = np.square(near[..., None, :] - table).sum(-1)
    assert np.array_equal(module.apply({"params": params}, x, method="of"), away.argmin(-1))
    found = module.apply({"params": params}, x)
    kernel, bias = (np.float64(params["leave"][name]) for name in ("kernel", "bias"))
    assert np.allclose(found.x, table[away.argmin(-1)] @ kernel + bias, atol=1e-5)
    assert np.allclose(found.penalty, 1.5 * away.min(-1), atol=1e-5)


def test_gradients_pass_straight_through_the_codes(codes):
    """The table gets the gradient of its own term alone; a position gets that of its code, as if
    passed straight through, and that of the commitment."""
    module, params, x = codes
    wanted = jnp.asarray(RNG.normal(size=x.shape), "float32")

    def loss(params, x, of_output, of_penalty):
        found = module.apply({"params": params}, x)
        return of_output * (found.x * wanted).sum() + of_penalty * found.penalty.sum()

    slope = jax.jit(jax.grad(loss, (0, 1)))
    by_output, by_penalty = slope(params, x, 1.0, 0.0), slope(params, x, 0.0, 1.0)
    assert not by_output[0]["table"].any()
    assert np.abs(by_output[1]).max() > 1e-3
    assert np.abs(by_penalty[0]["table"]).max() > 1e-3
    assert not by_penalty[0]["leave"]["kernel"].any()
    free = dataclasses.replace(CONFIG, commitment=0.0)
    without = jax.grad(
        lambda x: Codes(free, jnp.dtype("float32")).apply({"params": params}, x)[1].sum()
    )(x)
    assert not without.any()
    near, table = directions(codes)
    code = table[np.square(near[..., None, :] - table).sum(-1).argmin(-1)]

    def as_if(x):
        entered = x @ params["enter"]["kernel"] + params["enter"]["bias"].reshape(1, 1, -1)
        unit = entered / jnp.linalg.norm(entered, axis=-1, keepdims=True)
        back = (wanted @ params["leave"]["kernel"].T * unit).sum()
        return back + 0.5 * jnp.square(unit - code.astype("float32")).sum()

    both = slope(params, x, 1.0, 1.0)[1]
    assert np.allclose(both, jax.grad(as_if)(x), atol=1e-4)
