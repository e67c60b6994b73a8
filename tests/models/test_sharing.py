"""Shared layers, and layers that a step drops."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import MODEL, VARIANTS, VOCAB, alone, for_model, logits_of, random_params, random_store

from transformer_jax.config import TrainingConfig
from transformer_jax.models.build import build
from transformer_jax.models.model import Keys
from transformer_jax.models.stack import kept
from transformer_jax.training.step import batch_sums

KEY = jax.random.key(0)
BATCH = jax.device_put(alone(random_store([(5, 7), (6, 8)]), 2, 6, 8))
# Few operations, as layers take time to compile.
DECODER = dataclasses.replace(
    MODEL, architecture="decoder", num_encoder_layers=6, dropout_rate=0.0, window=2,
    num_decoder_layers=3, decoder_pattern=("full", "local"), biases=(), norm="rms_norm",
)  # fmt: skip


@functools.partial(jax.jit, static_argnums=0)
def loss_of(config, params, key=None):
    """Return the loss of a batch, in training mode if there is a key."""
    model = build(config, VOCAB, VOCAB)
    keys = None if key is None else Keys(key, key)
    return batch_sums(model, TrainingConfig(), params, for_model(config, BATCH), keys).loss


def gradient(config, params):
    return jax.jit(jax.value_and_grad(lambda p: loss_of(config, p)))(params)


def layers(params, numbers):
    """Return the parameters of a decoder with these layers, in this order."""
    stack = params["decoder"]
    rest = {name: leaf for name, leaf in stack.items() if not name.startswith("layer_")}
    found = {f"layer_{new}": stack[f"layer_{old}"] for new, old in enumerate(numbers)}
    return params | {"decoder": rest | found}


def test_shared_layers_equal_copies():
    """The same loss, and the sum of their gradients; also in a loop with rematerialisation."""
    shared = dataclasses.replace(DECODER, layer_sharing="all", layer_loop="scan", remat="full")
    params = random_params(build(shared, VOCAB, VOCAB))
    assert {"layer_0", "layer_1"} == params["decoder"].keys()
    expected_loss, grads = gradient(DECODER, layers(params, [0, 1, 0]))
    loss, found = gradient(shared, params)
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-6)
    first, second, third = (grads["decoder"].pop(f"layer_{i}") for i in range(3))
    grads["decoder"] |= {"layer_0": jax.tree.map(jnp.add, first, third), "layer_1": second}
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), found, grads)


def test_universal_layers_count_their_steps_in_a_loop():
    config = VARIANTS["universal"]
    params = random_params(build(config, VOCAB, VOCAB))
    again = dataclasses.replace(config, layer_loop="scan")
    ours, expected = (logits_of(build(c, VOCAB, VOCAB), params, BATCH) for c in (again, config))
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-5)
    # And steps differ from each other.
    same = dataclasses.replace(config, layer_sharing="all")
    assert np.abs(logits_of(build(same, VOCAB, VOCAB), params, BATCH) - expected).max() > 1e-3


DROPPING = dataclasses.replace(
    DECODER, num_decoder_layers=4, decoder_pattern=("full",), window=None, layer_drop_rate=0.5,
    layer_loop="scan",
)  # fmt: skip


@pytest.mark.thorough
def test_a_dropped_layer_has_no_effect():
    """Its gradient is exactly zero, and the loss is that of a model without it."""
    params = random_params(build(DROPPING, VOCAB, VOCAB))
    step = jax.jit(jax.value_and_grad(lambda p, key: loss_of(DROPPING, p, key)))
    counts = set()
    for seed in range(4):
        loss, grads = step(params, jax.random.key(seed))
        left = [
            number
            for number in range(4)
            if any(leaf.any() for leaf in jax.tree.leaves(grads["decoder"][f"layer_{number}"]))
        ]
        counts.add(len(left))
        if left:
            config = dataclasses.replace(
                DROPPING, num_decoder_layers=len(left), layer_drop_rate=0.0, layer_loop="unrolled"
            )
            np.testing.assert_allclose(loss, loss_of(config, layers(params, left)), rtol=1e-5)
    assert len(counts) > 1
    one_by_one = dataclasses.replace(DROPPING, layer_loop="unrolled")
    np.testing.assert_allclose(loss_of(one_by_one, params, jax.random.key(3)), loss, rtol=1e-6)


@pytest.mark.parametrize("rate", [0.2, 0.9])
def test_layers_are_dropped_at_the_given_rate(rate):
    draws = jax.vmap(lambda key: kept(key, rate))(jax.random.split(jax.random.key(0), 10_000))
    assert draws.mean() == pytest.approx(1 - rate, abs=0.015)


def test_evaluation_uses_all_layers():
    params = random_params(build(DROPPING, VOCAB, VOCAB))
    whole = dataclasses.replace(DROPPING, layer_drop_rate=0.0)
    ours, expected = (logits_of(build(c, VOCAB, VOCAB), params, BATCH) for c in (DROPPING, whole))
    np.testing.assert_array_equal(ours, expected)


def test_the_residual_stream_has_the_compute_dtype():
    """Traced only: bfloat16 through every new norm, vector and branch, forward and backward."""
    for residual in ("sandwich", "reordered_norm", "deep_norm"):
        config = dataclasses.replace(
            DROPPING, compute_dtype="bfloat16", residual=residual, layer_sharing="universal",
            embedding_norm="fix_norm", norm="layer_norm_no_bias", remat="dots", dropout_rate=0.1,
        )  # fmt: skip
        model = build(config, VOCAB, VOCAB)
        params = random_params(model)
        keys = Keys(KEY, KEY)
        output = jax.eval_shape(model.outputs, params, for_model(config, BATCH), keys)["tokens"]
        assert output.hidden.dtype == jnp.bfloat16
        jax.eval_shape(jax.grad(lambda p, config=config: loss_of(config, p, KEY)), params)
