"""Muon against NumPy's singular values and optax's own iteration; Adam beside it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.traverse_util import flatten_dict
from optax.contrib._muon import orthogonalize_via_newton_schulz
from tiny import MODEL, RECURRENT, UNPACKED, VARIANTS, VOCAB, random_params, shapes

from transformer_jax.config import OptimizerConfig
from transformer_jax.config.choices.optimizers import OPTIMIZERS
from transformer_jax.models.build import build
from transformer_jax.nn.roles import roles_in
from transformer_jax.training import muon
from transformer_jax.training.muon import ITERATIONS, matrix, orthogonal
from transformer_jax.training.optimizer import make_optimizer
from transformer_jax.training.selected import rate_factors

RATE, RMS = 0.01, 0.3
CONFIG = OptimizerConfig(algorithm="muon", update_rms=RMS)


def random_matrix(seed: int, rows: int, columns: int, spread: float) -> np.ndarray:
    """Return a matrix with singular values from 1 down to `spread`."""
    draw = np.random.default_rng(seed)
    u = np.linalg.qr(draw.normal(size=(rows, rows)))[0]
    v = np.linalg.qr(draw.normal(size=(columns, columns)))[0][:rows]
    return ((u * np.geomspace(1, spread, rows)) @ v).astype(np.float32)


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (8, 24), (1, 5)])
@pytest.mark.parametrize("size", [1e-5, 1.0, 1e4])
def test_singular_values_become_one_and_singular_vectors_stay(rows, columns, size):
    x = random_matrix(rows, rows, columns, 0.1)
    u, _, v = np.linalg.svd(x, full_matrices=False)
    found = np.asarray(orthogonal(jnp.asarray(x * size)))
    values = u.T @ found @ v.T
    np.testing.assert_allclose(values, np.diag(np.diag(values)), atol=2e-3)
    # Jordan's coefficients trade exactness for speed: "about 1" is all they promise.
    assert np.all((np.diag(values) > 0.6) & (np.diag(values) < 1.25))


def by_optax(x: np.ndarray) -> np.ndarray:
    """Return a wide matrix orthogonalised by optax's iteration with the same coefficients."""
    coefficients = jnp.array([3.4445, -4.7750, 2.0315])
    return orthogonalize_via_newton_schulz(jnp.asarray(x), coefficients, ITERATIONS, "schatten")


def test_iteration_matches_optax():
    x = random_matrix(3, 12, 20, 1e-3)
    np.testing.assert_allclose(orthogonal(jnp.asarray(x)), by_optax(x), rtol=1e-4, atol=1e-5)


def test_zero_stays_zero():
    assert not np.any(orthogonal(jnp.zeros((3, 4))))


def test_attention_kernels_are_matrices_over_all_heads():
    """A projection from d_model to heads has d_model rows, and one back has d_model columns."""
    assert matrix((16, 4, 5)) == (16, 20)
    assert matrix((4, 5, 16)) == (20, 16)
    assert matrix((16, 24)) == (16, 24)
    assert matrix((512, 1, 64)) == (512, 64)


@pytest.mark.parametrize("b2", [0.98, 0.999])
def test_adam_matches_optax(b2):
    """Storing bias-corrected moments changes nothing: gradients of all sizes, 300 updates."""
    config = OptimizerConfig(b2=b2)
    ours = make_optimizer(config, lambda _: RATE, roles_in({"kernel": 0}))
    theirs = optax.adam(RATE, config.b1, config.b2, config.epsilon)
    params = {"kernel": jnp.zeros((4, 5))}
    states = [tx.init(params) for tx in (ours, theirs)]
    update_ours, update_theirs = jax.jit(ours.update), jax.jit(theirs.update)
    draw = np.random.default_rng(0)
    sizes = np.geomspace(1e-12, 1e3, 20).reshape(4, 5)
    for _ in range(300):
        gradient = {"kernel": jnp.asarray(draw.normal(size=(4, 5)) * sizes, jnp.float32)}
        found, states[0] = update_ours(gradient, states[0], params)
        expected, states[1] = update_theirs(gradient, states[1], params)
        # In float32, 1 - b2^t is accurate to four digits at the first update, in both.
        np.testing.assert_allclose(found["kernel"], expected["kernel"], rtol=1e-4, atol=1e-8)


def gradients(seed: int):
    params = random_params(build(dataclasses.replace(MODEL, biases=()), VOCAB, VOCAB))
    leaves, structure = jax.tree.flatten(params)
    draw = np.random.default_rng(seed)
    drawn = [jnp.asarray(draw.normal(size=leaf.shape), jnp.float32) for leaf in leaves]
    return params, jax.tree.unflatten(structure, drawn)


def updates(tx, params, *steps):
    state, step = jax.jit(tx.init)(params), jax.jit(tx.update)
    for gradient in steps:
        update, state = step(gradient, state, params)
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree.leaves_with_path(update)}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("together", ["a few", "all"])
def test_muon_updates_kernels_and_adam_the_rest(monkeypatch, together):
    """After two steps, each kernel compared with optax's iteration."""
    monkeypatch.setattr(muon, "on_cpu", lambda: together == "a few")
    (params, first), (_, second) = gradients(1), gradients(2)
    found = updates(make_optimizer(CONFIG, lambda _: RATE, roles_in(params)), params, first, second)
    adam = OptimizerConfig()
    adams = updates(make_optimizer(adam, lambda _: RATE, roles_in(params)), params, first, second)
    one, two = (updates(optax.identity(), params, gradient) for gradient in (first, second))
    kernels = [name for name in found if name.endswith("['kernel']")]
    assert 0 < len(kernels) < len(found)
    for name, update in found.items():
        if name not in kernels:
            np.testing.assert_array_equal(update, adams[name])
            continue
        # Nesterov momentum: this gradient, and the decayed sum once more.
        last, before = np.asarray(two[name]), np.asarray(one[name])
        momentum = last + 0.95 * (last + 0.95 * before)
        rows, columns = matrix(update.shape)
        flat = momentum.reshape(rows, columns)
        expected = by_optax(flat) if rows <= columns else by_optax(flat.T).T
        size = RATE * RMS * np.sqrt(max(rows, columns))
        found_matrix = np.reshape(update, (rows, columns))
        np.testing.assert_allclose(found_matrix, -size * expected, rtol=1e-3, atol=1e-4 * size)
        assert np.sqrt(np.mean(np.square(update))) == pytest.approx(RATE * RMS, rel=0.3)


def frozen_of(params, name):
    return jax.tree_util.tree_map_with_path(lambda path, _: path[0].key == name, params)


@pytest.mark.parametrize("fixed", [None, "embedding"])
def test_clipping_uses_the_gradient_norm_of_trained_parameters(fixed):
    """By hand, in NumPy; only the first of two gradients is clipped, so that moments differ."""
    (params, first), (_, second) = gradients(1), gradients(2)
    first = jax.tree.map(lambda x: 100 * x, first)
    frozen = None if fixed is None else lambda params: frozen_of(params, fixed)
    moving = [x for path, x in jax.tree.leaves_with_path(first) if path[0].key != fixed]
    norm = np.sqrt(sum(np.square(leaf, dtype=np.float64).sum() for leaf in moving))
    bound = float(norm) / 7
    found = updates(
        make_optimizer(OptimizerConfig(clip_norm=bound), lambda _: RATE, roles_in(params), frozen),
        params, first, second,
    )  # fmt: skip
    expected = updates(
        make_optimizer(OptimizerConfig(), lambda _: RATE, roles_in(params), frozen),
        params, jax.tree.map(lambda x: x / 7, first), second,
    )  # fmt: skip
    for name, update in found.items():
        np.testing.assert_allclose(update, expected[name], rtol=1e-4, atol=1e-8)
        assert np.any(update) == (fixed is None or fixed not in name)


def test_updates_are_scaled_by_the_rate_factors_of_their_names():
    params, gradient = gradients(1)
    config = OptimizerConfig(rate_factors=(".*embedding/.*=0.5", ".*bias=3"), layer_decay=0.9)
    found = updates(make_optimizer(config, lambda _: RATE, roles_in(params)), params, gradient)
    plain = updates(
        make_optimizer(OptimizerConfig(), lambda _: RATE, roles_in(params)), params, gradient
    )
    factors = {
        jax.tree_util.keystr(path): factor
        for path, factor in jax.tree.leaves_with_path(rate_factors(config, params))
    }
    assert len(set(factors.values())) == 3
    for name, update in found.items():
        np.testing.assert_allclose(update, factors[name] * plain[name], rtol=1e-6)


# Parameters with two or more axes that are not kernels: updated by Adam, without weight decay.
BY_ADAM = {
    "bias", "content_bias", "position_bias", "recurrent_bias", "scale",
    "distances", "keys", "values", "key_places", "query_places", "sigma",
    "recurrent_kernel", "query", "outward",
    "depthwise", "log_decay", "frequency", "real", "imaginary", "backward_real",
    "backward_imaginary", "mixtures", "decay_bias", "rate_bias", "erased", "replaced", "bonus",
    "weight", "damping", "expansion", "projection",
}  # fmt: skip


@pytest.mark.thorough
def test_every_matrix_parameter_is_listed_as_decayed_or_not():
    """A new name requires an explicit choice."""
    found = set()
    for config in (VARIANTS | RECURRENT | UNPACKED).values():
        leaves = flatten_dict(shapes(build(config, VOCAB, VOCAB)))
        found |= {path[-1] for path, leaf in leaves.items() if leaf.ndim > 1}
    assert found == BY_ADAM | {"kernel", "kernels", "table"}


def test_muon_and_weight_decay_treat_each_expert_as_a_map_of_its_own():
    rng = np.random.default_rng(0)
    together, gradient = (jnp.asarray(rng.normal(size=(3, 4, 6)), jnp.float32) for _ in range(2))
    config = dataclasses.replace(CONFIG, weight_decay=0.1)

    def update(params, gradient):
        tx = make_optimizer(config, lambda _: RATE, roles_in(params))
        return tx.update(gradient, tx.init(params), params)[0]

    found = update({"up": {"kernels": together}}, {"up": {"kernels": gradient}})["up"]["kernels"]
    for number, mine in enumerate(found):
        alone, own = ({"kernel": x[number]} for x in (together, gradient))
        np.testing.assert_allclose(mine, update(alone, own)["kernel"], rtol=1e-4, atol=1e-7)


def test_updates_do_not_depend_on_the_scale_of_gradients():
    params, gradient = gradients(4)
    larger = jax.tree.map(lambda x: 1000 * x, gradient)
    tx = make_optimizer(CONFIG, lambda _: RATE, roles_in(params))
    one, other = updates(tx, params, gradient), updates(tx, params, larger)
    for name, update in one.items():
        np.testing.assert_allclose(update, other[name], rtol=2e-3, atol=1e-6)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("algorithm", OPTIMIZERS)
def test_weight_decay_applies_only_to_kernels_and_tables(algorithm):
    params, gradient = gradients(1)
    found, plain = (
        updates(make_optimizer(config, lambda _: RATE, roles_in(params)), params, gradient)
        for config in (
            OptimizerConfig(algorithm=algorithm, weight_decay=0.5),
            OptimizerConfig(algorithm=algorithm),
        )
    )
    values = updates(optax.identity(), params, params)
    decayed = 0
    for name, update in found.items():
        share = RATE * 0.5 if "'kernel'" in name or "'table'" in name else 0.0
        decayed += share > 0
        np.testing.assert_allclose(update, plain[name] - share * values[name], rtol=1e-5, atol=1e-7)
    assert 0 < decayed < len(found)
