"""Scaled dot-product attention over every pair (paper 3.2.1)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, on_cpu
from transformer_jax.nn.view import View


def mix(
    q: Float[Array, "B N T H"],
    k: Float[Array, "B K H S"],
    v: Float[Array, "B K S Hv"],
    view: View,
    dropout: Callable[[Array], Array],
    scale: float | None = None,
    softcap: float | None = None,
) -> tuple[Float[Array, "B N T Hv"], Float[Array, "B N T S"]]:
    """Return softmax(scale q k) v and the weights; a scale of None is H^-0.5. The softmax is at
    least float32. With a softcap c, scores s become c tanh(s / c) (Gemma 2: arXiv:2408.00118).

    Query head i uses head i // (N / K) of keys and values. A query that sees nothing gets the mean
    of all values rather than NaN; such rows are padding, and nothing reads them.
    """
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    products = scores(q, k) * scale
    if softcap is not None:
        products = softcap * jnp.tanh(products / softcap)
    if view.bias is not None:
        products = products + view.bias(view, q, k, scale)
    lowest = jnp.finfo(jnp.promote_types(q.dtype, jnp.float32)).min
    weights = jax.nn.softmax(jnp.where(view.mask(), products, lowest))
    kept = dropout(weights).astype(q.dtype)
    mixed = gathered(kept, v).astype(q.dtype)
    if view.values is not None:
        mixed = mixed + view.values(view, kept).astype(mixed.dtype)
    return mixed, weights


def scores(q: Float[Array, "B N T H"], k: Float[Array, "B K H S"]) -> Float[Array, "B N T S"]:
    """Return q k, at least in float32."""
    products = _scores(_grouped(q, k), k)
    return products.reshape(*q.shape[:3], -1)


def gathered(
    weights: Float[Array, "B N T S"], v: Float[Array, "B K S Hv"]
) -> Float[Array, "B N T Hv"]:
    """Return weights v."""
    mixed = _gathered(_grouped(weights, v), v)
    return mixed.reshape(*weights.shape[:3], -1)


def gathered_slopes(
    weights: Float[Array, "B N T S"], v: Float[Array, "B K S Hv"], slope: Float[Array, "B N T Hv"]
) -> tuple[Float[Array, "B N T S"], Float[Array, "B K S Hv"]]:
    """Return the gradients of `gathered` with respect to weights and values, given that of what it
    returns.
    """
    dweights, dv = _gathered_backward((_grouped(weights, v), v), _grouped(slope, v))
    return dweights.reshape(weights.shape), dv


def _grouped(x: Float[Array, "B N T X"], k: Array) -> Float[Array, "B K ... X"]:
    """Return heads by the key heads that they share: [B K G T X], or as they are if they share
    none. Groups and queries stay two axes, so that a mesh can divide queries; products take them
    as one.
    """
    batch, heads, *others = x.shape
    shared = heads // k.shape[1]
    return x if shared == 1 else x.reshape(batch, k.shape[1], shared, *others)


def _product(axes: str, x: Array, y: Array, **kinds: Any) -> Array:
    """Return an einsum in which q stands for queries: of groups, if x has them."""
    return jnp.einsum(axes.replace("q", "GT" if x.ndim == 5 else "T"), x, y, **kinds)


@jax.custom_vjp
def _scores(q: Float[Array, "B K ... H"], k: Float[Array, "B K H S"]) -> Float[Array, "B K ... S"]:
    """Return q k, at least in float32. Its gradient is JAX's own in another form: see `_turned`;
    products in the backward pass have operands of q's dtype, as in the forward pass.
    """
    wide = jnp.promote_types(q.dtype, jnp.float32)
    return _product("BKqH,BKHS->BKqS", q, k, preferred_element_type=wide)


def _scores_backward(operands, gradient):
    q, k = operands
    gradient = gradient.astype(q.dtype)
    dq = _product("BKqS,BKSH->BKqH", gradient, k.swapaxes(2, 3))
    dk = _product("BKSq,BKqH->BKSH", _turned(gradient), q)
    return dq, dk.swapaxes(2, 3)


_scores.defvjp(lambda q, k: (_scores(q, k), (q, k)), _scores_backward)


@jax.custom_vjp
def _gathered(
    weights: Float[Array, "B K ... S"], v: Float[Array, "B K S Hv"]
) -> Float[Array, "B K ... Hv"]:
    """Return weights v. Its gradient is JAX's own in another form: see `_turned`."""
    return _product("BKqS,BKSH->BKqH", weights, v)


def _gathered_backward(operands, gradient):
    weights, v = operands
    dweights = _product("BKqH,BKSH->BKqS", gradient, v)
    return dweights, _product("BKSq,BKqH->BKSH", _turned(weights), gradient)


_gathered.defvjp(lambda weights, v: (_gathered(weights, v), (weights, v)), _gathered_backward)


def _turned(x: Float[Array, "B K ... S"]) -> Float[Array, "B K S ..."]:
    """Move the last axis: on a CPU as a copy, since products that read a matrix transposed take
    three times as long there.
    """
    x = jnp.moveaxis(x, -1, 2)
    return jax.lax.optimization_barrier(x) if on_cpu() else x
