"""Cross-entropy with label smoothing, as sums: means are made once, over the global batch."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Float, Int


class Sums(NamedTuple):
    """Sums over the real target tokens of a batch; they add up over slices and devices."""

    loss: Float[Array, ""]  # smoothed cross-entropy, nats
    nll: Float[Array, ""]  # cross-entropy without smoothing, nats
    correct: Float[Array, ""]  # tokens whose logit is the greatest
    tokens: Float[Array, ""]


def smoothing_weights(epsilon: float, vocab_size: int, smoothing: str) -> tuple[float, float]:
    """Return (a, b) such that the target distribution is a [gold] + b everywhere.

    "tensor2tensor" gives epsilon to the V-1 other pieces, "uniform" to all V (Szegedy et al. 2016).
    """
    if smoothing == "tensor2tensor":
        rest = epsilon / (vocab_size - 1)
        return 1 - epsilon - rest, rest
    return 1 - epsilon, epsilon / vocab_size


def loss_sums(
    logits: Float[Array, "B T V"],
    targets: Int[Array, "B T"],
    segments: Int[Array, "B T"],
    epsilon: float,
    smoothing: str,
) -> Sums:
    """Return the sums over positions whose segment is not 0."""
    real = (segments > 0).astype(logits.dtype)
    gold, rest = smoothing_weights(epsilon, logits.shape[-1], smoothing)
    loss, nll, correct = smoothed(logits, targets, gold, rest)
    total = functools.partial(jnp.vdot, real)
    return Sums(total(loss), total(nll), total(correct), real.sum())


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def smoothed(
    logits: Float[Array, "B T V"], targets: Int[Array, "B T"], gold: float, rest: float
) -> tuple[Float[Array, "B T"], Float[Array, "B T"], Float[Array, "B T"]]:
    """Return the smoothed loss, the plain one, and whether the target's logit is the greatest.

    Written with its own gradient, softmax - target distribution, so that no one-hot array is made
    and backward is one pass over the logits. Only the first output has a gradient.
    """
    return _forward(logits, targets, gold, rest)[0]


def _forward(logits, targets, gold, rest):
    greatest = logits.max(-1)
    log_sum = greatest + jnp.log(jnp.exp(logits - greatest[..., None]).sum(-1))
    chosen = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    nll = log_sum - chosen
    loss = gold * nll + rest * (logits.shape[-1] * log_sum - logits.sum(-1))
    correct = (chosen >= greatest).astype(logits.dtype)
    return (loss, nll, correct), (logits, targets, log_sum)


def _backward(gold, rest, residuals, gradients):
    logits, targets, log_sum = residuals
    is_gold = jax.lax.broadcasted_iota(targets.dtype, logits.shape, 2) == targets[..., None]
    probability = jnp.exp(logits - log_sum[..., None])
    slope = probability - rest - jnp.where(is_gold, jnp.asarray(gold, logits.dtype), 0)
    return slope * gradients[0][..., None], None


smoothed.defvjp(_forward, _backward)
