"""Scaled dot-product attention over every pair (paper 3.2.1)."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Float
from transformer_jax.nn.view import View


def mix(
    q: Float[Array, "B N T H"],
    k: Float[Array, "B N H S"],
    v: Float[Array, "B N S Hv"],
    view: View,
    dropout: Callable[[Array], Array],
) -> tuple[Float[Array, "B N T Hv"], Float[Array, "B N T S"]]:
    """Return softmax(q k / sqrt(H)) v and the weights. The softmax is at least float32.

    A query that may look nowhere gets the mean of all values rather than NaN; such rows are
    padding, and nothing reads them.
    """
    wide = jnp.promote_types(q.dtype, jnp.float32)
    scores = jnp.einsum("BNTH,BNHS->BNTS", q, k, preferred_element_type=wide)
    scores = jnp.where(view.mask(), scores * q.shape[-1] ** -0.5, jnp.finfo(wide).min)
    weights = jax.nn.softmax(scores)
    mixed = dropout(weights).astype(q.dtype)
    return jnp.einsum("BNTS,BNSH->BNTH", mixed, v), weights
