"""Batches of searches in progress on one or several devices, and what is done to them."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer_jax.decoding.ladder import Rung
from transformer_jax.decoding.search import Demand, Progress, Search, begin, grow, run
from transformer_jax.decoding.stepper import Stepper


class Engine:
    """What is done to a batch, compiled once for each of its shapes and each kind of search.

    run    advance until no more than `wake` sentences of a device are active
    admit  let new sentences in, and run
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

        def go_on(params: Any, search: Search, progress: Progress, wake) -> Progress:
            return run(search, make_stepper(params), progress, wake)

        def admit(params: Any, search: Search, progress: Progress, src_ids, demand, where, wake):
            new = begin(search, make_stepper(params), src_ids, demand, progress.room)
            return go_on(params, search, _put(progress, new, where), wake)

        def put(params: Any, progress: Progress, new: Progress, where, src_length: int):
            new = grow(make_stepper(params), new, src_length, progress.room)
            return _put(progress, new, where)

        def take(progress: Progress, which) -> Progress:
            return jax.tree.map(lambda x: x[which], progress)

        def empty(params: Any, search: Search, rung: Rung, prefix: int) -> Progress:
            rows, length, room = rung.rows * mesh.size, rung.src_length, rung.room
            integers = functools.partial(jnp.zeros, dtype=jnp.int32)
            demand = Demand(integers(1), integers(1), integers((1, prefix)), integers(1))
            # For its shapes alone: the compiler drops what computes its values.
            one = begin(search, make_stepper(params), integers((1, length)), demand, room)
            progress = jax.tree.map(lambda x: jnp.zeros((rows, *x.shape[1:]), x.dtype), one)
            return progress.replace(done=jnp.ones(rows, bool))

        self.run = on_each_device(go_on, (whole, whole, rows, whole), donate_argnums=2)
        specs = whole, whole, rows, rows, rows, rows, whole
        self.admit = on_each_device(admit, specs, donate_argnums=2)
        self.put = on_each_device(
            put, (whole, rows, rows, rows), static_argnames="src_length", donate_argnums=1
        )
        self.take = on_each_device(take, (rows, rows))
        self.empty = jax.jit(empty, static_argnames=("rung", "prefix"), out_shardings=self.sharding)


def _put(progress: Progress, new: Progress, where) -> Progress:
    return jax.tree.map(lambda old, x: old.at[where].set(x, mode="drop"), progress, new)
