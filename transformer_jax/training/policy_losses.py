"""Losses of answers that the model itself wrote, by what they earned."""

import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float
from transformer_jax.nn.embedding import Head
from transformer_jax.training.loss import Sums
from transformer_jax.training.preference_losses import log_probs


def policy_sums(
    x: Float[Array, "B T D"], head: Head, labels: Float[Array, "B T 8"], weight: Float[Array, "B T"]
) -> Sums:
    """Return the sums of the clipped policy loss (Schulman et al. 2017, arXiv:1707.06347, equation
    7) and of the divergence from a reference (Schulman 2020, http://joschu.net/blog/kl-approx.html,
    its k3), see `Reinforce` for the labels. Where the model has just written what it learns from,
    the loss is 0 but for that divergence, and its gradient is not. `nll` is that of the answers,
    which estimates the entropy; `correct` is NaN.
    """
    each = log_probs(x, head, labels[..., 0])
    share, advantage, old, reference, kl, below, above = (
        labels[..., place].astype(each.dtype) for place in range(1, 8)
    )
    said = share > 0  # elsewhere, exponentials of differences may be infinite
    ratio = jnp.exp(jnp.where(said, each - old, 0))
    gain = jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - below, 1 + above) * advantage)
    behind = jnp.where(said & (kl > 0), reference - each, 0)
    divergence = jnp.exp(behind) - behind - 1
    loss, count = kl * divergence - gain, said.astype(each.dtype).sum()
    return Sums(
        (share * loss).sum(), -(share * each).sum(), jnp.full_like(count, jnp.nan), count,
        weight.astype(each.dtype).sum(),
    )  # fmt: skip
