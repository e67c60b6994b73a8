"""Batches of searches in progress on one or several devices, and what is done to them."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from transformer_jax.decoding.ladder import Rung
from transformer_jax.decoding.search import Demand, Progress, Search, begin, grow, run
from transformer_jax.models.model import Stepper


class Engine:
    """What is done to a batch, compiled once for each of its shapes.

    run    advance until no more than `wake` sentences of a device are active
    admit  let new sentences in, and run
    put    let sentences of another batch in
    take   copy sentences out
    empty  make a batch
    """

    def __init__(self, search: Search, make_stepper: Callable[[Any], Stepper], mesh: Mesh) -> None:
        self._search, self._make_stepper = search, make_stepper
        self.width = search.width
        self._shapes: dict[Any, Any] = {}  # of one sentence in progress, by length and room
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

        def go_on(params: Any, progress: Progress, wake) -> Progress:
            return run(search, make_stepper(params), progress, wake)

        def admit(params: Any, progress: Progress, src_ids, demand, where, wake) -> Progress:
            new = begin(search, make_stepper(params), src_ids, demand, progress.room)
            return go_on(params, _put(progress, new, where), wake)

        def put(params: Any, progress: Progress, new: Progress, where, src_length: int):
            new = grow(make_stepper(params), new, src_length, progress.room)
            return _put(progress, new, where)

        def take(progress: Progress, which) -> Progress:
            return jax.tree.map(lambda x: x[which], progress)

        self.run = on_each_device(go_on, (whole, rows, whole), donate_argnums=1)
        self.admit = on_each_device(admit, (whole, rows, rows, rows, rows, whole), donate_argnums=1)
        self.put = on_each_device(
            put, (whole, rows, rows, rows), static_argnames="src_length", donate_argnums=1
        )
        self.take = on_each_device(take, (rows, rows))

    def empty(self, params: Any, rung: Rung, prefix: int) -> Progress:
        """Return a batch of nothing but idle sentences with prefixes of that length."""
        tree, shapes = self._shapes_of(params, rung.src_length, rung.room, prefix)
        rows = rung.rows * self.devices
        leaves = [jnp.zeros((rows, *x.shape[1:]), x.dtype, device=self.sharding) for x in shapes]
        progress = jax.tree.unflatten(tree, leaves)
        return progress.replace(done=~progress.done)

    def _shapes_of(self, params: Any, src_length: int, room: int, prefix: int) -> tuple[Any, list]:
        """Return structure and leaves of one sentence in progress; traced once for each shape."""
        key = (src_length, room, prefix)
        if key not in self._shapes:
            integers = functools.partial(jnp.zeros, dtype=jnp.int32)
            demand = Demand(integers(1), integers(1), integers((1, prefix)), integers(1))
            src_ids = integers((1, src_length))
            trees = []

            def leaves(params: Any) -> list:
                progress = begin(self._search, self._make_stepper(params), src_ids, demand, room)
                trees.append(jax.tree.structure(progress))
                return jax.tree.leaves(progress)

            shapes = jax.eval_shape(leaves, params)
            self._shapes[key] = trees[0], shapes
        return self._shapes[key]


def _put(progress: Progress, new: Progress, where) -> Progress:
    return jax.tree.map(lambda old, x: old.at[where].set(x, mode="drop"), progress, new)
