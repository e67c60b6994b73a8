"""Experts: every position is computed, alone, by those it chose; loads are what was chosen."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import MODEL

from transformer_jax.nn.experts import Experts, in_blocks, moved, multiplied, shape_of

CONFIG = dataclasses.replace(
    MODEL, feed_forward_pattern=("experts",), num_experts=5, activation="swiglu", shared_experts=2
)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("count", [1, 3, 40, 41, 700])
@pytest.mark.parametrize("skewed", [False, True])
def test_every_choice_has_a_slot_of_its_expert(count, skewed):
    """However choices fall on experts, also if all are of one."""
    rng = np.random.default_rng(count)
    chosen = np.full(count, 3) if skewed else rng.integers(0, 5, count)
    blocks = jax.tree.map(np.asarray, in_blocks(jnp.asarray(chosen), 5))
    number, size = shape_of(count, 5)
    assert (len(blocks.expert), len(blocks.choice)) == (number, number * size)
    assert len({*blocks.slot.tolist()}) == count
    np.testing.assert_array_equal(blocks.expert[blocks.slot // size], chosen)
    np.testing.assert_array_equal(blocks.choice[blocks.slot], np.arange(count))
    assert (blocks.choice == count).sum() == number * size - count  # all other slots are empty


def test_few_blocks_are_empty():
    """The work is at most a quarter more than without blocks, if there are many choices."""
    for choices in (64 * 1024, 63_999):
        number, size = shape_of(choices, 8)
        assert 1 <= number * size / choices < 1.26


def test_products_equal_those_of_each_choice_alone():
    """And their gradients, by which rows move back and matrices add up."""
    rng = np.random.default_rng(0)
    x, kernels = rng.normal(size=(60, 4)), rng.normal(size=(3, 4, 6))
    chosen = jnp.asarray(rng.integers(0, 3, 60))
    slopes = jnp.asarray(rng.normal(size=(60, 6)), jnp.float32)

    def in_all_blocks(x, kernels):
        blocks = in_blocks(chosen, 3)
        rows = moved(x, blocks.choice, blocks.slot).reshape(len(blocks.expert), -1, 4)
        y = multiplied(rows, kernels, blocks.expert).reshape(-1, 6)
        return (moved(y, blocks.slot, blocks.choice) * slopes).sum()

    def alone(x, kernels):
        return (jnp.einsum("ci,cio->co", x, kernels[chosen]) * slopes).sum()

    given = jnp.asarray(x, jnp.float32), jnp.asarray(kernels, jnp.float32)
    found, expected = (
        jax.jit(jax.value_and_grad(f, (0, 1)))(*given) for f in (in_all_blocks, alone)
    )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), found, expected
    )


def layer(config=CONFIG, dtype="float32", seed=0):
    """Return a layer of experts and random parameters."""
    module = Experts(config, jnp.dtype(dtype))
    given = jnp.zeros((1, 1, config.d_model)), False, jnp.ones((1, 1), bool)
    shapes = jax.eval_shape(lambda key: module.init(key, *given), jax.random.key(0))
    rng = np.random.default_rng(seed)
    shapes = nn.unbox(shapes)["params"]
    return module, jax.tree.map(
        lambda s: jnp.asarray(0.3 * rng.normal(size=s.shape), s.dtype), shapes
    )


def inputs(rows=3, length=7, seed=1):
    x = np.random.default_rng(seed).normal(size=(rows, length, CONFIG.d_model))
    return jnp.asarray(x, jnp.float32)


def test_no_position_depends_on_others():
    """Even if all choose the same experts: none is dropped. In decoding, each comes alone."""
    module, params = layer()
    params["router"]["load_bias"] = jnp.asarray([9.0, 9.0, 0.0, 0.0, 0.0])
    x, real = inputs(), jnp.ones((3, 7), bool)
    apply = jax.jit(lambda x, real: module.apply({"params": params}, x, False, real))
    whole = apply(x, real)
    for row in range(3):
        for place in range(7):
            one = apply(x[row : row + 1, place : place + 1], real[:1, :1])
            np.testing.assert_allclose(one[0, 0], whole[row, place], rtol=2e-5, atol=2e-5)


def loads(params, module, x, real):
    """Return what the router reports in place of its bias's gradient."""

    def loss(params):
        return module.apply({"params": params}, x, True, real).sum()

    return jax.jit(jax.grad(loss))(params)["router"]["load_bias"]


def test_loads_count_the_choices_of_real_positions():
    """Each chooses two; padding does not count, whatever it holds; and loads add up over slices."""
    module, params = layer()
    x, real = inputs(rows=4), jnp.asarray(np.random.default_rng(2).random((4, 7)) < 0.6)
    found = loads(params, module, x, real)
    assert found.sum() == 2 * real.sum()
    scores = np.asarray(jax.nn.softmax(x @ params["router"]["kernel"]))
    chosen = np.argsort(-(scores + np.asarray(params["router"]["load_bias"])), -1)[..., :2][
        np.asarray(real)
    ]
    np.testing.assert_array_equal(found, np.bincount(chosen.reshape(-1), minlength=5))
    noisy = jnp.where(real[..., None], x, 100.0)
    np.testing.assert_array_equal(loads(params, module, noisy, real), found)
    parts = [loads(params, module, x[i : i + 2], real[i : i + 2]) for i in (0, 2)]
    np.testing.assert_array_equal(sum(parts), found)


@pytest.mark.thorough
def test_the_bias_is_not_in_the_weights():
    """A bias that changes no choice changes nothing."""
    module, params = layer()
    x, real = inputs(), jnp.ones((3, 7), bool)
    other = params | {"router": params["router"] | {"load_bias": params["router"]["load_bias"] + 5}}
    found = [module.apply({"params": p}, x, False, real) for p in (params, other)]
    np.testing.assert_array_equal(*found)


def test_the_router_is_in_float32():
    """In bfloat16, scores that differ in the fourth digit are not rounded to the same."""
    config = dataclasses.replace(CONFIG, shared_experts=0, compute_dtype="bfloat16")
    module, params = layer(config, "bfloat16")
    params["router"]["kernel"] = jnp.ones_like(params["router"]["kernel"]).at[0, 3].add(1e-4)
    params["router"]["load_bias"] = jnp.zeros(5)
    x = jnp.ones((1, 1, config.d_model), jnp.bfloat16)
    found = loads(params, module, x, jnp.ones((1, 1), bool))
    assert found[3] == 1
