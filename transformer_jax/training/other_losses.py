"""Losses for targets that are not a choice among the rows of a head: no labels to smooth."""

from collections.abc import Callable

import jax.numpy as jnp
import optax

from transformer_jax.base.arrays import Array, Float, Int
from transformer_jax.base.vocabulary import PAD
from transformer_jax.nn.distributions import Bins, Distribution
from transformer_jax.nn.embedding import Head
from transformer_jax.training.loss import Sums, loss_sums
from transformer_jax.training.policy_losses import policy_sums
from transformer_jax.training.preference_losses import preference_sums, reward_sums

_IMPOSSIBLE = 5e4  # nats: optax counts 1e5 for each step that no path takes


def squared_error_sums(
    x: Float[Array, "B T D"],
    head: Head,
    targets: Float[Array, "B T"],
    weight: Float[Array, "B T"],
) -> Sums:
    """Return the sums of squared errors of the single logit; `correct` is NaN, as it does not
    apply.
    """
    predicted = head.logits(x)[..., 0]
    return _of_numbers((predicted - targets.astype(predicted.dtype)) ** 2, weight)


def forecast_sums(
    x: Float[Array, "B T K"],
    head: Distribution | Bins,
    targets: Float[Array, "B T"],
    weight: Float[Array, "B T"],
) -> Sums:
    """Return the sums of the loss of numbers under a distribution with these parameters."""
    return _of_numbers(head.loss(x, targets.astype(x.dtype)), weight)


def _of_numbers(loss: Float[Array, "B T"], weight: Float[Array, "B T"]) -> Sums:
    weight = weight.astype(loss.dtype)
    total, tokens = (weight * loss).sum(), (weight != 0).astype(loss.dtype).sum()
    return Sums(total, total, jnp.full_like(total, jnp.nan), tokens, weight.sum())


def reconstruction_sums(
    x: Float[Array, "B S C"],
    head: Float[Array, "B S"],
    targets: Float[Array, "B S C"],
    weight: Float[Array, "B S"],
) -> Sums:
    """Return the sums of mean squared errors of vectors; the loss also has each position's penalty,
    which is passed as the head.
    """
    sums = _of_numbers(jnp.square(x - targets.astype(x.dtype)).mean(-1), weight)
    return sums._replace(loss=sums.loss + (weight * head).sum().astype(sums.loss.dtype))


def diffusion_sums(
    x: Float[Array, "B S C"],
    head: None,
    targets: Float[Array, "B S C"],
    weight: Float[Array, "B S"],
) -> Sums:
    """Return the sums of mean squared errors of vectors."""
    return _of_numbers(jnp.square(x - targets.astype(x.dtype)).mean(-1), weight)


def action_sums(
    x: Float[Array, "B T D"],
    head: Head | None,
    targets: Int[Array, "B T"] | Float[Array, "B T A"],
    weight: Float[Array, "B T"],
) -> Sums:
    """Return the sums of cross-entropy of discrete actions, or of mean squared errors of continuous
    ones, which have no head.
    """
    if head is None:
        return diffusion_sums(x, head, targets, weight)
    return loss_sums(head.logits(x), targets, weight, 0.0, "uniform")


def pointer_sums(
    logits: Float[Array, "B T S"],
    head: Head,
    targets: Int[Array, "B T *K"],
    weight: Float[Array, "B T *K"],
) -> Sums:
    """Return the sums of cross-entropy over positions of the source, or over pairs of them."""
    return loss_sums(logits, targets, weight, 0.0, "uniform")


def ctc_sums(
    logits: Float[Array, "B S V"],
    head: Head,
    targets: Int[Array, "B T"],
    weight: Float[Array, "B T"],
) -> Sums:
    """Return the sums of -log p of lines, over all their paths through the positions of a row
    (Graves et al. 2006, equation 5); `correct` is NaN. Lines that no path produces count 0. The
    pieces of a line have one weight, the line's.
    """
    kept, each = (weight > 0).astype(logits.dtype), weight.max(1).astype(logits.dtype)
    none = jnp.zeros(logits.shape[:2], logits.dtype)  # of the positions are padding: see the head
    nll = optax.ctc_loss(logits, none, targets, 1 - kept, blank_id=PAD)
    nll = (each * jnp.where((nll < _IMPOSSIBLE) & (kept.sum(1) > 0), nll, 0)).sum()
    return Sums(nll, nll, jnp.full_like(nll, jnp.nan), kept.sum(), weight.astype(nll.dtype).sum())


# By the name of a target; all others use the cross-entropy of a head.
LOSSES: dict[str, Callable[..., Sums]] = {
    "value": squared_error_sums,
    "span": pointer_sums,
    "move": pointer_sums,
    "forecast": forecast_sums,
    "distances": forecast_sums,
    "ctc": ctc_sums,
    "pixels": reconstruction_sums,
    "diffusion": diffusion_sums,
    "action": action_sums,
    "cloned_action": action_sums,
    "preference": preference_sums,
    "reward": reward_sums,
    "policy": policy_sums,
}
OF_TOKENS = {"preference": "tokens", "policy": "tokens"}  # losses of an output with another name
