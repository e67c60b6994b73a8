"""Sums of smoothed cross-entropy against optax, and the fused loss against the plain one."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from transformer_jax.nn.embedding import Head
from transformer_jax.training import loss
from transformer_jax.training.loss import fused_loss_sums, loss_sums
from transformer_jax.training.other_losses import squared_error_sums

RNG = np.random.default_rng(0)
ROWS, LENGTH, WIDTH, VOCAB, EPSILON = 6, 5, 8, 11, 0.1
X = jnp.asarray(RNG.normal(size=(ROWS, LENGTH, WIDTH)), jnp.float32)
TABLE = jnp.asarray(RNG.normal(size=(VOCAB, WIDTH)), jnp.float32)
TARGETS = jnp.asarray(RNG.integers(0, VOCAB, (ROWS, LENGTH)), jnp.int32)
SEGMENTS = jnp.asarray(np.arange(LENGTH) < np.array([[5], [3], [0], [1], [4], [2]]), jnp.int32)
WEIGHT = (SEGMENTS > 0).astype(jnp.float32)
# Both passes over a row have the same weight.
TWICE, TWICE_WEIGHT = (
    jnp.asarray(np.repeat(np.asarray(a)[::2], 2, axis=0)) for a in (TARGETS, WEIGHT)
)
ALPHA = 3.0
SMOOTHINGS = ("tensor2tensor", "uniform")


def distribution(smoothing: str):
    """Return the explicit target distribution, [B T V]."""
    gold = jax.nn.one_hot(TARGETS, VOCAB)
    if smoothing == "uniform":
        return optax.smooth_labels(gold, EPSILON)
    return gold * (1 - EPSILON) + (1 - gold) * EPSILON / (VOCAB - 1)


def loss_and_slopes(sums_of, *given):
    """Return the loss, sums and gradients of a function that returns the first two."""
    return jax.jit(jax.value_and_grad(sums_of, (0, 1), has_aux=True))(*given)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_sums_match_optax(smoothing):
    """Over real tokens only: smoothed and plain cross-entropy, correct predictions and counts."""
    real = np.asarray(SEGMENTS) > 0

    @jax.jit
    def terms(logits):
        smoothed = optax.softmax_cross_entropy(logits, distribution(smoothing))
        plain = optax.softmax_cross_entropy_with_integer_labels(logits, TARGETS)
        right = logits.argmax(-1) == TARGETS
        return (smoothed, plain, right), loss_sums(logits, TARGETS, WEIGHT, EPSILON, smoothing)

    theirs, found = terms(X @ TABLE.T)
    expected = [np.asarray(term)[real].sum() for term in theirs]
    np.testing.assert_allclose(found, [*expected, 15, 15], rtol=1e-6)


def test_squared_error_sums():
    """Weighted, of the single logit; nothing is correct or incorrect."""
    values, head = TARGETS.astype(jnp.float32), Head(TABLE[:1], jnp.ones(1))
    sums = squared_error_sums(X, head, values, 0.5 * WEIGHT)
    errors = (np.asarray(X @ TABLE[0]) + 1 - np.asarray(TARGETS)) ** 2 * np.asarray(WEIGHT)
    assert float(sums.loss) == pytest.approx(0.5 * errors.sum(), rel=1e-5)
    assert (float(sums.tokens), float(sums.weight)) == (15, 7.5)
    assert np.isnan(sums.correct)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("r_drop", [0.0, 3.0])
def test_the_fused_loss_has_the_gradient_of_a_head_bias(dtype, r_drop, monkeypatch):
    """In three chunks, against autodiff of logits x A + b; each row twice with R-Drop."""
    monkeypatch.setattr(loss, "_POSITIONS", 2 * LENGTH)
    bias = jnp.asarray(RNG.normal(size=VOCAB), jnp.float32)
    x = X.astype(dtype)

    def fused(x, head):
        sums = fused_loss_sums(x, head, TARGETS, TWICE_WEIGHT, EPSILON, "uniform", r_drop)
        return sums.loss, sums

    def plain(x, head):
        logits = Head(head.table).logits(x) + head.bias[None, None]
        sums = loss_sums(logits, TARGETS, TWICE_WEIGHT, EPSILON, "uniform")
        if not r_drop:
            return sums.loss, sums
        logs = jax.nn.log_softmax(logits).reshape(-1, 2, LENGTH, VOCAB)
        p, other = jnp.exp(logs), logs[:, ::-1]
        kl = (p * (logs - other)).sum(-1).mean(1)
        extra = (r_drop / 2 * kl * TWICE_WEIGHT[::2]).sum()
        halves = jax.tree.map(lambda total: total / 2, sums)
        return halves.loss + extra, halves._replace(loss=halves.loss + extra)

    given = x, Head(TABLE, bias)
    _, ours = loss_and_slopes(fused, *given)
    (_, their_sums), theirs = loss_and_slopes(plain, *given)
    exact = dtype == "float32"
    our_sums = jax.jit(fused)(*given)[1]
    np.testing.assert_allclose(our_sums, their_sums, rtol=1e-5 if exact else 2e-2)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if exact else {"rtol": 0.05, "atol": 0.05}
    assert ours[1].bias.dtype == jnp.float32
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(one.astype("float32"), other.astype("float32"), **tolerance)
    assert np.abs(theirs[1].bias).max() > 0.1


@functools.cache
def plain_of(smoothing: str):
    """Return `loss_and_slopes` of the plain loss, with all logits at once."""

    def plain(x, table):
        logs = jax.nn.log_softmax(x @ table.T)
        real = SEGMENTS > 0
        total = -(distribution(smoothing) * logs).sum(-1)
        return 2 * jnp.where(real, total, 0).sum(), loss_sums(
            x @ table.T, TARGETS, WEIGHT, EPSILON, smoothing
        )

    return loss_and_slopes(plain, X, TABLE)


@pytest.mark.parametrize("positions", [128, 2 * LENGTH, 1])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_fused_loss_equals_plain_loss(smoothing, positions, monkeypatch):
    """In chunks of logits: the same sums, and the same gradients as by autodiff."""
    monkeypatch.setattr(loss, "_POSITIONS", positions)  # 1, 3 and 6 chunks

    def fused(x, table):
        sums = fused_loss_sums(x, Head(table), TARGETS, WEIGHT, EPSILON, smoothing)
        return 2 * sums.loss, sums

    (ours, our_sums), our_slopes = loss_and_slopes(fused, X, TABLE)
    (theirs, their_sums), slopes = plain_of(smoothing)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    # With a gradient and without one.
    for sums in (our_sums, jax.jit(fused)(X, TABLE)[1]):
        np.testing.assert_allclose(sums, their_sums, rtol=1e-6)
    for one, other in zip(our_slopes, slopes, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_several_labels_form_a_distribution(smoothing):
    """Cross-entropy to the share of each, by NumPy in float64, and its gradients: softmax - target;
    a label given twice counts twice, and one of weight 0 not at all.
    """
    labels = RNG.integers(0, VOCAB, (ROWS, LENGTH, 4))
    labels[..., 1] = labels[..., 0]
    count = RNG.integers(0, 5, (ROWS, LENGTH, 1))
    weight = np.where(np.arange(4) < count, 1 / np.maximum(count, 1), 0)
    counts = (np.eye(VOCAB)[labels] * weight[..., None]).sum(2)
    gold, rest = loss.smoothing_weights(EPSILON, VOCAB, smoothing)
    placed = (count > 0).astype(np.float64)
    target = gold * counts + rest * placed
    x, table = np.asarray(X, np.float64), np.asarray(TABLE, np.float64)
    logits = x @ table.T
    logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    slope = np.exp(logs) * placed - target
    right = (np.take_along_axis(counts, logits.argmax(-1)[..., None], 2) > 0).sum()

    def fused(x, table):
        given = jnp.asarray(labels, jnp.int32), jnp.asarray(weight, jnp.float32)
        sums = fused_loss_sums(x, Head(table), *given, EPSILON, smoothing)
        return sums.loss, (sums, loss_sums(x @ table.T, *given, EPSILON, smoothing))

    (_, both), slopes = loss_and_slopes(fused, X, TABLE)
    expected = [-(target * logs).sum(), -(counts * logs).sum(), right, placed.sum(), placed.sum()]
    for sums in both:
        np.testing.assert_allclose(sums, expected, rtol=1e-6)
    across = np.einsum("btv,btd->vd", slope, x)
    for ours, theirs in zip(slopes, (slope @ table, across), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@functools.cache
def r_drop_by_formula():
    """Return `loss_and_slopes` of the R-Drop formula, with all logits at once, rows in pairs."""

    def plain(x, table):
        logits = x @ table.T
        sums = loss_sums(logits, TWICE, TWICE_WEIGHT, EPSILON, "uniform")
        logs = jax.nn.log_softmax(logits)
        one, other = logs[::2], logs[1::2]
        both = optax.kl_divergence(one, jnp.exp(other)) + optax.kl_divergence(other, jnp.exp(one))
        added = ALPHA / 2 * jnp.where(TWICE_WEIGHT[::2] > 0, both / 2, 0).sum()
        sums = jax.tree.map(lambda total: total / 2, sums)
        return 2 * (sums.loss + added), sums._replace(loss=sums.loss + added)

    return loss_and_slopes(plain, X, TABLE)


@pytest.mark.parametrize("positions", [128, 2 * LENGTH, 1])
def test_r_drop_matches_the_formula(positions, monkeypatch):
    """Means over two passes, plus alpha / 2 times the mean of the two divergences."""
    monkeypatch.setattr(loss, "_POSITIONS", positions)  # 1 and 3 chunks

    def fused(x, table):
        sums = fused_loss_sums(x, Head(table), TWICE, TWICE_WEIGHT, EPSILON, "uniform", ALPHA)
        return 2 * sums.loss, sums

    (ours, our_sums), our_slopes = loss_and_slopes(fused, X, TABLE)
    (theirs, their_sums), slopes = r_drop_by_formula()
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    for sums in (our_sums, jax.jit(fused)(X, TABLE)[1]):
        np.testing.assert_allclose(sums, their_sums, rtol=1e-6)
    for one, other in zip(our_slopes, slopes, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)  # for gradients up to 10


@pytest.mark.parametrize(
    ("platform", "chunks"), [("cpu", (6, 1)), ("gpu", (3, 2)), ("tpu", (3, 2))]
)
def test_chunk_sizes_depend_on_the_platform(platform, chunks, monkeypatch):
    """By positions on a CPU, by logits on an accelerator; every row is in one chunk."""
    monkeypatch.setattr(jax, "default_backend", lambda: platform)
    monkeypatch.setattr(loss, "_POSITIONS", LENGTH)
    monkeypatch.setattr(loss, "_LOGITS", 2 * LENGTH * VOCAB)
    x, targets, _ = loss._chunks(X, TARGETS, WEIGHT, VOCAB)
    assert x.shape[:2] == targets.shape[:2] == chunks
    assert sorted(targets.reshape(ROWS, LENGTH).tolist()) == sorted(TARGETS.tolist())


@pytest.mark.parametrize("positions", [1024, 64])
def test_bfloat16_operands(positions, monkeypatch):
    """Sums and gradients are float32, and equal those of the rounded operands except for one more
    rounding: that of the logits' gradients, to 8 bits."""
    monkeypatch.setattr(loss, "_POSITIONS", positions)  # 1 and 16 chunks
    rng = np.random.default_rng(1)
    x = jnp.asarray(rng.normal(size=(32, 32, 128)), jnp.bfloat16)
    table = jnp.asarray(rng.normal(size=(1000, 128)) / 8, jnp.bfloat16).astype(jnp.float32)
    targets = jnp.asarray(rng.integers(0, 1000, (32, 32)), jnp.int32)

    def total(x, table):
        return fused_loss_sums(
            x, Head(table), targets, jnp.ones(targets.shape), 0.1, "uniform"
        ).loss

    slopes = jax.jit(jax.value_and_grad(total, (0, 1)))
    found, (dx, dtable) = slopes(x, table)
    exact, (exact_dx, exact_dtable) = slopes(x.astype(jnp.float32), table)
    assert (found.dtype, dx.dtype, dtable.dtype) == (jnp.float32, jnp.bfloat16, jnp.float32)
    np.testing.assert_allclose(found, exact, rtol=1e-6)
    for ours, theirs in ((dx.astype(jnp.float32), exact_dx), (dtable, exact_dtable)):
        assert float(jnp.abs(ours - theirs).max() / jnp.abs(theirs).max()) < 2**-7
