"""The key-value cache in a decoding step."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import pytest
from tiny import MODEL, random_params

from transformer_jax.data.batches.batch import Side
from transformer_jax.decoding.stepper import stepper_of
from transformer_jax.models.build import build

ROWS, WIDTH, ROOM = 3, 5, 11


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="of XLA on a CPU")
def test_a_bfloat16_step_does_not_convert_the_cache():
    """It would convert all slots to float32 and back for each new token."""
    config = dataclasses.replace(MODEL, compute_dtype="bfloat16")
    model = build(config, 16, 16)
    params = random_params(model)
    ids = jnp.ones((ROWS, 4), jnp.int32)
    pos = jnp.broadcast_to(jnp.arange(4), ids.shape)

    def start(params):
        stepper = stepper_of(model, params)
        return stepper.start(stepper.context(Side(ids, pos, ids)), WIDTH, ROOM)

    def step(params, leaves):
        state = jax.tree.unflatten(tree, leaves)
        given = jnp.ones((ROWS, WIDTH, 1), jnp.int32), pos[:, :1], jnp.ones(ROWS, bool)
        return stepper_of(model, params).step(state, *given)

    leaves, tree = jax.tree.flatten(jax.jit(start)(params))
    program = jax.jit(step, donate_argnums=1).lower(params, leaves).compile().as_text()
    keys = f"{ROWS},{config.num_heads},{config.key_size},{WIDTH * ROOM}"
    assert re.search(rf"\[{keys}\]", program)
    assert not re.findall(rf"= \w+\[{keys}\]\S* convert\(", program)
