"""Biases of experts move by the rule, and nothing else does."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny import MODEL, alone, make, random_store

from transformer_jax.config import ModelConfig, TrainingConfig
from transformer_jax.models.build import build
from transformer_jax.nn.roles import LOAD, PLAIN
from transformer_jax.training.moved import moved, without_reports
from transformer_jax.training.state import TrainState
from transformer_jax.training.step import batch_sums, keys_of, make_train_step

CONFIG = dataclasses.replace(
    MODEL, feed_forward_pattern=("experts",), num_experts=4, balancing_rate=0.01, dropout_rate=0.0
)
BATCH = alone(random_store([(5, 7), (3, 9), (8, 8), (6, 4)] * 4), 16, 10, 10)


def tree(bias):
    bias = jnp.asarray(bias, jnp.float32)
    return {"layer": {"router": {"load_bias": bias}, "bias": jnp.ones(2)}}


def test_the_rule():
    """Loads are 4, 2, 0, 2 of 8: the first expert is chosen too often, the third too seldom."""
    params, loads = tree([1, 2, 3, 4]), tree([4, 2, 0, 2])
    roles = {"layer/router/load_bias": LOAD, "layer/bias": PLAIN}
    config = ModelConfig(balancing_rate=0.5)
    found = moved(params, tree([9, 9, 9, 9]), loads, config, roles)
    expected = tree([0.5, 2, 3.5, 4])
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    jax.tree.map(np.testing.assert_array_equal, without_reports(loads, roles), tree([0, 0, 0, 0]))


def biases(params):
    """Return the biases of all layers."""
    return [
        np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
        if path[-1].key == "load_bias"
    ]


def state_of(config, tx):
    _, params = make(config)
    return TrainState(np.int32(0), np.int32(0), params, tx.init(params))


@functools.cache
def one_step(training, config=CONFIG):
    """Return the parameters after a step, and its metrics."""
    tx = optax.sgd(0.1)
    model = build(config, 30, 30)
    step = jax.jit(make_train_step(model, tx, training, seed=0))
    state, metrics = step(state_of(config, tx), BATCH)
    return state.params, metrics


def gradient(config):
    """Return the gradient of the mean loss, with loads in place of those of biases."""
    model, params = make(config)

    def loss(params, batch):
        sums = batch_sums(model, TrainingConfig(), params, batch, keys_of(0, 0, 1))
        return sums.loss / sums.weight

    return jax.jit(jax.grad(loss))(params, BATCH)


@pytest.mark.thorough
def test_a_step_moves_each_bias_by_the_rate():
    before, (after, metrics) = make(CONFIG)[1], one_step(TrainingConfig())
    steps = np.concatenate([b - a for a, b in zip(biases(before), biases(after), strict=True)])
    np.testing.assert_allclose(np.abs(steps[steps != 0]), 0.01, rtol=1e-3)
    assert (steps > 0).any()
    assert (steps < 0).any()
    named = jax.tree_util.tree_leaves_with_path(gradient(CONFIG))
    others = [leaf for path, leaf in named if path[-1].key != "load_bias"]
    np.testing.assert_allclose(metrics.grad_norm, jax.jit(optax.tree.norm)(others), rtol=1e-5)
    each = list(metrics.reports["busiest_expert"].values())
    moves = [b - a for a, b in zip(biases(before), biases(after), strict=True)]
    for load, move in zip(each, moves, strict=True):
        assert load.sum() > 0
        np.testing.assert_array_equal(np.sign(move), np.sign(load.mean() - load))
    assert metrics.gauges["busiest_expert"] == max(load.max() / load.mean() for load in each)
    layers = metrics.reports["busiest_expert"]
    assert {name.partition("/")[0] for name in layers} == {"encoder", "decoder"}
    still, _ = one_step(TrainingConfig(), dataclasses.replace(CONFIG, balancing_rate=0.0))
    jax.tree.map(np.testing.assert_array_equal, biases(still), biases(before))


@pytest.mark.thorough
def test_slices_of_a_batch_move_biases_as_a_whole_one():
    whole, _ = one_step(TrainingConfig())
    parts, _ = one_step(TrainingConfig(accumulation_steps=4))
    jax.tree.map(np.testing.assert_array_equal, biases(parts), biases(whole))


@pytest.mark.thorough
def test_experts_become_equally_busy():
    """From a bias that makes all tokens choose the same two, training spreads them."""
    config = dataclasses.replace(CONFIG, balancing_rate=0.1)
    tx = optax.sgd(0.01)
    model = build(config, 30, 30)
    state = state_of(config, tx)

    def skewed(path, leaf):
        return np.asarray([1, 1, 0, 0], np.float32) if path[-1].key == "load_bias" else leaf

    state = dataclasses.replace(
        state, params=jax.tree_util.tree_map_with_path(skewed, state.params)
    )
    step = jax.jit(make_train_step(model, tx, TrainingConfig(), seed=0))
    spread = []
    for _ in range(40):
        before = biases(state.params)
        state, _ = step(state, BATCH)
        moved = np.stack([b - a for a, b in zip(before, biases(state.params), strict=True)])
        spread.append(moved)
    assert all((row[:2] < 0).all() and (row[2:] > 0).all() for row in spread[0])
    late = np.sum(spread[20:], axis=0)
    assert np.abs(late).max() < 0.1 * 20 / 2  # they no longer move in one direction
