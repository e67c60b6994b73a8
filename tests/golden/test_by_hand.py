"""The paper's formulas, computed number by number."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import ModelConfig
from transformer_jax.nn.feedforward import FeedForward
from transformer_jax.nn.mixers.dense import mix
from transformer_jax.nn.norm import LayerNorm, RMSNorm
from transformer_jax.nn.positions import Sinusoidal, SinusoidalTensor2Tensor
from transformer_jax.nn.relative_fixed import Alibi, Rope, RopeInterleaved, alibi_slopes
from transformer_jax.nn.view import self_view
from transformer_jax.training.loss import loss_sums, smoothing_weights

RNG = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def same(actual, expected):
    assert actual.dtype == "float64"
    np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-14)


def test_sinusoids():
    """Paper, section 3.5: sines and cosines alternate, PE(pos, 2i) = sin(pos / 10000^(2i / d))."""
    positions, d = [[0, 7, 2], [1, 0, 30]], 6
    expected = np.zeros((2, 3, d))
    for row, column in np.ndindex(2, 3):
        for i in range(d // 2):
            angle = positions[row][column] / 10000 ** (2 * i / d)
            expected[row, column, 2 * i] = math.sin(angle)
            expected[row, column, 2 * i + 1] = math.cos(angle)
    same(Sinusoidal(ModelConfig(d_model=d, head_dim=2)).embed(jnp.asarray(positions), 31), expected)


def test_tensor2tensor_sinusoids():
    """Sines, then cosines, with periods from 2 pi to 10000 x 2 pi, both ends included."""
    positions, d = [[0, 7, 2], [1, 0, 30]], 8
    expected = np.zeros((2, 3, d))
    for row, column in np.ndindex(2, 3):
        for i in range(d // 2):
            angle = positions[row][column] / 10000 ** (i / (d // 2 - 1))
            expected[row, column, i] = math.sin(angle)
            expected[row, column, d // 2 + i] = math.cos(angle)
    scheme = SinusoidalTensor2Tensor(ModelConfig(d_model=d, head_dim=2))
    same(scheme.embed(jnp.asarray(positions), 31), expected)


def test_layer_norm():
    """Epsilon is large here, so that its place under the root matters."""
    x, epsilon = RNG.normal(size=(2, 3, 5)), 0.1
    scale, bias = RNG.normal(size=(2, 5))
    expected = np.zeros_like(x)
    for row, column in np.ndindex(2, 3):
        vector = x[row, column]
        mean = sum(vector) / 5
        variance = sum((value - mean) ** 2 for value in vector) / 5
        for i in range(5):
            normal = (vector[i] - mean) / math.sqrt(variance + epsilon)
            expected[row, column, i] = scale[i] * normal + bias[i]
    params = {"scale": jnp.asarray(scale), "bias": jnp.asarray(bias)}
    same(LayerNorm(epsilon).apply({"params": params}, jnp.asarray(x)), expected)


def test_rms_norm():
    """No mean is subtracted; epsilon is under the root here too."""
    x, scale, epsilon = RNG.normal(size=(2, 3, 5)), RNG.normal(size=5), 0.1
    expected = np.zeros_like(x)
    for row, column in np.ndindex(2, 3):
        vector = x[row, column]
        root = math.sqrt(sum(value**2 for value in vector) / 5 + epsilon)
        for i in range(5):
            expected[row, column, i] = vector[i] / root * scale[i]
    params = {"scale": jnp.asarray(scale)}
    same(RMSNorm(epsilon).apply({"params": params}, jnp.asarray(x)), expected)


def test_swiglu():
    """W2 (silu(V x + c) * (W1 x + b1)) + b2, silu(a) = a / (1 + exp(-a))."""
    x = RNG.normal(size=4)
    maps = {
        name: {"kernel": RNG.normal(size=shape), "bias": RNG.normal(size=shape[1])}
        for name, shape in (("gate", (4, 3)), ("up", (4, 3)), ("down", (3, 4)))
    }

    def applied(name, vector):
        kernel, bias = maps[name]["kernel"], maps[name]["bias"]
        return [
            sum(value * kernel[i, j] for i, value in enumerate(vector)) + bias[j]
            for j in range(kernel.shape[1])
        ]

    both = zip(applied("gate", x), applied("up", x), strict=True)
    expected = applied("down", [gate / (1 + math.exp(-gate)) * up for gate, up in both])
    layer = FeedForward(4, 3, "swiglu", 0.0, jnp.dtype("float64"))
    params = jax.device_put(maps)
    same(layer.apply({"params": params}, jnp.asarray(x)[None, None], False)[0, 0], expected)


@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize("scheme", [Rope, RopeInterleaved])
def test_rotary_positions(scheme, fraction):
    """Each pair of channels is a complex number, multiplied by e^(i angle)."""
    theta, size, pos = 50.0, 8, [0, 1, 5, 2]
    turning = int(size * fraction)
    x = RNG.normal(size=(4, 2, size))
    expected = x.copy()
    for t, head, i in np.ndindex(4, 2, turning // 2):
        pair = (i, i + turning // 2) if scheme is Rope else (2 * i, 2 * i + 1)
        angle = pos[t] * theta ** (-2 * i / turning)
        one, other = x[t, head, pair]
        turned = complex(one, other) * complex(math.cos(angle), math.sin(angle))
        expected[t, head, pair] = turned.real, turned.imag
    name = "rope" if scheme is Rope else "rope_interleaved"
    config = ModelConfig(
        d_model=16, num_heads=2, relative_positions=name, rope_theta=theta, rope_fraction=fraction
    )
    view = scheme(config)(self_view(jnp.asarray([pos]), jnp.ones((1, 4), int), "causal"))
    same(view.rotate(jnp.asarray(x)[None])[0], expected)


def test_alibi_slopes():
    """From section 3 of the paper, 1/2 to 1/256 for 8 heads; from its code for 3, 6 and 12."""
    eight = [1 / 2**i for i in range(1, 9)]
    four = [1 / 4, 1 / 16, 1 / 64, 1 / 256]
    expected = {
        1: [1 / 256],
        3: [1 / 16, 1 / 256, 1 / 4],
        4: four,
        6: [*four, 1 / 2, 1 / 8],
        8: eight,
        12: [*eight, 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5],
    }
    for heads, slopes in expected.items():
        same(alibi_slopes(heads), slopes)


def test_alibi():
    """A key's score drops by the slope for every position of distance."""
    pos = [0, 1, 2, 5]
    view = self_view(jnp.asarray([pos]), jnp.ones((1, 4), int), "causal")
    scheme = Alibi(ModelConfig(d_model=6, num_heads=6, relative_positions="alibi"))
    bias = scheme(view).bias(view, jnp.zeros((1, 6, 4, 1)), jnp.zeros((1, 6, 1, 4)), 1.0)
    expected = np.zeros((6, 4, 4))
    for head, i, j in np.ndindex(6, 4, 4):
        slope = [1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8][head]
        expected[head, i, j] = -slope * abs(pos[i] - pos[j])
    same(bias[0], expected)


def test_masks():
    """Segments, orders and windows, pair by pair; ranks are 0 in a prefix of two."""
    pos, seg, rank = [0, 1, 2, 3, 0, 1, 0], [1, 1, 1, 1, 2, 2, 0], [0, 0, 1, 2, 0, 0, 0]
    orders = {
        "all": lambda i, j: True,
        "causal": lambda i, j: j <= i,
        "ranked": lambda i, j: j <= i or (pos[j] < 2),
    }
    for order, earlier in orders.items():
        rows = (jnp.asarray([x]) for x in (pos, seg))
        view = self_view(*rows, order, jnp.asarray([rank]))
        for window in (None, 1, 2, 4):
            mask = view.within(window).mask()[0, 0]
            for i, j in np.ndindex(7, 7):
                near = window is None or -window < i - j < window
                alike = seg[i] == seg[j] != 0
                assert mask[i, j] == (alike and earlier(i, j) and near), (order, window, i, j)


@pytest.mark.parametrize("causal", [False, True])
def test_single_head_attention(causal):
    """Paper, section 3.2.1: softmax(q k / sqrt(d_k)) v, over two packed sentences and padding."""
    pos, seg = [0, 1, 2, 0, 1, 0], [1, 1, 1, 2, 2, 0]
    q, k = RNG.normal(size=(2, 6, 4))
    v = RNG.normal(size=(6, 3))
    expected, expected_weights = np.zeros((5, 3)), np.zeros((5, 6))
    for i in range(5):  # what padding sees does not matter
        seen = [j for j in range(5) if seg[j] == seg[i] and (j <= i or not causal)]
        powers = {j: math.exp(sum(q[i] * k[j]) / math.sqrt(4)) for j in seen}
        for j in seen:
            expected_weights[i, j] = powers[j] / sum(powers.values())
            expected[i] += expected_weights[i, j] * v[j]
    order = "causal" if causal else "all"
    view = self_view(jnp.asarray([pos]), jnp.asarray([seg]), order)
    heads = (jnp.asarray(x)[None, None] for x in (q, k.T, v))
    mixed, weights = mix(*heads, view, lambda weights: weights)
    same(mixed[0, 0, :5], expected)
    same(weights[0, 0, :5], expected_weights)


@pytest.mark.parametrize("smoothing", ["tensor2tensor", "uniform"])
def test_label_smoothing(smoothing):
    """The loss is cross-entropy with an explicit distribution, its gradient softmax minus that."""
    epsilon, vocab = 0.2, 5
    targets, segments = np.array([[4, 1, 3], [2, 0, 0]]), np.array([[1, 1, 2], [1, 0, 0]])
    weight = (segments > 0).astype(np.float64)
    logits = RNG.normal(size=(2, 3, vocab))
    logits[0, 1, 1] = 9.0  # the only target with the highest logit
    logits[0, 0, 4] = logits[0, 2, 3] = logits[1, 0, 2] = -9.0
    loss, nll, slopes = 0.0, 0.0, np.zeros_like(logits)
    for place in zip(*np.nonzero(segments), strict=True):
        if smoothing == "tensor2tensor":  # epsilon for the four others
            distribution = np.full(vocab, epsilon / (vocab - 1))
            distribution[targets[place]] = 1 - epsilon
        else:  # epsilon for all five
            distribution = np.full(vocab, epsilon / vocab)
            distribution[targets[place]] += 1 - epsilon
        softmax = np.exp(logits[place]) / np.exp(logits[place]).sum()
        loss -= (distribution * np.log(softmax)).sum()
        nll -= np.log(softmax[targets[place]])
        slopes[place] = softmax - distribution
        gold, rest = smoothing_weights(epsilon, vocab, smoothing)
        same(gold * np.eye(vocab)[targets[place]] + rest, distribution)

    def sums(logits):
        return loss_sums(logits, jnp.asarray(targets), jnp.asarray(weight), epsilon, smoothing)

    (_, actual), found = jax.jit(
        jax.value_and_grad(lambda logits: (sums(logits).loss, sums(logits)), has_aux=True)
    )(logits)
    same(np.stack(actual), [loss, nll, 1, 4, 4])
    same(found, slopes)
