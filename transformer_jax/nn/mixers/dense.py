"""Scaled dot-product attention over every pair (paper 3.2.1)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Float
from transformer_jax.nn.view import View


def mix(
    q: Float[Array, "B N T H"],
    k: Float[Array, "B K H S"],
    v: Float[Array, "B K S Hv"],
    view: View,
    dropout: Callable[[Array], Array],
    scale: float | None = None,
) -> tuple[Float[Array, "B N T Hv"], Float[Array, "B N T S"]]:
    """Return softmax(scale q k) v and the weights; a scale of None is H^-0.5. The softmax is at
    least float32.

    Query head i uses head i // (N / K) of keys and values. A query that may look nowhere gets the
    mean of all values rather than NaN; such rows are padding, and nothing reads them.
    """
    batch, heads, queries, size = q.shape
    groups = batch, k.shape[1], heads // k.shape[1] * queries  # heads that share keys: more queries
    wide = jnp.promote_types(q.dtype, jnp.float32)
    scores = jnp.einsum(
        "BNTH,BNHS->BNTS", q.reshape(*groups, size), k, preferred_element_type=wide
    ).reshape(batch, heads, queries, -1)
    scale = size**-0.5 if scale is None else scale
    scores = scores * scale
    if view.bias is not None:
        scores = scores + view.bias(view, q, k, scale)
    weights = jax.nn.softmax(jnp.where(view.mask(), scores, jnp.finfo(wide).min))
    kept = dropout(weights).astype(q.dtype)
    mixed = jnp.einsum("BNTS,BNSH->BNTH", kept.reshape(*groups, -1), v).astype(q.dtype)
    mixed = mixed.reshape(*q.shape[:3], -1)
    if view.values is not None:
        mixed = mixed + view.values(view, kept).astype(mixed.dtype)
    return mixed, weights
