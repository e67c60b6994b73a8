"""Batches of searches in state on one or several devices, and what is done to them."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer_jax.arrays import Array, Float, Int
from transformer_jax.decoding.batching.batch_shapes import BatchShape
from transformer_jax.decoding.search.state import (
    ENDLESS,
    Search,
    SearchRequest,
    SearchState,
    begin,
    grow,
    run,
)
from transformer_jax.models.model import Stepper


@struct.dataclass
class Results:
    """What is found for sentences, by the places that they had in a batch or in a queue."""

    position: Int[Array | np.ndarray, "N"]
    tokens: Int[Array | np.ndarray, "N W L"]
    scores: Float[Array | np.ndarray, "N W"]
    drafts: Int[Array | np.ndarray, "N 3"] | None

    @classmethod
    def of(cls, state: SearchState) -> "Results":
        """Return what rows have found so far."""
        return cls(state.position, state.finished, state.scores, state.drafts)


class Engine:
    """What is done to a batch, compiled once for each of its shapes and each kind of search.

    run    advance until no more than `wake` sentences of a device are active, or by so many steps
    drain  let the sentences of a queue in as rows become free, and run
    enter  let new sentences in
    put    let sentences of another batch in
    take   copy sentences out
    empty  make a batch

    Searches that differ in numbers alone share their programs: see `Search`.
    """

    def __init__(self, make_stepper: Callable[[Any], Stepper], mesh: Mesh) -> None:
        self.devices = mesh.size
        self.sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
        rows, whole = self.sharding.spec, PartitionSpec()

        def on_each_device(function: Callable, specs: tuple, **options: Any) -> Any:
            def call(*args, **static):
                part = functools.partial(function, **static)
                return jax.shard_map(
                    part, mesh=mesh, in_specs=specs, out_specs=rows, check_vma=False
                )(*args)

            return jax.jit(call, **options)

        def go_on(params: Any, search: Search, state: SearchState, wake, steps) -> SearchState:
            return run(search, make_stepper(params), state, wake, steps)

        def enter(params: Any, search: Search, state: SearchState, request, where):
            new = begin(search, make_stepper(params), request, state.room)
            return _put(state, new, where)

        def drain(
            params: Any, search: Search, state: SearchState, places, queue, count, wake, share: int
        ) -> tuple:
            # Other rows than those whose place is -1 are taken: by sentence i of the queue if their
            # place is rows + i, else since before. Loops inside a loop: a branch would copy caches.
            rows, size, one = len(places), len(queue.limits), jnp.arange(share, dtype=jnp.int32)
            results = jax.tree.map(
                lambda x: jnp.zeros((rows + size, *x.shape[1:]), x.dtype), Results.of(state)
            )

            def fits(entered, places):
                return (entered < count[0]) & ((places < 0).sum() >= share)

            def turn(carry):
                _, entered, state, places, results = carry
                part = jax.tree.map(
                    lambda x: jax.lax.dynamic_slice_in_dim(x, entered, share), queue
                )
                comes = fits(entered, places) & (entered + one < count[0])
                free = jnp.nonzero(places < 0, size=share, fill_value=rows)[0]
                where = jnp.where(comes, free, rows)
                state = enter(params, search, state, part, where)
                places = places.at[where].set(rows + entered + one, mode="drop")
                entered = entered + share * comes[0]
                enough = jnp.where(entered < count[0], rows - share, wake[0])
                state = go_on(params, search, state, enough, jnp.asarray(ENDLESS))
                over = state.done & (places >= 0)
                where = jnp.where(over, places, rows + size)
                results = _put(results, Results.of(state), where)
                return False, entered, state, jnp.where(over, -1, places), results

            def on(carry):
                first, entered, _, places, _ = carry
                return first | fits(entered, places)

            carry = True, jnp.int32(0), state, places, results
            _, entered, *found = jax.lax.while_loop(on, turn, carry)
            return jnp.minimum(entered, count[0])[None], *found

        def put(params: Any, state: SearchState, new: SearchState, where, src_length: int):
            new = grow(make_stepper(params), new, src_length, state.room)
            return _put(state, new, where)

        def take(state: SearchState, which) -> SearchState:
            return jax.tree.map(lambda x: x[which], state)

        def empty(
            params: Any, search: Search, shape: BatchShape, prefix: int, asked: bool = False,
            channels: int | None = None,
        ) -> SearchState:  # fmt: skip
            rows, length, room = shape.rows * mesh.size, shape.src_length, shape.room
            given = 1, length, prefix, asked, channels
            request = jax.tree.map(jnp.asarray, SearchRequest.empty(*given))
            # For its shapes alone: the compiler drops what computes its values.
            one = begin(search, make_stepper(params), request, room)
            state = jax.tree.map(lambda x: jnp.zeros((rows, *x.shape[1:]), x.dtype), one)
            return state.replace(done=jnp.ones(rows, bool))

        self.run = on_each_device(go_on, (whole, whole, rows, whole, whole), donate_argnums=2)
        specs = whole, whole, rows, rows, rows
        self.enter = on_each_device(enter, specs, donate_argnums=2)
        self.drain = on_each_device(
            drain, (*specs, rows, rows), static_argnames="share", donate_argnums=2
        )
        self.put = on_each_device(
            put, (whole, rows, rows, rows), static_argnames="src_length", donate_argnums=1
        )
        self.take = on_each_device(take, (rows, rows))
        self.empty = jax.jit(
            empty,
            static_argnames=("shape", "prefix", "asked", "channels"),
            out_shardings=self.sharding,
        )


def _put(state: Any, new: Any, where) -> Any:
    return jax.tree.map(lambda old, x: old.at[where].set(x, mode="drop"), state, new)
