"""Norms of zeros, as at padding; and squareplus."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.nn.distributions import squareplus
from transformer_jax.nn.norm import NORMS


@pytest.mark.parametrize("name", NORMS)
def test_gradients_at_zeros_are_finite(name):
    norm = NORMS[name](1e-6)
    x = jnp.zeros((1, 2, 4)).at[0, 0].set(jnp.arange(4.0))
    params = norm.init(jax.random.key(0), x)

    def loss(params, x):
        return jnp.sin(norm.apply(params, x)).sum()

    for leaf in jax.tree.leaves(jax.grad(loss, (0, 1))(params, x)):
        assert np.isfinite(leaf).all()
        assert np.any(leaf)


def test_squareplus_is_positive_and_its_logarithm_has_a_gradient():
    """In float32, x + sqrt(x^2 + 4) is 0 if x is far below 0."""
    x = np.array([-1e6, -8e3, -100.0, -1.0, 0.0, 3.0, 1e6])
    expected = (x + np.sqrt(np.square(x, dtype=np.longdouble) + 4)) / 2
    np.testing.assert_allclose(squareplus(jnp.float32(x)), np.float64(expected), rtol=1e-5)
    slopes = jax.grad(lambda x: jnp.log(squareplus(x)).sum())(jnp.float32(x))
    assert np.isfinite(slopes).all()
