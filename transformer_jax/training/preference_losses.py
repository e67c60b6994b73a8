"""Losses of preferences: of the log-probabilities of two answers, beside a reference model's."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float
from transformer_jax.config.choices.conversations import PREFERENCE_LOSSES
from transformer_jax.nn.embedding import Head
from transformer_jax.training.loss import Sums

_ROWS = 8  # whose logits are in memory at a time


class Answers(NamedTuple):
    """Of the two answers of each row [B]: what they gained on the reference, in nats; their numbers
    of pieces; beta; whether the first is desirable, 1 or -1; and whether there are any.
    """

    one: Float[Array, " B"]
    other: Float[Array, " B"]
    pieces: tuple[Float[Array, " B"], Float[Array, " B"]]
    beta: Float[Array, " B"]
    desirable: Float[Array, " B"]
    there: Float[Array, " B"]


def log_probs(
    x: Float[Array, "B T D"], head: Head, labels: Float[Array, "B T"]
) -> Float[Array, "B T"]:
    """Return the log-probabilities of pieces; logits of a few rows exist at a time, also in the
    backward pass.
    """

    @jax.checkpoint
    def of_rows(rows):
        hidden, wanted = rows
        logits = head.logits(hidden)
        chosen = jnp.take_along_axis(logits, wanted[..., None].astype(jnp.int32), -1)[..., 0]
        return chosen - jax.nn.logsumexp(logits, -1)

    if x.shape[0] <= _ROWS or x.shape[0] % _ROWS:
        return of_rows((x, labels))
    parts = (a.reshape(-1, _ROWS, *a.shape[1:]) for a in (x, labels))
    return jax.lax.map(of_rows, tuple(parts)).reshape(labels.shape)


def answers_of(
    x: Float[Array, "B T D"], head: Head, labels: Float[Array, "B T 6"], weight: Float[Array, "B T"]
) -> Answers:
    """Return what the hidden states x say of answers; see `Prefer` for the labels."""
    each = log_probs(x, head, labels[..., 0])
    side, reference = labels[..., 1].astype(each.dtype), labels[..., 2].astype(each.dtype)
    of_one, of_other = (side > 0).astype(each.dtype), (side < 0).astype(each.dtype)
    gain = each - reference  # the reference's sum stands at one position
    one, other = ((gain * mask).sum(1) for mask in (of_one, of_other))
    beta = labels[..., 3].max(1).astype(each.dtype)
    desirable = jnp.sign((labels[..., 4] * of_one).sum(1))
    there = (weight.sum(1) > 0).astype(each.dtype)
    return Answers(one, other, (of_one.sum(1), of_other.sum(1)), beta, desirable, there)


def _dpo(a: Answers) -> tuple[Array, Array]:
    """-log sigmoid(beta (gain of the better - gain of the worse))."""
    margin = a.beta * (a.one - a.other)
    return -jax.nn.log_sigmoid(margin), margin


def _ipo(a: Answers) -> tuple[Array, Array]:
    """(difference of the gains a piece - 1 / (2 beta))^2: means over pieces, as in TRL, where the
    paper has sums.
    """
    one, other = (gain / jnp.maximum(count, 1) for gain, count in zip(a[:2], a.pieces, strict=True))
    beta = jnp.where(a.there > 0, a.beta, 1)
    return (one - other - 1 / (2 * beta)) ** 2, a.beta * (one - other)


def _kto(a: Answers) -> tuple[Array, Array]:
    """1 - sigmoid(+-beta (gain - z)); z, the mean gain of answers to other prompts, is at least 0
    and has no gradient.
    """
    mean = (a.other * a.there).sum() / jnp.maximum(a.there.sum(), 1)
    z = jnp.maximum(jax.lax.stop_gradient(mean), 0)
    margin = a.desirable * a.beta * (a.one - z)
    return 1 - jax.nn.sigmoid(margin), margin


def preference_sums(
    x: Float[Array, "B T D"], head: Head, labels: Float[Array, "B T 6"], weight: Float[Array, "B T"]
) -> Sums:
    """Return the sums of the loss of pairs of answers, see `Prefer` for the labels. `correct`
    counts pairs whose better answer has gained more on the reference, and labelled answers that
    have gained more, if desirable, than answers to other prompts, and else less.
    """
    answers = answers_of(x, head, labels, weight)
    which = labels[..., 5].max().astype(jnp.int32)  # the same everywhere
    loss, margin = jax.lax.switch(which, [LOSSES[name] for name in PREFERENCE_LOSSES], answers)
    total, count = (loss * answers.there).sum(), answers.there.sum()
    right = ((margin > 0) * answers.there).sum()
    return Sums(total, total, right, count, count)


def reward_sums(
    x: Float[Array, "B T D"], head: Head, labels: Float[Array, "B T"], weight: Float[Array, "B T"]
) -> Sums:
    """Return the sums of -log sigmoid(difference of the two numbers of each row), see `Reward` for
    the labels; `correct` counts pairs whose better answer has the greater one.
    """
    each = head.logits(x)[..., 0]
    margin = (labels.astype(each.dtype) * each).sum(1)
    there = (weight.sum(1) > 0).astype(each.dtype)
    total = (-jax.nn.log_sigmoid(margin) * there).sum()
    count = there.sum()
    return Sums(total, total, ((margin > 0) * there).sum(), count, count)


# By the words of `objective.preference_loss`.
LOSSES: dict[str, Callable[[Answers], tuple[Array, Array]]] = {
    "dpo": _dpo, "ipo": _ipo, "kto": _kto,
}  # fmt: skip
