"""Every kind of layer in bfloat16, in compiled loops and with rematerialisation."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import (
    RECURRENT,
    UNPACKED,
    VARIANTS,
    VOCAB,
    alone,
    for_model,
    random_params,
    random_store,
    shapes,
)

from transformer_jax.config import TrainingConfig
from transformer_jax.models.build import build
from transformer_jax.models.model import Keys
from transformer_jax.training.step import batch_sums

BATCH = alone(random_store([(1 + i % 6, (6, 2, 4, 1)[i % 4]) for i in range(4)]), 4, 6, 7)
KINDS = VARIANTS | RECURRENT | UNPACKED
LOOPED = [
    name
    for name, config in (VARIANTS | UNPACKED).items()
    if config.residual != "reversible" and config.layer_drop_rate == 0
]


def made(config, dtype: str):
    model = build(config, VOCAB, VOCAB, dtype=dtype, single=config in UNPACKED.values())
    return model, jax.device_put(for_model(config, BATCH))


def gradient(config):
    """Return the shapes of a bfloat16 step's loss and gradients, all randomness included."""
    model, batch = made(config, "bfloat16")

    def loss(params, keys):
        return batch_sums(model, TrainingConfig(), params, batch, keys).loss

    return jax.eval_shape(
        jax.value_and_grad(loss), shapes(model), Keys(*jax.random.split(jax.random.key(0)))
    )


@pytest.mark.one_in(12, 1)
@pytest.mark.parametrize("name", KINDS)
def test_a_step_in_bfloat16_has_gradients_in_float32(name):
    loss, slopes = gradient(KINDS[name])
    assert loss.dtype == jnp.float32
    assert {leaf.dtype for leaf in jax.tree.leaves(slopes)} == {jnp.dtype("float32")}


@pytest.mark.one_in(12, 2)
@pytest.mark.parametrize("name", LOOPED)
def test_loops_and_rematerialisation_keep_dtypes(name):
    """The carry of a loop over layers of every kind keeps its dtype."""
    _, slopes = gradient(dataclasses.replace(KINDS[name], layer_loop="scan", remat="full"))
    assert {leaf.dtype for leaf in jax.tree.leaves(slopes)} == {jnp.dtype("float32")}


@pytest.mark.e2e
@pytest.mark.parametrize("name", KINDS)
def test_bfloat16_is_near_float32(name):
    logits = []
    for dtype in ("float32", "bfloat16"):
        model, batch = made(KINDS[name], dtype)
        run = jax.jit(lambda p, b, model=model: model.outputs(p, b, None)["tokens"].logits())
        logits.append(np.float64(run(random_params(model), batch))[np.asarray(batch.tgt.seg) > 0])
    one, other = logits
    assert np.linalg.norm(other - one) < 0.03 * np.linalg.norm(one)
