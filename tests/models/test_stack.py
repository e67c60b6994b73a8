"""The form of the loop over layers changes the memory used, not the model."""

import dataclasses

import jax
import numpy as np
import pytest
from tiny import MODEL, SMALL_TABLES, VOCAB, alone, for_model, random_params, random_store

from transformer_jax.config import TrainingConfig
from transformer_jax.models.build import abstract_params, build
from transformer_jax.models.model import Keys
from transformer_jax.training.step import batch_sums, keys_of

# Layers take time to compile: two make a loop, with few operations. On a mesh, both stacks run
# in each form.
DEEP = dataclasses.replace(
    MODEL, architecture="decoder", num_encoder_layers=6, num_decoder_layers=2, dropout_rate=0.3,
    biases=(), norm="rms_norm", relative_positions="t5", **SMALL_TABLES["t5"],
)  # fmt: skip
BATCH = alone(random_store([(5, 7), (6, 8)]), 2, 6, 8)
BATCH = for_model(DEEP, jax.device_put(BATCH))
FORMS = {
    "scan": {"layer_loop": "scan"},
    "scan-full": {"layer_loop": "scan", "remat": "full"},
    "dots": {"remat": "dots"},
}


def gradient(config):
    model = build(config, VOCAB, VOCAB)

    def loss(params, key):
        return batch_sums(model, TrainingConfig(), params, BATCH, Keys(key, key)).loss

    return jax.jit(jax.value_and_grad(loss)), random_params(model)


@pytest.fixture(scope="module")
def plain():
    f, params = gradient(DEEP)
    return f(params, jax.random.key(3))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("form", ["scan-full", "dots"])
def test_loops_and_remat_change_no_loss_and_no_gradient(form, plain):
    """With dropout."""
    f, params = gradient(dataclasses.replace(DEEP, **FORMS[form]))
    (loss, grads), (expected_loss, expected) = f(params, jax.random.key(3)), plain
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-6)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), grads, expected
    )


def test_a_loop_without_remat_has_the_same_loss(plain):
    """Gradients in a loop are tested above."""
    model = build(dataclasses.replace(DEEP, **FORMS["scan"]), VOCAB, VOCAB)
    sums = jax.jit(lambda p, key: batch_sums(model, TrainingConfig(), p, BATCH, Keys(key, key)))
    loss = sums(random_params(model), jax.random.key(3)).loss
    np.testing.assert_allclose(loss, plain[0], rtol=1e-6)


def test_parameters_are_stored_per_layer():
    """Names and shapes do not depend on the form of the loop."""
    trees = [
        abstract_params(build(dataclasses.replace(DEEP, **form), VOCAB, VOCAB))
        for form in ({}, *FORMS.values())
    ]
    assert all(tree == trees[0] for tree in trees)
    assert {"layer_0", "layer_1"} <= trees[0]["decoder"].keys()


def test_each_remat_policy_keeps_less_than_the_last():
    """Of what the forward pass saves for the backward pass."""
    kept = []
    for remat in ("none", "dots", "full"):
        model = build(dataclasses.replace(DEEP, remat=remat), VOCAB, VOCAB)
        params = random_params(model)

        def back(params, model=model):
            def loss(p):
                keys = keys_of(0, 0, 1)
                return batch_sums(model, TrainingConfig(), p, BATCH, keys).loss

            return jax.vjp(loss, params)[1]

        leaves = jax.tree.leaves(jax.eval_shape(back, params))  # nothing is computed
        kept.append(sum(leaf.size * leaf.dtype.itemsize for leaf in leaves))
    assert kept[0] > kept[1] > kept[2], kept
