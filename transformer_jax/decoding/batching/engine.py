"""Compiled operations on batches of searches, on one or several devices."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer_jax.decoding.batching.batch_shapes import BatchShape
from transformer_jax.decoding.batching.drain import drain
from transformer_jax.decoding.batching.packing import Layout, joined
from transformer_jax.decoding.search.request import Form
from transformer_jax.decoding.search.state import (
    ENDLESS,
    Search,
    SearchRequest,
    SearchState,
    begin,
    grow,
    put_rows,
    run,
)
from transformer_jax.models.model import Stepper


class Engine:
    """Operations on a batch, compiled once for each shape and each kind of search.

    run    advance until no more than `wake` sentences per device are active
    drain  admit the sentences of a queue as rows become free, and run, for a number of steps
    put    insert sentences of another batch
    take   copy sentences out
    empty  make an empty batch

    Searches that differ only in numbers share their programs: see `Search`.
    """

    def __init__(self, make_stepper: Callable[[Any], Stepper], mesh: Mesh) -> None:
        self.devices = mesh.size
        self.accelerated = mesh.devices.flat[0].platform != "cpu"  # its compiler takes long
        self.sharding = NamedSharding(mesh, PartitionSpec(mesh.axis_names))
        rows, whole = self.sharding.spec, PartitionSpec()

        def on_each_device(function: Callable, specs: tuple, **options: Any) -> Any:
            def call(*args, **static):
                part = functools.partial(function, **static)
                return jax.shard_map(
                    part, mesh=mesh, in_specs=specs, out_specs=rows, check_vma=False
                )(*args)

            return jax.jit(call, **options)

        def go_on(params: Any, search: Search, state: SearchState, wake) -> SearchState:
            return run(search, make_stepper(params), state, wake, jnp.asarray(ENDLESS))[0]

        def let_through(
            params: Any, search: Search, state: SearchState, words: Any, *, layout: Layout,
            share: int,
        ) -> tuple[SearchState, Any]:  # fmt: skip
            requests = layout.split(words)
            state, outcome = drain(search, make_stepper(params), state, *requests, share=share)
            return state, joined(jax.tree.leaves(outcome))

        def put(params: Any, state: SearchState, new: SearchState, where, src_length: int):
            new = grow(make_stepper(params), new, src_length, state.room)
            return put_rows(state, new, where)

        def take(state: SearchState, which) -> SearchState:
            return jax.tree.map(lambda x: x[which], state)

        def empty(params: Any, search: Search, shape: BatchShape, form: Form) -> SearchState:
            rows, length, room = shape.rows * mesh.size, shape.src_length, shape.room
            request = jax.tree.map(jnp.asarray, SearchRequest.empty(1, length, form))
            # Only for its shapes: the compiler drops the computation of its values.
            one = begin(search, make_stepper(params), request, room)
            state = jax.tree.map(lambda x: jnp.zeros((rows, *x.shape[1:]), x.dtype), one)
            return state.replace(done=jnp.ones(rows, bool))

        self.run = on_each_device(go_on, (whole, whole, rows, whole), donate_argnums=2)
        specs = whole, whole, rows, rows
        static = "layout", "share"
        self.drain = on_each_device(let_through, specs, static_argnames=static, donate_argnums=2)
        self.put = on_each_device(
            put, (whole, rows, rows, rows), static_argnames="src_length", donate_argnums=1
        )
        self.take = on_each_device(take, (rows, rows))
        self.empty = jax.jit(
            empty,
            static_argnames=("shape", "form"),
            out_shardings=self.sharding,
        )
