"""The compiled train step: one program for each shape of batch, made ahead of need."""

import functools
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.counting import needed, operations
from transformer_jax.data.batch import Batch
from transformer_jax.data.batching import Shape, blank
from transformer_jax.data.objectives import Objective
from transformer_jax.sharding.mesh import rows_over_data

log = logging.getLogger("transformer_jax")


class StepPrograms:
    """A jitted step of (state, batch), compiled for one shape after another beside the training.

    One thread compiles, in the order of first use, which is the same in every process; a step waits
    for its own program alone. The operations, the time and the memory of each are told.
    """

    def __init__(
        self, step: Any, state: Any, objective: Objective, mesh: Mesh, shapes: Iterable[Shape]
    ) -> None:
        """Begin to compile `step`, a functools.partial of a jitted function; `state` has the shapes
        and shardings of every state to come, `objective` makes the batches."""
        self._pool = ThreadPoolExecutor(1, "compiler")
        self._programs: dict[Shape, Future] = {}
        for shape in shapes:
            batch = abstract_batch(objective, shape, mesh)
            self._programs[shape] = self._pool.submit(_compile, step, state, batch, mesh)

    def __call__(self, state: Any, batch: Batch) -> Any:
        return self._programs[shape_of(batch)].result()(state, batch)

    def __enter__(self) -> "StepPrograms":
        return self

    def __exit__(self, *_: object) -> None:
        """Leave what is not compiled yet; wait for what is being compiled."""
        self._pool.shutdown(cancel_futures=True)


def shape_of(batch: Batch) -> Shape:
    """Return the shape of a batch."""
    src, tgt = (np.zeros((0, 0)) if side is None else side.seg for side in batch[:2])
    return Shape(max(len(src), len(tgt)), src.shape[1], tgt.shape[1])


def abstract_batch(objective: Objective, shape: Shape, mesh: Mesh) -> Batch:
    """Return a batch without numbers, as it lies on a mesh."""
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rows_over_data(mesh)),
        blank(objective, shape),
    )


def peak_bytes(program: Any) -> int:
    """Return what a program needs on a device; arguments and results that share memory once."""
    memory = program.memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return held + memory.temp_size_in_bytes


def _compile(step: Any, state: Any, batch: Batch, mesh: Mesh) -> Callable:
    began, shape = time.monotonic(), shape_of(batch)
    with jax.set_mesh(mesh):
        traced = step.func.trace(state, batch, **step.keywords)
        program = traced.lower().compile()
    seconds = time.monotonic() - began
    log.info(
        "batches of %d x %d and %d: %.3g operations, compiled in %.1f s, %.1f MB a device",
        *shape, operations(needed(traced.jaxpr)).products, seconds, peak_bytes(program) / 1e6,
    )  # fmt: skip
    return functools.partial(program, **step.keywords)
