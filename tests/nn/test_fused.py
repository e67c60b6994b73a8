"""Fused attention equals dense attention, and warns when it falls back."""

import functools
import logging

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import ModelConfig
from transformer_jax.nn.mixers import dense, fused
from transformer_jax.nn.relative_positions import RELATIVE_POSITIONS
from transformer_jax.nn.view import cross_view, self_view

RNG = np.random.default_rng(0)
Q, K, V = (
    jnp.asarray(RNG.normal(size=shape), jnp.float32)
    for shape in ((2, 3, 5, 8), (2, 3, 8, 7), (2, 3, 7, 8))
)
Q_SEG = jnp.asarray([[1, 1, 1, 2, 2], [1, 1, 1, 1, 0]])
K_SEG = jnp.asarray([[1, 1, 2, 2, 2, 2, 0], [1, 1, 1, 1, 1, 1, 1]])
POS = jnp.asarray([[0, 1, 2, 0, 1], [0, 1, 2, 3, 0]])
VIEWS = {
    "causal": (self_view(POS, Q_SEG, "causal"), K[..., :5], V[:, :, :5]),
    "across": (cross_view(POS, Q_SEG, jnp.zeros_like(K_SEG), K_SEG), K, V),
}


@pytest.mark.parametrize("name", VIEWS)
def test_fused_equals_dense(name):
    """Values and gradients, with odd lengths, packed segments and padding."""
    view, k, v = VIEWS[name]
    real = (Q_SEG > 0)[:, None, :, None]

    def total(mix, q, k, v):
        mixed, weights = mix(q, k, v, view, lambda w: w)
        return jnp.where(real, jnp.sin(mixed), 0).sum(), weights

    gradient = jax.jit(jax.value_and_grad(total, (1, 2, 3), True), static_argnums=0)
    (one, one_weights), ones = gradient(fused.mix, Q, k, v)
    (two, two_weights), twos = gradient(dense.mix, Q, k, v)
    np.testing.assert_allclose(one, two, rtol=1e-6)
    np.testing.assert_allclose(one_weights, two_weights, rtol=1e-6)
    for found, expected in zip(ones, twos, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


# Rows of one segment: lengths, order and window say all that a mask would.
LONE = jnp.asarray([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
PLACES = jnp.broadcast_to(jnp.arange(5)[None], LONE.shape)
LENGTHS = {
    "all": self_view(PLACES, LONE, "all", single=True),
    "causal": self_view(PLACES, LONE, "causal", single=True),
    "local": self_view(PLACES, LONE, "all", single=True).within(2),
    "local causal": self_view(PLACES, LONE, "causal", single=True).within(2),
}


def agree(view, real, heads: int, scale: float | None = None) -> None:
    """Compare values and gradients with 4 query heads and fewer key heads."""
    q, k, v = (
        jnp.asarray(RNG.normal(size=shape), jnp.float32)
        for shape in ((2, 4, 5, 8), (2, heads, 8, 5), (2, heads, 5, 8))
    )

    def total(mix, q, k, v):
        mixed = jnp.where(real[:, None, :, None], mix(q, k, v, view, lambda w: w, scale)[0], 0)
        return jnp.sin(mixed).sum(), mixed

    gradient = jax.jit(jax.value_and_grad(total, (1, 2, 3), True), static_argnums=0)
    mine, expected = gradient(fused.mix, q, k, v), gradient(dense.mix, q, k, v)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), mine, expected
    )


@pytest.mark.parametrize("name", LENGTHS)
def test_lengths_replace_the_mask(name, monkeypatch):
    """No mask is made, even if two query heads share a key head, except for windows that reach
    ahead, which cuDNN does not support.
    """
    monkeypatch.setattr(fused, "_by_lengths" if name == "local" else "_by_mask", None)
    agree(LENGTHS[name], LONE > 0, heads=2)


@pytest.mark.parametrize("name", ["alibi", "xlnet"])
def test_fused_adds_the_position_bias(name):
    """With grouped heads and another score scale; also a bias that depends on queries and keys."""
    scheme = RELATIVE_POSITIONS[name](ModelConfig(d_model=32, num_heads=4, relative_positions=name))
    init = functools.partial(scheme.init, jax.random.key(0), LENGTHS["local"])
    params = jax.tree.map(
        lambda leaf: jnp.asarray(RNG.normal(size=leaf.shape), jnp.float32),
        nn.unbox(jax.eval_shape(init)),
    )
    agree(scheme.apply(params, LENGTHS["local"]), LONE > 0, heads=2, scale=0.2)


@pytest.mark.parametrize("name", VIEWS)
def test_float64_is_exact(name):
    """The softmax is at least float32: in float64 it is float64, as NumPy computes it."""
    view, k, v = VIEWS[name]
    with jax.enable_x64(True):
        q, k, v = (np.asarray(x, np.float64) for x in (Q, k, v))
        mix = jax.jit(lambda q, k, v: fused.mix(q, k, v, view, lambda w: w)[0])
        mixed = mix(*map(jnp.asarray, (q, k, v)))
        assert mixed.dtype == jnp.float64
    mask = np.broadcast_to(view.mask(), (*q.shape[:3], k.shape[3]))
    scores = np.where(mask, np.einsum("bnth,bnhs->bnts", q, k) / np.sqrt(q.shape[3]), -np.inf)
    weights = np.exp(scores[mask.any(-1)])
    weights /= weights.sum(-1, keepdims=True)
    values = np.broadcast_to(v[:, :, None], (*mask.shape, v.shape[3]))[mask.any(-1)]
    expected = np.einsum("rs,rsh->rh", weights, values)
    np.testing.assert_allclose(np.asarray(mixed)[mask.any(-1)], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", VIEWS)
def test_the_kernel_gets_no_fully_masked_query(name, monkeypatch):
    """In such a row cuDNN's backward pass can yield NaN, which a product with 0 does not remove."""
    view, k, v = VIEWS[name]
    assert not view.mask().any(-1).all()  # padding sees nothing
    given = []
    monkeypatch.setattr(
        jax.nn, "dot_product_attention",
        lambda q, k, v, *_, mask, **rest: given.append(mask) or jnp.zeros((*q.shape[:3], 8)),
    )  # fmt: skip
    (mask,) = jax.jit(lambda: fused.mix(Q, k, v, view, lambda w: w) and given)()
    assert mask.shape[2] % 2 == 0  # which includes the added position
    assert mask.any(-1).all()


def test_unused_weights_are_not_computed():
    """The compiled program holds one exponential, not two."""
    view, k, v = VIEWS["across"]
    alone = jax.jit(lambda q, k, v: fused.mix(q, k, v, view, lambda w: w)[0])
    both = jax.jit(lambda q, k, v: fused.mix(q, k, v, view, lambda w: w))
    counts = [f.lower(Q, k, v).compile().as_text().count(" exponential(") for f in (alone, both)]
    assert counts == [1, 2]


@pytest.mark.parametrize(
    ("head_dim", "dtype", "capability", "reason"),
    [
        (64, jnp.bfloat16, 9.0, None),
        (64, jnp.float16, 8.0, None),
        (256, jnp.bfloat16, 9.0, None),
        (256, jnp.bfloat16, 8.9, "head_dim 256 is above 128"),
        (20, jnp.bfloat16, 9.0, "head_dim 20 is not a multiple of 8"),
        (64, jnp.float32, 9.0, "model.compute_dtype is float32"),
        (64, jnp.bfloat16, 7.5, "compute capability 7.5 is below 8.0"),
        (64, jnp.bfloat16, None, "there is no NVIDIA GPU"),
    ],
)
def test_conditions_for_cudnn(head_dim, dtype, capability, reason):
    assert fused.why_not_cudnn(head_dim, jnp.dtype(dtype), capability) == reason


def test_fallback_warns_once_per_reason(caplog, monkeypatch):
    fused._warn.cache_clear()
    monkeypatch.setattr(logging.getLogger("transformer_jax"), "propagate", True)
    view, k, v = VIEWS["across"]
    for _ in range(2):
        jax.eval_shape(lambda: fused.mix(Q, k, v, view, lambda w: w)[0])
    (record,) = caplog.records
    assert "uses XLA instead of cuDNN because there is no NVIDIA GPU" in record.getMessage()


def test_a_softcap_is_computed_as_dense(caplog, monkeypatch):
    """No kernel has one; the form and the warning say so."""
    fused._warn_of_softcap.cache_clear()
    monkeypatch.setattr(logging.getLogger("transformer_jax"), "propagate", True)
    view, k, v = VIEWS["across"]
    mixed, expected = (
        jax.jit(lambda mix=mix: mix(Q, k, v, view, lambda w: w, None, 2.0)[0])()
        for mix in (fused.mix, dense.mix)
    )
    assert np.array_equal(mixed, expected)
    assert not np.allclose(mixed, dense.mix(Q, k, v, view, lambda w: w)[0])
    (record,) = caplog.records
    assert "because of model.attention_softcap=2" in record.getMessage()
