"""Parameters cast once, for a search: results are those of parameters cast at every use."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import BASE, RECURRENT, UNPACKED, VARIANTS, VOCAB, random_params

from transformer_jax.data.batches.batch import Side
from transformer_jax.decoding.stepper import stepper_of
from transformer_jax.decoding.weights import in_compute_dtype
from transformer_jax.models.build import build

MODELS = VARIANTS | RECURRENT | UNPACKED
SOME = BASE, "llama", "bare", "t5", "albert", "gnmt", "latent", "features", "states"
REST = [pytest.param(name, marks=pytest.mark.e2e) for name in MODELS if name not in SOME]


@pytest.mark.one_in(9)
@pytest.mark.parametrize("name", [*SOME, *REST])
def test_results_are_the_same_bit_for_bit(name):
    config = dataclasses.replace(MODELS[name], compute_dtype="bfloat16")
    model = build(config, VOCAB, VOCAB)
    params = random_params(model)
    held = in_compute_dtype(model, params)

    @jax.jit
    def run(params):
        stepper = stepper_of(model, params)
        ids = jnp.array([[5, 6, 7], [8, 9, 0]])
        side = Side(ids, jnp.array([[0, 1, 2], [0, 1, 0]]), jnp.array([[1, 1, 1], [1, 1, 0]]))

        def step(state, position):
            tokens = jnp.array([[[4], [11]], [[12], [13]]]) + position
            given = jnp.full((2, 1), position), jnp.ones(2, bool)
            logits, _, state = stepper.step(state, tokens, *given)
            return state, logits

        # In a loop, as searches run it: a step is compiled once.
        return jax.lax.scan(step, stepper.start(stepper.context(side), 2, 4), jnp.arange(2))[1]

    found, expected = run(held), run(params)
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found, expected)
    kinds = {x.dtype for x in jax.tree.leaves(held)}
    assert kinds == {jnp.dtype("bfloat16"), jnp.dtype("float32")}


def test_models_that_compute_in_float32_keep_their_parameters():
    model = build(MODELS[BASE], VOCAB, VOCAB)
    params = random_params(model)
    assert {x.dtype for x in jax.tree.leaves(in_compute_dtype(model, params))} == {
        jnp.dtype("float32")
    }
