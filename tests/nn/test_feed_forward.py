"""Feed-forward layers in chunks equal those over all at once; gradients of activations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.nn import feedforward
from transformer_jax.nn.feedforward import ACTIVATIONS, FeedForward, relu


@pytest.mark.one_in(2)
@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_chunking_does_not_change_the_output(activation):
    """Also with chunks of unequal length, and in the backward pass, which keeps less."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 7, 6)), jnp.float32)
    given = 6, 40, activation, 0.0, jnp.dtype("float32")
    params = FeedForward(*given).init(jax.random.key(0), x, False)
    others = FeedForward(*given, chunks=3).init(jax.random.key(0), x, False)
    jax.tree.map(np.testing.assert_array_equal, params, others)
    found, kept = [], []
    for chunks in (1, 3):
        layer = FeedForward(*given, chunks=chunks)

        def loss(params, x, layer=layer):
            return jnp.sum(jnp.sin(layer.apply(params, x, True)))

        found.append(jax.jit(jax.value_and_grad(loss, (0, 1)))(params, x))
        held = jax.eval_shape(lambda p, x, loss=loss: jax.vjp(loss, p, x)[1], params, x)
        kept.append(sum(leaf.size for leaf in jax.tree.leaves(held)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5), *found)
    assert kept[1] < kept[0]


def test_the_gradient_of_relu_needs_its_output_only():
    """It is that of `jax.nn.relu`, at 0 too, and its input is not stored."""
    x = jnp.asarray([-2.0, -0.0, 0.0, 1e-30, 3.0])
    y, pull = jax.vjp(relu, x)
    expected, theirs = jax.vjp(jax.nn.relu, x)
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(pull(x + 1)[0], theirs(x + 1)[0])
    (kept,) = jax.tree.leaves(pull)
    np.testing.assert_array_equal(kept, y)


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu", "mish"])
def test_an_accelerator_computes_an_activation_again(name, monkeypatch):
    """Its gradient is the same, and only the input is stored, which JAX's own form adds to."""
    function, x = ACTIVATIONS[name].function, jnp.linspace(-4, 4, 65)

    def loss(x):
        return jnp.sum(jnp.sin(function(x)))

    y, expected = jax.value_and_grad(loss)(x)
    plain = jax.eval_shape(lambda x: jax.vjp(function, x)[1], x)
    monkeypatch.setattr(feedforward, "on_cpu", lambda: False)
    found, gradient = jax.value_and_grad(loss)(x)
    assert found == y
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-7)
    (kept,) = jax.tree.leaves(jax.vjp(function, x)[1])
    np.testing.assert_array_equal(kept, x)
    assert len(jax.tree.leaves(plain)) > 1
