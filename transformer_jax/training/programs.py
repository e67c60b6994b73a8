"""The train step of a run: compiled ahead of time for each batch shape, traced on demand."""

import functools
import logging
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from transformer_jax.base.counting import needed, operations
from transformer_jax.config import Experiment, OptimizerConfig, TrainingConfig
from transformer_jax.data.batches.batch import Batch, Channels, channels_of
from transformer_jax.data.batches.batching import Shape, blank
from transformer_jax.data.objectives import Objective, objective_named
from transformer_jax.models.build import roles_of, widths_of
from transformer_jax.models.model import Model
from transformer_jax.sharding.mesh import place_everywhere, rows_over_data
from transformer_jax.training.optimizer import make_optimizer
from transformer_jax.training.profiling import Times, Trace
from transformer_jax.training.schedule import schedule_of
from transformer_jax.training.selected import frozen_of
from transformer_jax.training.state import TrainState, abstract
from transformer_jax.training.step import (
    StepMetrics,
    jit_train_step,
    make_train_step,
    several_steps,
)

log = logging.getLogger("transformer_jax")


class TrainStep:
    """The train step of a run: (state, batch) -> (state, metrics), which donates the state.

    With a count of steps above 1, these run one after the other in one program: the batches, and
    their metrics, are along a first axis.

    The seed and the schedule's numbers are arguments of the compiled programs, not constants in
    them: runs that differ only in these share programs.
    """

    def __init__(
        self, experiment: Experiment, model: Model, state: TrainState, mesh: Mesh, most: int = 1,
        objective: Objective | None = None,
    ) -> None:  # fmt: skip
        """`state` has the shapes and shardings of all later states; a text has at most `most`
        labels; `objective` makes the batches, if not the experiment's own.
        """
        optimizer, training = experiment.optimizer, experiment.training
        numbers = optimizer.learning_rate, optimizer.warmup_steps, training.steps
        leaves, tree = jax.tree.flatten(abstract(state))
        self._jitted = functools.partial(
            _jitted, model, replace(optimizer, learning_rate=0.01, warmup_steps=1),
            replace(training, steps=1, steps_per_execution=1), mesh, tuple(leaves), tree,
        )  # fmt: skip
        # On the devices, and not by name: else every step would check all arrays in Python.
        constants = np.uint32(experiment.seed), jax.tree.map(jnp.asarray, numbers)
        self._given = place_everywhere(constants, mesh)
        self._state, self._mesh = abstract(state), mesh
        self._objective = objective or objective_named(experiment.objective.name)
        self._known = channels_of(model.example()), most
        self._programs: dict[tuple[Shape, int], Future] = {}
        self._trace: Trace | None = None
        self._times = Times()

    @contextmanager
    def compiled(
        self,
        shapes: Iterable[Shape],
        trace: Trace | None = None,
        times: Times | None = None,
        counts: Iterable[int] = (1,),
    ) -> Iterator[None]:
        """Compile a program for each shape and count of steps in the background of this context,
        and trace in it.

        One thread compiles, in the order given, which must be the same in every process; a step
        waits only for its own program, as "compilation" in `times`. The operations, the time and
        the memory of each are logged. At the end, pending compilations are cancelled, and the one
        in progress is waited for.
        """
        # One for GPUs, too: they time candidates for kernels one at a time, so that several
        # programs took as long together as one after another, and none was ready early.
        pool = ThreadPoolExecutor(1, "compiler")
        programs = [(shape, count) for count in counts for shape in shapes]
        self._programs = {each: pool.submit(self._compile, *each) for each in programs}
        self._trace, self._times = trace, times or Times()
        try:
            with trace or nullcontext():
                yield
        finally:
            pool.shutdown(cancel_futures=True)

    def __call__(
        self, state: TrainState, batch: Batch, count: int = 1
    ) -> tuple[TrainState, StepMetrics]:
        future = self._programs[shape_of(batch, stacked=count > 1), count]
        with nullcontext() if future.done() else self._times.on("compilation"):
            program = future.result()
        step = functools.partial(program, state, batch, *self._given)
        return step() if self._trace is None else self._trace.of(step, state, count)

    def lower(self, shape: Shape, count: int = 1) -> tuple[jax.stages.Traced, jax.stages.Lowered]:
        """Return the program for a batch shape, as its jaxpr and lowered for the compiler."""
        batch = abstract_batch(self._objective, shape, self._mesh, *self._known, count=count)
        with jax.set_mesh(self._mesh):
            traced = self._jitted(count).trace(self._state, batch, *self._given)
            return traced, traced.lower()

    def _compile(self, shape: Shape, count: int) -> jax.stages.Compiled:
        began = time.monotonic()
        traced, lowered = self.lower(shape, count)
        with jax.set_mesh(self._mesh):
            program = lowered.compile()
        seconds = time.monotonic() - began
        log.info(
            "batches of %d x %d and %d%s: %.3g operations, compiled in %.1f s, %.1f MB per device",
            *shape, f", {count} at a time" if count > 1 else "",
            operations(needed(traced.jaxpr)).products, seconds, peak_bytes(program) / 1e6,
        )  # fmt: skip
        return program


@functools.lru_cache(maxsize=8)
def _jitted(
    model: Model,
    optimizer: OptimizerConfig,
    training: TrainingConfig,
    mesh: Mesh,
    leaves: tuple[jax.ShapeDtypeStruct, ...],
    tree: Any,
    count: int,
) -> Any:
    """Return the jitted step of all such runs in a process: it holds compiled programs.

    The state, as leaves and their tree, gives the layout of every state. The schedule's numbers in
    the configs are not read. `count` is the number of steps in a call.
    """

    frozen, roles = frozen_of(optimizer, model.config), roles_of(model)

    def step(state: TrainState, batch: Batch, seed, numbers: tuple[Any, Any, Any]):
        schedule = schedule_of(
            optimizer, model.config.d_model, *numbers, restarts=training.restarts
        )
        tx = make_optimizer(optimizer, schedule, roles, frozen, widths_of(model))
        one = make_train_step(model, tx, training, seed, frozen)
        return several_steps(one, count)(state, batch)

    return jit_train_step(step, jax.tree.unflatten(tree, leaves), mesh)


def shape_of(batch: Batch, stacked: bool = False) -> Shape:
    """Return the shape of a batch, or of several that are stacked."""
    shapes = [(0, 0) if side is None else side.seg.shape[stacked:] for side in batch[:2]]
    (src_rows, src), (tgt_rows, tgt) = shapes
    return Shape(max(src_rows, tgt_rows), src, tgt)


def abstract_batch(
    objective: Objective,
    shape: Shape,
    mesh: Mesh,
    channels: Channels = (None, None),
    most: int = 1,
    count: int = 1,
) -> Batch:
    """Return an abstract batch as laid out on a mesh, or `count` above 1 of them, stacked; for
    `channels` and `most` see `blank`.
    """
    first, sharding = (count,) * (count > 1), rows_over_data(mesh, count > 1)
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((*first, *x.shape), x.dtype, sharding=sharding),
        blank(objective, shape, channels, most),
    )


def peak_bytes(program: Any) -> int:
    """Return a program's memory on a device; arguments and results that share memory count once."""
    memory = program.memory_analysis()
    held = memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    return held + memory.temp_size_in_bytes
