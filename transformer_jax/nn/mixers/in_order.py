"""Loops along sequences whose positions devices share: each goes through its own positions, and
hands the state over to the next (as in LASP: Sun et al. 2024, arXiv:2404.02882).

So a device keeps no more of a row than its positions and a state, and sends a state, however long
the row is. What depends on the state takes as long as on one device, as each waits for those before
it; the rest of a layer does not wait.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from transformer_jax.base.arrays import Array
from transformer_jax.base.shares import POSITIONS, left, parts_of

Body = Callable[[Any, Any], tuple[Any, Any]]  # (state, one) -> (next state, output)
_ANY = PartitionSpec.UNCONSTRAINED


def in_chunks(body: Body, start: Any, given: Sequence[Array], size: int) -> tuple[Any, Array]:
    """Return the state at the end of sequences, and outputs [B T ...], from arrays [B T ...] of
    which `body` gets up to `size` positions at a time, [B C ...]; of padding, zeros.
    """
    (rows, length), parts = given[0].shape[:2], parts_of(POSITIONS)
    own, rest = divmod(length, parts)
    if parts == 1 or rest:
        size = min(size, length)
    else:  # whole chunks on each device
        size = next(count for count in range(min(size, own), 0, -1) if own % count == 0)

    def cut(x: Array) -> Array:
        x = jnp.pad(x, [(0, -length % size if axis == 1 else 0) for axis in range(x.ndim)])
        return x.reshape(rows, -1, size, *x.shape[2:]).swapaxes(0, 1)

    state, out = scan(body, start, tuple(map(cut, given)))
    out = out.swapaxes(0, 1)
    return state, out.reshape(rows, -1, *out.shape[3:])[:, :length]


def scan(body: Body, start: Any, each: Any, reverse: bool = False) -> tuple[Any, Any]:
    """Return what `jax.lax.scan` does. Where the mesh divides positions, each device goes through
    an equal part of the first axis of `each`, if there is one.

    In each of as many rounds as there are devices, all go through their part, from the state that
    the one before them had reached; so after n rounds, what n devices found is final.
    """
    axes, parts = left(POSITIONS), parts_of(POSITIONS)
    if parts == 1 or len(jax.tree.leaves(each)[0]) % parts:
        return jax.lax.scan(body, start, each, reverse=reverse)

    def placed(x: Array) -> Array:
        spec = PartitionSpec(axes, *[_ANY] * (x.ndim - 1))
        return jax.lax.with_sharding_constraint(x, spec)

    def entering(found: Any) -> Any:
        """Return the state that each device begins with: that of the one before it."""

        def behind(x: Array, first: Array) -> Array:
            kept = (x[1:], first[None]) if reverse else (first[None], x[:-1])
            return placed(jnp.concatenate(kept))

        return jax.tree.map(behind, found, start)

    def repeated(x: Array) -> Array:
        return placed(jnp.broadcast_to(x, (parts, *x.shape)))

    # Each device has what the body holds for itself, so that gradients of weights add up over
    # devices once, at the end, and not in every iteration.
    body, held = jax.closure_convert(body, start, jax.tree.map(lambda x: x[0], each))
    each = jax.tree.map(lambda x: placed(x.reshape(parts, -1, *x.shape[1:])), each)
    states, held = jax.tree.map(repeated, (start, held))

    def own(held: Any, state: Any, each: Any) -> tuple[Any, Any]:
        return jax.lax.scan(
            lambda state, one: body(state, one, *held), state, each, reverse=reverse
        )

    go = functools.partial(jax.vmap(own, spmd_axis_name=axes), held)

    @jax.checkpoint
    def again(states: Any, _: None) -> tuple[Any, None]:
        return entering(go(states, each)[0]), None

    states, _ = jax.lax.scan(again, states, length=parts - 1)
    found, out = go(states, each)
    last = jax.tree.map(lambda x: x[0 if reverse else -1], found)
    return last, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), out)
