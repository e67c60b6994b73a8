"""Twenty steps of any optimizer in float64, for comparisons."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax

from transformer_jax.config import OptimizerConfig
from transformer_jax.nn.roles import roles_in
from transformer_jax.training.optimizer import make_optimizer
from transformer_jax.training.schedule_free import mean_of

RATE, DECAY, STEPS = 3e-3, 0.1, 20
# A kernel, square as that of SOAP's first products must have full rank; and what does not decay.
SHAPES = {"kernel": (6, 6), "bias": (5,)}


def drawn(seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape) for name, shape in SHAPES.items()}


START, GRADIENTS = drawn(0), [drawn(1 + step) for step in range(STEPS)]
CONFIGS = {
    "adam": OptimizerConfig("adam"),
    "muon": OptimizerConfig("muon", momentum=0.9, update_rms=0.3),
    "sgd": OptimizerConfig("sgd", momentum=0.8),
    "lion": OptimizerConfig("lion", b2=0.99),
    "adafactor": OptimizerConfig("adafactor"),
    "ademamix": OptimizerConfig("ademamix", b3=0.999, slow_weight=3.0, slow_warmup=15),
    "schedule_free": OptimizerConfig("schedule_free", b2=0.97),
    "shampoo": OptimizerConfig("shampoo", precondition_every=3),
    "soap": OptimizerConfig("soap", b1=0.95, b2=0.95, precondition_every=4),
}


def ours(config: OptimizerConfig, rates=(RATE,) * STEPS, start=START, gradients=GRADIENTS):
    """Return the parameters for use after all steps."""
    config = dataclasses.replace(config, weight_decay=DECAY)
    with jax.enable_x64(True):
        schedule = jnp.asarray(rates).__getitem__
        tx = make_optimizer(config, schedule, roles_in(start))
        params = jax.tree.map(jnp.asarray, start)
        state, update = jax.jit(tx.init)(params), jax.jit(tx.update)
        for gradient in gradients:
            updates, state = update(gradient, state, params)
            params = optax.apply_updates(params, updates)
        if config.record.averages:
            params = mean_of(params, state)
        return jax.device_get(params)


def assert_same(found, expected):
    """Check parameters after the steps, and that they have moved."""
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], x, rtol=1e-12, atol=1e-12, err_msg=name)
        assert np.abs(x - START[name]).max() > RATE
