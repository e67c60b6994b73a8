"""Scaled dot-product attention over every pair (paper 3.2.1)."""

import itertools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Float, on_cpu
from transformer_jax.nn.cache import KeysValues
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

    Query head i uses head i // (N / K) of keys and values. A query that sees nothing gets the mean
    of all values rather than NaN; such rows are padding, and nothing reads them.
    """
    return mix_parts(q, [KeysValues(k, v)], view, dropout, scale)


def mix_parts(
    q: Float[Array, "B N T H"],
    parts: Sequence[KeysValues],
    view: View,
    dropout: Callable[[Array], Array],
    scale: float | None = None,
) -> tuple[Float[Array, "B N T Hv"], Float[Array, "B N T S"]]:
    """Return what `mix` does, with keys and values in parts; those without a filled slot of the
    view are not read.
    """
    batch, heads, queries, size = q.shape
    kv_heads = parts[0].keys.shape[1]
    groups = batch, kv_heads, heads // kv_heads * queries  # heads that share keys: more queries
    wide = jnp.promote_types(q.dtype, jnp.float32)
    firsts = [0, *itertools.accumulate(part.keys.shape[3] for part in parts)]

    def if_filled(number: int, product: Callable[..., Array], otherwise: Callable, *given: Array):
        if number == 0 or view.filled is None:
            return product(*given)
        return jax.lax.cond(view.filled > firsts[number], product, otherwise, *given)

    def nothing(q: Array, k: Array) -> Array:
        return jnp.zeros((*q.shape[:3], k.shape[3]), wide)

    grouped = q.reshape(*groups, size)
    each = [if_filled(i, _scores, nothing, grouped, part.keys) for i, part in enumerate(parts)]
    scores = jnp.concatenate(each, 3).reshape(batch, heads, queries, -1)
    scale = size**-0.5 if scale is None else scale
    scores = scores * scale
    if view.bias is not None:
        k = jnp.concatenate([part.keys for part in parts], 3)
        scores = scores + view.bias(view, q, k, scale)
    weights = jax.nn.softmax(jnp.where(view.mask(), scores, jnp.finfo(wide).min))
    kept = dropout(weights).astype(q.dtype)
    split = jnp.split(kept.reshape(*groups, -1), firsts[1:-1], 3)
    mixed = _gathered(split[0], parts[0].values)
    for i, part in enumerate(parts[1:], 1):
        add, keep = lambda m, w, v: m + _gathered(w, v), lambda m, w, v: m
        mixed = if_filled(i, add, keep, mixed, split[i], part.values)
    mixed = mixed.astype(q.dtype).reshape(*q.shape[:3], -1)
    if view.values is not None:
        mixed = mixed + view.values(view, kept).astype(mixed.dtype)
    return mixed, weights


@jax.custom_vjp
def _scores(q: Float[Array, "B K T H"], k: Float[Array, "B K H S"]) -> Float[Array, "B K T S"]:
    """Return q k, at least in float32. Its gradient is JAX's own in another form: see `_turned`;
    products in the backward pass have operands of q's dtype, as in the forward pass.
    """
    wide = jnp.promote_types(q.dtype, jnp.float32)
    return jnp.einsum("BNTH,BNHS->BNTS", q, k, preferred_element_type=wide)


def _scores_backward(operands, gradient):
    q, k = operands
    gradient = gradient.astype(q.dtype)
    dq = jnp.einsum("BNTS,BNSH->BNTH", gradient, k.swapaxes(2, 3))
    dk = jnp.einsum("BNST,BNTH->BNSH", _turned(gradient), q)
    return dq, dk.swapaxes(2, 3)


_scores.defvjp(lambda q, k: (_scores(q, k), (q, k)), _scores_backward)


@jax.custom_vjp
def _gathered(
    weights: Float[Array, "B K T S"], v: Float[Array, "B K S Hv"]
) -> Float[Array, "B K T Hv"]:
    """Return weights v. Its gradient is JAX's own in another form: see `_turned`."""
    return jnp.einsum("BNTS,BNSH->BNTH", weights, v)


def _gathered_backward(operands, gradient):
    weights, v = operands
    dweights = jnp.einsum("BNTH,BNSH->BNTS", gradient, v)
    return dweights, jnp.einsum("BNST,BNTH->BNSH", _turned(weights), gradient)


_gathered.defvjp(lambda weights, v: (_gathered(weights, v), (weights, v)), _gathered_backward)


def _turned(x: Float[Array, "B K T S"]) -> Float[Array, "B K S T"]:
    """Swap the last axes: on a CPU as a copy, since products that read a matrix transposed take
    three times as long there.
    """
    x = x.swapaxes(2, 3)
    return jax.lax.optimization_barrier(x) if on_cpu() else x
