"""Distillation: the loss beside formulas, and its laws."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.data.batches.batch import Teacher
from transformer_jax.nn.embedding import Head
from transformer_jax.training import loss
from transformer_jax.training.loss import fused_loss_sums

RNG = np.random.default_rng(0)
ROWS, LENGTH, WIDTH, VOCAB = 6, 5, 8, 11
X = RNG.normal(size=(ROWS, LENGTH, WIDTH))
TABLE, BIAS = RNG.normal(size=(VOCAB, WIDTH)), RNG.normal(size=VOCAB)
LOGITS = 2 * RNG.normal(size=(ROWS, LENGTH, VOCAB))  # the teacher's
TARGETS = jnp.asarray(RNG.integers(0, VOCAB, (ROWS, LENGTH)), jnp.int32)
WEIGHT = (np.arange(LENGTH) < np.array([[5], [3], [0], [1], [4], [2]])).astype(np.float64)
EPSILON = 0.1


@pytest.fixture(autouse=True)
def float64(monkeypatch):
    monkeypatch.setattr(loss, "_POSITIONS", 2 * LENGTH)  # in three chunks
    with jax.enable_x64(True):
        yield


def teacher_of(logits, top_k: int, temperature: float) -> Teacher:
    """The likeliest pieces at a temperature, and all others as one."""
    logs = np.asarray(jax.nn.log_softmax(jnp.asarray(logits) / temperature))
    ids = np.argsort(-logs, axis=-1)[..., :top_k].astype(np.int32)
    named = np.take_along_axis(logs, ids, -1)
    others = logs.copy()
    np.put_along_axis(others, ids, -np.inf, -1)
    rest = np.asarray(jax.nn.logsumexp(others, axis=-1, keepdims=True))
    return Teacher(ids, np.concatenate([named, rest], -1))


@functools.partial(jax.jit, static_argnames=("weight", "temperature", "r_drop", "epsilon"))
def ours(x, head, teacher, weight, temperature, r_drop=0.0, epsilon=EPSILON):
    """The sums, and the gradient of their loss."""

    def sums_of(x, head):
        sums = fused_loss_sums(
            x, head, TARGETS, jnp.asarray(WEIGHT), epsilon, "uniform", r_drop, teacher,
            (weight, temperature),
        )  # fmt: skip
        return sums.loss, sums

    return jax.value_and_grad(sums_of, (0, 1), has_aux=True)(x, head)


def given(x=X, table=TABLE):
    return jnp.asarray(x), Head(jnp.asarray(table), jnp.asarray(BIAS))


def by_formula(teacher, weight, temperature):
    """The same by automatic differentiation of the definition, on explicit distributions."""

    def total(x, head):
        logits = x @ head.table.T + head.bias[None, None]
        plain = jax.nn.log_softmax(logits)
        wanted = (1 - EPSILON) * jax.nn.one_hot(TARGETS, VOCAB) + EPSILON / VOCAB
        cross_entropy = -(wanted * plain).sum(-1)
        p = jax.nn.softmax(logits / temperature)
        chosen = jnp.take_along_axis(p, teacher.ids, -1)
        if teacher.ids.shape[-1] < VOCAB:
            chosen = jnp.append(chosen, 1 - chosen.sum(-1, keepdims=True), -1)
        logs = teacher.log_probs[..., : chosen.shape[-1]]
        kl = (np.exp(logs) * (logs - jnp.log(chosen))).sum(-1)
        each = (1 - weight) * cross_entropy + weight * temperature**2 * kl
        return (WEIGHT * each).sum()

    return jax.jit(jax.value_and_grad(total, (0, 1)))(*given())


def assert_close(one, other, **bounds):
    bounds = {"rtol": 1e-10, "atol": 1e-12} | bounds
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, **bounds), one, other)


@pytest.mark.parametrize(("top_k", "weight", "temperature"), [(VOCAB, 0.3, 2.0), (4, 0.9, 3.0)])
def test_loss_and_gradients_are_those_of_the_formula(top_k, weight, temperature):
    """With all pieces it is the full divergence; else all but the likeliest count as one piece."""
    teacher = teacher_of(LOGITS, top_k, temperature)
    (found, sums), slopes = ours(*given(), teacher, weight, temperature)
    wanted, by_autodiff = by_formula(teacher, weight, temperature)
    assert_close(found, wanted)
    assert_close(slopes, by_autodiff)
    plain = fused_loss_sums(*given(), TARGETS, jnp.asarray(WEIGHT), EPSILON, "uniform")
    assert_close(sums[1:], plain[1:])  # what is measured beside the loss stays


def test_without_weight_it_is_the_plain_loss_to_the_bit():
    (_, sums), slopes = ours(*given(), teacher_of(LOGITS, 4, 2.0), 0.0, 2.0)
    (_, plain), their_slopes = ours(*given(), None, 0.0, 1.0)
    jax.tree.map(np.testing.assert_array_equal, (sums, slopes), (plain, their_slopes))


@pytest.mark.parametrize("top_k", [1, 4, VOCAB])
def test_a_teacher_that_agrees_moves_nothing(top_k):
    x, head = given()
    teacher = teacher_of(x @ head.table.T + head.bias[None, None], top_k, 2.0)
    (found, _), slopes = ours(x, head, teacher, 1.0, 2.0)
    assert_close((found, slopes), jax.tree.map(jnp.zeros_like, (found, slopes)), atol=1e-13)


def test_at_a_high_temperature_the_gradient_is_the_difference_of_centred_logits():
    """Over V; without the factor T^2 it would vanish (Hinton et al. 2015, section 2.1)."""
    head = Head(jnp.eye(VOCAB), None)
    (_, _), (slope, _) = ours(jnp.asarray(LOGITS[::-1]), head, teacher_of(LOGITS, VOCAB, 1e4),
                              1.0, 1e4)  # fmt: skip
    student, teacher = (x - x.mean(-1, keepdims=True) for x in (LOGITS[::-1], LOGITS))
    wanted = WEIGHT[..., None] * (student - teacher) / VOCAB
    assert_close(slope, wanted, atol=1e-3 * np.abs(wanted).max())


def test_what_is_not_predicted_has_no_part():
    """Whatever stands there."""
    teacher = teacher_of(LOGITS, 4, 2.0)
    changed = teacher_of(np.where(WEIGHT[..., None] > 0, LOGITS, 9 * LOGITS[::-1]), 4, 2.0)
    empty = Teacher(*(x * (WEIGHT[..., None] > 0).astype(x.dtype) for x in teacher))
    (one, slopes), *others = (ours(*given(), t, 0.7, 2.0) for t in (teacher, changed, empty))
    assert (np.asarray(slopes[0])[WEIGHT == 0] == 0).all()
    for other in others:
        assert_close((one, slopes), other)


def test_it_goes_with_r_drop():
    """Both passes of a row have the same teacher, and the two terms add up."""
    rows = Teacher(*(np.repeat(x[::2], 2, axis=0) for x in teacher_of(LOGITS, 4, 2.0)))

    def dropped(teacher) -> float:
        return float(
            ours(*given(), teacher, 0.7, 2.0, 3.0)[0][0]
            - ours(*given(), teacher, 0.7, 2.0, 1e-12)[0][0]
        )

    assert dropped(rows) == pytest.approx(dropped(None), rel=1e-9)
