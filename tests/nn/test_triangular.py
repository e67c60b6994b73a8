"""Triangular systems by products of blocks, against SciPy's substitution and differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from transformer_jax.config import ModelConfig
from transformer_jax.nn.mixers.kinds import MIXERS
from transformer_jax.nn.mixers.triangular import inverse, solve
from transformer_jax.nn.view import self_view

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("count", [1, 2, 3, 16, 21, 64])
def test_solutions_are_those_of_substitution(count):
    """Whatever stands on and above the diagonal; of any number of equations."""
    below, right = RNG.normal(size=(2, 3, count, count)) / count, RNG.normal(size=(2, 3, count, 4))
    with jax.enable_x64(True):
        found = np.asarray(solve(jnp.asarray(below), jnp.asarray(right)))
        inverted = np.asarray(inverse(jnp.asarray(below)))
    for at in np.ndindex(2, 3):
        system = np.eye(count) + np.tril(below[at], -1)
        options = {"lower": True, "unit_diagonal": True}
        expected = scipy.linalg.solve_triangular(system, right[at], **options)
        np.testing.assert_allclose(found[at], expected, 1e-12, 1e-12)
        np.testing.assert_allclose(inverted[at] @ system, np.eye(count), 1e-12, 1e-12)


def test_gradients():
    """By differences, in a random direction; none of what is not below the diagonal."""
    with jax.enable_x64(True):
        given = jnp.asarray(RNG.normal(size=(5, 5)) / 5), jnp.asarray(RNG.normal(size=(5, 2)))
        way = [jnp.asarray(RNG.normal(size=x.shape)) for x in given]

        def total(*given):
            return jnp.sin(solve(*given)).sum()

        gradients = jax.grad(total, (0, 1))(*given)
        ahead, behind = (
            [x + step * w for x, w in zip(given, way, strict=True)] for step in (1e-5, -1e-5)
        )
        slope = (total(*ahead) - total(*behind)) / 2e-5
        assert sum(jnp.vdot(g, w) for g, w in zip(gradients, way, strict=True)) == (
            pytest.approx(float(slope), rel=1e-8)
        )
    assert not np.triu(gradients[0]).any()


def test_float32_is_as_near_as_substitution():
    """Of systems as layers have them: products of keys, times strengths below 1."""
    keys = RNG.normal(size=(64, 16))
    keys /= np.linalg.norm(keys, axis=1, keepdims=True)
    below = RNG.uniform(size=(64, 1)) * (keys @ keys.T)
    right = RNG.normal(size=(64, 8))
    exact = np.linalg.solve(np.eye(64) + np.tril(below, -1), right)
    system = np.asarray(np.eye(64) + np.tril(below, -1), np.float32)
    plain = scipy.linalg.solve_triangular(system, right.astype(np.float32), lower=True)
    found = solve(jnp.asarray(below, jnp.float32), jnp.asarray(right, jnp.float32))
    assert np.abs(found - exact).max() < 4 * np.abs(plain - exact).max()


@pytest.mark.parametrize("kind", ["delta_rule", "gated_delta", "bigated_delta", "rwkv7", "birwkv7"])
def test_no_layer_waits_for_a_solver(kind):
    """Two of XLA's batched solvers at once never end where a CPU's pool has two threads."""
    config = ModelConfig(d_model=16, num_heads=4, num_kv_heads=4, state_heads=4, state_size=4)
    mixer = MIXERS[kind](config, jnp.dtype("float32"))
    pos = jnp.arange(70)[None]
    view = self_view(pos, jnp.ones_like(pos), "all" if kind.startswith("bi") else "causal")

    def total(x):
        params = mixer.init(jax.random.key(0), x, view, False, method="mix")
        return mixer.apply(params, x, view, False, method="mix")[0].sum()

    program = str(jax.make_jaxpr(jax.grad(total))(jnp.ones((1, 70, 16))))
    assert "dot_general" in program
    assert "triangular_solve" not in program
