"""The compiled train step: one program for each shape of batch, made ahead of need."""

import functools
import logging
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from transformer_jax.counting import needed, operations
from transformer_jax.data.batch import Batch
from transformer_jax.data.batching import Shape
from transformer_jax.sharding.mesh import rows_over_data

log = logging.getLogger("transformer_jax")


class StepPrograms:
    """A jitted step of (state, batch), compiled for one shape after another beside the training.

    One thread compiles, in the order of first use, which is the same in every process; a step waits
    for its own program alone. The operations, the time and the memory of each are told.
    """

    def __init__(self, step: Any, state: Any, mesh: Mesh, shapes: Iterable[Shape]) -> None:
        """Begin to compile `step`, a functools.partial of a jitted function; `state` has the shapes
        and shardings of every state to come."""
        self._pool = ThreadPoolExecutor(1, "compiler")
        compiled = functools.partial(_compile, step, state, mesh)
        self._programs: dict[Shape, Future] = {
            shape: self._pool.submit(compiled, shape) for shape in shapes
        }

    def __call__(self, state: Any, batch: Batch) -> Any:
        rows, src_length = batch.src_ids.shape
        shape = Shape(rows, src_length, batch.tgt_in.shape[1])
        return self._programs[shape].result()(state, batch)

    def __enter__(self) -> "StepPrograms":
        return self

    def __exit__(self, *_: object) -> None:
        """Leave what is not compiled yet; wait for what is being compiled."""
        self._pool.shutdown(cancel_futures=True)


def abstract_batch(shape: Shape, mesh: Mesh) -> Batch:
    """Return a batch without numbers, as it lies on a mesh."""
    rows, *lengths = shape
    sides: list[Any] = [
        jax.ShapeDtypeStruct((rows, length), jnp.int32, sharding=rows_over_data(mesh))
        for length in lengths
    ]
    return Batch(*sides[:1] * 3, *sides[1:] * 4)


def peak_bytes(program: Any) -> int:
    """Return what a program needs on a device; arguments and results that share memory once."""
    memory = program.memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return held + memory.temp_size_in_bytes


def _compile(step: Any, state: Any, mesh: Mesh, shape: Shape) -> Callable:
    began = time.monotonic()
    with jax.set_mesh(mesh):
        traced = step.func.trace(state, abstract_batch(shape, mesh), **step.keywords)
        program = traced.lower().compile()
    seconds = time.monotonic() - began
    log.info(
        "batches of %d x %d and %d: %.3g operations, compiled in %.1f s, %.1f MB a device",
        *shape, operations(needed(traced.jaxpr)).products, seconds, peak_bytes(program) / 1e6,
    )  # fmt: skip
    return functools.partial(program, **step.keywords)
