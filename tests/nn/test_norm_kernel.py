"""The kernel of a norm's gradients equals the gradients of its definition."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.nn import norm, norm_kernel

RNG = np.random.default_rng(0)
EPSILON = 1e-3


def definition(x, scale, bias, centred: bool):
    x = x - x.mean(-1, keepdims=True) if centred else x
    return x / jnp.sqrt((x**2).mean(-1, keepdims=True) + EPSILON) * scale[None, None] + bias


def given(shape):
    x, slopes = (jnp.asarray(RNG.normal(size=shape) + 1, jnp.float32) for _ in range(2))
    return x, jnp.asarray(RNG.normal(size=shape[-1]), jnp.float32), slopes


def expected(x, scale, slopes, centred: bool):
    zeros = jnp.zeros_like(scale)
    pull = jax.vjp(functools.partial(definition, centred=centred), x, scale, zeros[None, None])[1]
    return [part.reshape(-1) for part in pull(slopes)]


def agree(found, wanted) -> None:
    for one, two in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.reshape(-1), two, rtol=1e-4, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("centred", [True, False])
@pytest.mark.parametrize("shape", [(2, 3, 8), (4, 33, 100), (7, 50, 512)])
def test_gradients_equal_those_of_the_definition(shape, centred, monkeypatch):
    """Of widths that are no power of 2, and of vectors that are no multiple of a program's."""
    monkeypatch.setattr(norm_kernel, "_PROGRAMS", 5)
    parts = given(shape)
    kernel = functools.partial(norm_kernel.gradients, epsilon=EPSILON, centred=centred)
    agree(kernel(*parts, interpret=True), expected(*parts, centred))
    x, scale, slopes = parts
    agree(norm._gradients(x, scale, slopes, EPSILON, centred), expected(*parts, centred))
