"""Trained relative positions, pair by pair in float64; and settings that are rejected."""

import dataclasses
import math

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.config import ModelConfig
from transformer_jax.nn.positions import Sinusoidal, SinusoidalTensor2Tensor
from transformer_jax.nn.relative_positions import RELATIVE_POSITIONS
from transformer_jax.nn.relative_trained import t5_buckets
from transformer_jax.nn.view import self_view

RNG = np.random.default_rng(0)
# Of queries in 4 heads and keys in 2; the distances between them are up to 40.
POS = [0, 1, 5, 2, 40]
BASE = ModelConfig(d_model=12, num_heads=4, num_kv_heads=2, head_dim=6, v_head_dim=3)
BUCKETS = {"relative_buckets": 8, "relative_max_distance": 20}
CLIP = {"relative_clip": 3}
Q, K, WEIGHTS = (RNG.normal(size=shape) for shape in ((4, 5, 6), (2, 6, 5), (4, 5, 5)))
SCALE = 0.3


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def looked(name: str, order: str = "all", **fields):
    """Return a view prepared by a scheme with random parameters, and the parameters by name."""
    scheme = RELATIVE_POSITIONS[name](dataclasses.replace(BASE, relative_positions=name, **fields))
    view = self_view(jnp.asarray([POS]), jnp.ones((1, 5), int), order)
    shapes = nn.unbox(jax.eval_shape(lambda: scheme.init(jax.random.key(0), view)))
    params = {key: RNG.normal(size=value.shape) for key, value in shapes["params"].items()}
    arrays = jax.device_put(params)
    return scheme.apply({"params": arrays}, view), params


def expect(view, of_pair) -> None:
    """Compare the bias with `of_pair(head, query, key)`."""
    bias = view.bias(view, jnp.asarray(Q)[None], jnp.asarray(K)[None], SCALE)
    assert bias.dtype == jnp.float64
    expected = [of_pair(*place) for place in np.ndindex(4, 5, 5)]
    np.testing.assert_allclose(bias.ravel(), expected, rtol=1e-12, atol=1e-12)


def row(i: int, j: int) -> int:
    return min(max(POS[j] - POS[i], -3), 3) + 3


def test_toeplitz():
    view, p = looked("toeplitz", **CLIP)
    expect(view, lambda head, i, j: p["table"][row(i, j), head])


@pytest.mark.parametrize("order", ["all", "ranked", "causal"])
def test_t5(order):
    """With ranks, a prefix is seen ahead: buckets are for both directions, unlike causal ones."""
    view, p = looked("t5", order, **BUCKETS)
    bucket = t5_buckets(8, 20, order != "causal")
    expect(view, lambda h, i, j: p["table"][bucket[np.clip(POS[j] - POS[i], -20, 20) + 20], h])


def test_shaw():
    view, p = looked("shaw_values", **CLIP)
    expect(view, lambda head, i, j: SCALE * Q[head, i] @ p["keys"][row(i, j)])
    expected = np.zeros((4, 5, 3))
    for head, i, j in np.ndindex(4, 5, 5):
        expected[head, i] += WEIGHTS[head, i, j] * p["values"][row(i, j)]
    np.testing.assert_allclose(
        view.values(view, jnp.asarray(WEIGHTS)[None])[0], expected, rtol=1e-12
    )


def test_xlnet():
    """With sinusoids of each distance, which our code derives from those of positions."""
    view, p = looked("xlnet")

    def of_pair(head, i, j):
        angles = [(POS[i] - POS[j]) / 10_000 ** (2 * f / 12) for f in range(6)]
        wave = np.array([math.sin(a) for a in angles] + [math.cos(a) for a in angles])
        place = (Q[head, i] + p["position_bias"][head]) @ (wave @ p["kernel"][:, head])
        return SCALE * (place + p["content_bias"][head] @ K[head // 2, :, j])

    expect(view, of_pair)


def test_buckets_are_those_of_t5():
    """For T5's own settings, as in its code."""
    both, behind = t5_buckets(32, 128, True), t5_buckets(32, 128, False)
    for distance, bucket in {-1: 1, 0: 0, 1: 17, 8: 24, 16: 26, 64: 30, 128: 31}.items():
        assert both[128 + distance] == bucket
    for distance, bucket in {-8: 8, -16: 16, -32: 21, -64: 26, -128: 31, 0: 0, 5: 0}.items():
        assert behind[128 + distance] == bucket
    assert set(behind) == set(range(32))
    assert set(both) == set(range(32)) - {16}  # that of 0 ahead


@pytest.mark.parametrize("kind", [Sinusoidal, SinusoidalTensor2Tensor])
def test_sinusoids_shift_by_one_linear_map(kind):
    """Paper 3.5: PE(pos + k) is a linear function of PE(pos), the same for all positions."""
    table = kind(ModelConfig(d_model=12, num_heads=2)).table(300)
    alternating = kind is Sinusoidal
    for k in (1, 7, 100):
        shift = np.zeros((12, 12))
        for f in range(6):
            sine, cosine = (2 * f, 2 * f + 1) if alternating else (f, f + 6)
            angle = k * 10_000 ** (-2 * f / 12 if alternating else -f / 5)
            shift[[sine, cosine], [sine, cosine]] = math.cos(angle)
            shift[sine, cosine], shift[cosine, sine] = math.sin(angle), -math.sin(angle)
        np.testing.assert_allclose(table[k:], table[:-k] @ shift.T, atol=1e-12)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"relative_positions": "shaw_values", "attention": "fused"}, "choose 'dense'"),
        ({"relative_buckets": 64}, "relative_buckets=64: has no effect with"),
        ({"relative_positions": "t5", "relative_clip": 8}, "relative_clip=8: has no effect with"),
        ({"relative_positions": "alibi", "share_relative_positions": True}, "leave it at None"),
        ({"relative_positions": "t5", "relative_buckets": 7}, "must be even"),
        ({"relative_positions": "t5", "relative_max_distance": 16}, "must be above half"),
        ({"relative_positions": "xlnet", "d_model": 513, "head_dim": 8, "positions": "none"},
         "choose an even d_model"),
    ],
)  # fmt: skip
def test_invalid_settings_are_rejected(fields, words):
    with pytest.raises(UserError, match=words):
        ModelConfig(**fields).check_reads()
