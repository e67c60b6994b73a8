"""Attention-free layers with local weights: blocks give the result of all pairs."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import ModelConfig
from transformer_jax.nn.mixers.attention_free import AftConv, AftFull, AftLocal
from transformer_jax.nn.view import self_view

SEG = jnp.array([[1] * 7 + [2] * 9 + [0] * 3, [1] * 19])
POS = jnp.array([[*range(7), *range(9), 0, 0, 0], [*range(19)]])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("order", ["all", "causal"])
@pytest.mark.parametrize("kind", [AftLocal, AftConv])
def test_blocks_equal_all_pairs(kind, order):
    """Values and gradients in both orders, with several texts in a row and large weights."""
    config = ModelConfig(
        d_model=6, num_heads=2, head_dim=3, window=3, position_rank=4, max_positions=32,
        decoder_pattern=("aft_local",),
    )  # fmt: skip
    mixer, view = kind(config, jnp.dtype("float32")), self_view(POS, SEG, order)
    chance = np.random.default_rng(0)
    x = jnp.asarray(chance.normal(size=(2, 19, 6)), jnp.float32)
    shapes = nn.unbox(
        jax.eval_shape(lambda x: mixer.init(jax.random.key(0), x, view, False, method="mix"), x)
    )
    params = jax.tree.map(lambda y: jnp.asarray(chance.normal(size=y.shape), jnp.float32), shapes)

    def loss(params, x):
        y = mixer.apply(params, x, view, False, method="mix")[0]
        return jnp.sin(jnp.where(SEG[..., None] > 0, y, 0)).sum(), y

    run = jax.value_and_grad(loss, (0, 1), has_aux=True)
    (_, found), slopes = jax.jit(run)(params, x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kind, "_gather", AftFull._gather)
        (_, expected), wanted = jax.jit(run)(params, x)
    here = np.asarray(SEG > 0)
    np.testing.assert_allclose(found[here], expected[here], rtol=1e-4, atol=1e-5)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), slopes, wanted
    )


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [AftLocal, AftConv])
def test_operations_are_linear_in_the_length(kind):
    def operations(length: int) -> float:
        config = ModelConfig(
            d_model=8, num_heads=2, window=4, max_positions=1024, decoder_pattern=("aft_conv",)
        )
        mixer, ones = kind(config, jnp.dtype("float32")), jnp.ones((1, length), jnp.int32)
        view = self_view(jnp.arange(length)[None], ones, "causal", single=True)
        x = jnp.zeros((1, length, 8))
        # Only shapes: nothing runs.
        params = jax.eval_shape(
            lambda x: mixer.init(jax.random.key(0), x, view, False, method="mix"), x
        )
        run = jax.jit(lambda p, x: mixer.apply(p, x, view, False, method="mix")[0])
        return run.lower(params, x).compile().cost_analysis()["flops"]

    assert operations(512) < 2.4 * operations(256)
