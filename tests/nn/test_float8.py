"""Products in 8 bits: what is exact, how far the rest may be off, and where they are used."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import MODEL, VARIANTS, VOCAB, alone, for_model, logits_of, random_params, random_store

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import load_config
from transformer_jax.config.convert import parse
from transformer_jax.decoding.weights import computing_in
from transformer_jax.models.build import build
from transformer_jax.nn import float8
from transformer_jax.nn.float8 import BACKWARD, FORWARD, multiply, rounded
from transformer_jax.nn.linear import Project

RNG = np.random.default_rng(0)
SMALL = RNG.integers(-15, 16, (6, 8)).astype(np.float32)  # whole numbers of four bits
KERNEL = RNG.integers(-15, 16, (8, 5)).astype(np.float32)


@pytest.mark.parametrize("dtype", [FORWARD, BACKWARD])
@pytest.mark.parametrize("largest", [1e-32, 0.017, 1.0, 448.0, 57344.0, 3e38])
def test_the_largest_number_just_fits(dtype, largest):
    """A scale is a power of two; twice the numbers in it would overflow."""
    x = jnp.asarray(largest * RNG.uniform(-1, 1, 1000), jnp.float32).at[7].set(largest)
    narrow, scale = rounded(x, dtype)
    limit = float(jnp.finfo(dtype).max)
    assert np.frexp(float(scale))[0] == 0.5
    assert limit / 2 <= float(jnp.abs(x).max() / scale) <= limit or largest < 2**-100
    assert np.isfinite(np.asarray(narrow, np.float32)).all()
    off = np.abs(np.asarray(narrow, np.float32) * float(scale) - x)
    normal = np.abs(x) > float(scale) * float(jnp.finfo(dtype).tiny)
    half = 2.0 ** -(jnp.finfo(dtype).nmant + 1)  # of a unit in the last place
    assert (off[normal] <= half * np.abs(x)[normal]).all()


def test_zeros_stay_and_what_is_not_finite_is_seen():
    narrow, scale = rounded(jnp.zeros(4, jnp.bfloat16), FORWARD)
    assert (not np.asarray(narrow, np.float32).any(), scale.dtype) == (True, jnp.bfloat16)
    for bad in (np.inf, -np.inf, np.nan):
        x = jnp.asarray(SMALL).at[2, 3].set(bad)
        assert np.isnan(np.asarray(multiply(x, jnp.asarray(KERNEL), 1))).all()


@pytest.mark.parametrize("scale", [1.0, 2.0**-30, 2.0**40])
def test_products_of_few_bits_are_exact(scale):
    """And so are gradients, of slopes of three bits."""
    slopes = RNG.integers(-7, 8, (6, 5)).astype(np.float32) * scale
    y, back = jax.vjp(
        lambda x, w: multiply(x, w, 1), jnp.asarray(SMALL * scale), jnp.asarray(KERNEL)
    )
    np.testing.assert_array_equal(y, SMALL @ KERNEL * scale)
    dx, dkernel = back(jnp.asarray(slopes))
    np.testing.assert_array_equal(dx, slopes @ KERNEL.T)
    np.testing.assert_array_equal(dkernel, SMALL.T @ slopes * scale)


@pytest.mark.parametrize("in_axes", [1, 2])
def test_several_axes_are_as_one(in_axes):
    x, kernel = RNG.normal(size=(2, 3, 4, 6)), RNG.normal(size=(4, 6, 5, 2)[2 - in_axes :])
    flat = x.reshape(-1, 6 if in_axes == 1 else 24), kernel.reshape(6 if in_axes == 1 else 24, -1)
    found = multiply(jnp.asarray(x, jnp.float32), jnp.asarray(kernel, jnp.float32), in_axes)
    expected = multiply(*(jnp.asarray(a, jnp.float32) for a in flat), 1)
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=1e-6)


def test_maps_use_them_inside_alone():
    x = jnp.asarray(RNG.normal(size=(3, 7, 8)), jnp.float32)
    maps = Project((8,), (4, 2), ("a", "b", "c"), jnp.dtype("float32"))
    params = maps.init(jax.random.key(0), x)
    plain = maps.apply(params, x)
    with float8.in_float8(True):
        narrow = maps.apply(params, x)
        with float8.in_float8(False):
            np.testing.assert_array_equal(maps.apply(params, x), plain)
    off = np.abs(np.asarray(narrow - plain)).max() / np.abs(np.asarray(plain)).max()
    assert 1e-3 < off < 0.1
    np.testing.assert_array_equal(maps.apply(params, x), plain)


@pytest.mark.parametrize("architecture", ["decoder", "encoder_decoder"])
def test_layers_alone_use_them(architecture):
    """Of a model's products, those of maps in layers; nothing else changes."""
    base = MODEL if architecture == "encoder_decoder" else VARIANTS["decoder"]
    config = dataclasses.replace(base, compute_dtype="float8")
    model = build(config, VOCAB, VOCAB)
    assert model.dtype == jnp.bfloat16
    params, batch = random_params(model), alone(random_store([(5, 6)] * 4), 4, 6, 6)
    (searched,) = computing_in("model", [model])
    assert searched == build(dataclasses.replace(config, compute_dtype="bfloat16"), VOCAB, VOCAB)

    def program(of) -> str:
        given = jax.device_put(for_model(config, batch))
        outputs = jax.make_jaxpr(lambda p: of.outputs(p, given, None)["tokens"].logits())
        return str(outputs(params))

    layers = sum(getattr(config, f"num_{stack}_layers") for stack in config.stacks)
    assert program(model).count("new_dtype=float8_e4m3fn") >= 2 * 6 * layers  # operands of 6 maps
    assert "float8" not in program(searched)
    near, exact = (np.asarray(logits_of(of, params, batch), np.float32) for of in (model, searched))
    assert 0 < np.abs(near - exact).max() < 0.2 * np.abs(exact).max()


def test_a_model_without_layers_is_refused():
    with pytest.raises(UserError, match=r"compute_dtype='float8': .*'recurrent' has not"):
        parse(load_config("predecessors:rnnsearch", [("model.compute_dtype", "float8")]))
