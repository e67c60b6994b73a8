"""The noise scale of gradients: its estimators, and what a step measures."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny import MODEL, VOCAB, alone, for_model, make, random_store

from transformer_jax.config import TrainingConfig
from transformer_jax.experiments.plan import _of_noise
from transformer_jax.models.build import build
from transformer_jax.training import report
from transformer_jax.training.noise import measured_noise, part_of
from transformer_jax.training.state import TrainState
from transformer_jax.training.step import batch_sums, make_train_step

CONFIG = dataclasses.replace(
    MODEL, architecture="decoder", num_encoder_layers=6, dropout_rate=0.0, biases=()
)
BATCH = for_model(CONFIG, alone(random_store([(3, 2 + i % 5) for i in range(14)]), 16, 8, 8))


def test_the_estimates_are_unbiased_whatever_the_sizes_of_slices():
    """Gradients of tokens are drawn around a true one: means over many batches, of slices of very
    different sizes, one of them empty.
    """
    rng = np.random.default_rng(0)
    true, spread = rng.normal(size=5), rng.uniform(0.5, 2, 5)
    weights = np.array([1.0, 7.0, 3.0, 0.0, 13.0])
    whole = weights.sum()
    found = []
    for _ in range(4000):
        means = [true + spread * rng.normal(size=5) / np.sqrt(max(w, 1)) for w in weights]
        parts = [w / whole * mean for w, mean in zip(weights, means, strict=True)]
        squares = sum(
            float(w > 0 and np.square(part).sum() * whole / w)
            for w, part in zip(weights, parts, strict=True)
        )
        norm = np.linalg.norm(sum(parts))
        found.append({k: float(v) for k, v in _numpy(norm, squares, 4, whole).items()})
    signal, noise = (
        np.mean([x[key] for x in found]) for key in ("gradient_signal", "gradient_noise")
    )
    assert signal == pytest.approx(np.square(true).sum(), rel=0.05)
    assert noise == pytest.approx(np.square(spread).sum(), rel=0.05)


def _numpy(norm, squares, count, whole):
    """The same as `measured_noise`, of which a test below holds one case against it."""
    return {
        "gradient_signal": (count * norm**2 - squares) / (count - 1),
        "gradient_noise": whole * (squares - norm**2) / (count - 1),
    }


def test_a_step_measures_its_slices():
    """Against gradients of the slices by themselves; training is the same as without."""
    model, params = build(CONFIG, VOCAB, VOCAB), make(CONFIG)[1]
    tx = optax.sgd(0.1)
    zero = jnp.zeros((), jnp.int32)

    def after(**training):
        step = make_train_step(model, tx, TrainingConfig(accumulation_steps=4, **training), 7)
        compiled = jax.jit(step, compiler_options={"xla_backend_optimization_level": 0})
        return compiled(TrainState(zero, zero, params, tx.init(params)), BATCH)

    state, metrics = after(noise_scale=True)
    plain, bare = after()
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7),
        state.params, plain.params,
    )  # fmt: skip
    assert bare.noise == {}

    @jax.jit
    def of_slice(params, batch):
        def loss(params):
            sums = batch_sums(model, TrainingConfig(), params, batch, None)
            return sums.loss, sums.weight

        (_, weight), gradient = jax.value_and_grad(loss, has_aux=True)(params)
        return gradient, weight

    slices = [jax.tree.map(lambda x, i=i: x[i::4], BATCH) for i in range(4)]
    gradients, weights = zip(*(of_slice(params, part) for part in slices), strict=True)
    whole = float(sum(weights))
    mine = [jax.tree.map(lambda x: x / whole, gradient) for gradient in gradients]
    squares = sum(float(part_of(g, w, whole)) for g, w in zip(mine, weights, strict=True))
    expected = _numpy(float(metrics.grad_norm), squares, 4, whole)
    assert metrics.noise.keys() == expected.keys()
    for key, value in expected.items():
        assert float(metrics.noise[key]) == pytest.approx(value, rel=1e-3)
    same = measured_noise(metrics.grad_norm, squares, 4, whole)
    assert float(same["gradient_noise"]) == pytest.approx(expected["gradient_noise"], rel=1e-3)


def test_the_scale_is_that_of_means():
    """And none where the true gradient is lost in the noise."""
    window = {"gradient_signal": 0.5, "gradient_noise": 100.0}
    assert report._noise_scale(window) == {"noise_scale": 200.0}
    assert np.isnan(report._noise_scale(window | {"gradient_signal": -0.1})["noise_scale"])
    assert report._noise_scale({}) == {}


def test_a_plan_warns_of_batches_far_beyond_the_scale():
    (line,) = _of_noise(1000, 1000.0)
    assert "1 x the noise scale: they take about 2 x the updates" in line
    line, warning = _of_noise(9000, 1000.0)
    assert "about 1.11 x the updates of very large ones, and 10 x the tokens" in line
    assert "1000 would take 1.8 x the updates and 0.2 x the tokens" in warning
