"""The cost of a train step, counted from its own program without compiling it."""

import functools
from typing import Any, NamedTuple

import flax.linen as nn
import jax
from jax.sharding import AbstractDevice, AbstractMesh, AxisType, use_abstract_mesh

from transformer_jax.base import counting
from transformer_jax.config import (
    Experiment,
    MeshConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
    TrainingConfig,
)
from transformer_jax.data.batches.batch import channels_of
from transformer_jax.data.batches.batching import Shape, blank, rows_for
from transformer_jax.data.objectives import objective_named
from transformer_jax.models.build import abstract_params, build, promised, roles_of, widths_of
from transformer_jax.models.encoder import HEADS
from transformer_jax.models.model import Model
from transformer_jax.nn.roles import is_box, name_of
from transformer_jax.sharding.mesh import AXES, make_mesh
from transformer_jax.training.optimizer import averaged, make_optimizer
from transformer_jax.training.programs import abstract_batch
from transformer_jax.training.schedule import make_schedule
from transformer_jax.training.selected import frozen_of
from transformer_jax.training.state import TrainState, abstract_state
from transformer_jax.training.step import make_train_step, make_validation_step

Sizes = tuple[int, int]  # of the source and the target vocabulary


class Cost(NamedTuple):
    """The cost of one step on one GPU that holds everything."""

    operations: counting.Operations
    memory: int  # bytes


@functools.cache
def parameters(
    config: ModelConfig,
    sizes: Sizes,
    objective: ObjectiveConfig = ObjectiveConfig(),  # noqa: B008 (immutable)
) -> int:
    """Return the number of parameters of a model, with the heads that an objective needs."""
    return counting.parameters(abstract_params(build(config, *sizes, **promised(objective))))


def active_parameters(experiment: Experiment, sizes: Sizes) -> int:
    """Return the number of parameters through which a piece passes, by the share of each that its
    role names. Tables of embeddings count whole, as in `parameters`.
    """
    model = build(experiment.model, *sizes, **promised(experiment.objective))
    roles = roles_of(model)

    def active(path: Any, box: Any) -> int:
        part, whole = roles[name_of(path)].share
        return counting.parameters(box) * part // whole

    leaves = jax.tree_util.tree_leaves_with_path(abstract_params(model), is_leaf=is_box)
    return sum(active(*leaf) for leaf in leaves)


def step_of(
    model: ModelConfig,
    objective: ObjectiveConfig,
    optimizer: OptimizerConfig,
    training: TrainingConfig,
    seed: int,
    sizes: Sizes,
) -> tuple[Any, TrainState]:
    """Return the train step, and the shapes and logical axes of its state."""
    built = build(model, *sizes, **promised(objective))
    frozen = frozen_of(optimizer, model)
    schedule = make_schedule(optimizer, model.d_model, training.steps, training.restarts)
    tx = make_optimizer(optimizer, schedule, roles_of(built), frozen, widths_of(built))
    state = abstract_state(built, tx, averaged(optimizer, training))
    return make_train_step(built, tx, training, seed, frozen), state


def state_bytes(experiment: Experiment, sizes: Sizes) -> tuple[int, int]:
    """Return the bytes of parameters and their gradients, and those of all else that a step
    changes: the optimizer's state, and a mean of the parameters. Unsharded.
    """
    parts = experiment.model, experiment.objective, experiment.optimizer, experiment.training
    state = nn.unbox(step_of(*parts, experiment.seed, sizes)[1])
    params, every = (
        sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
        for tree in (state.params, state)
    )
    return 2 * params, every - params


def longest_shape(experiment: Experiment) -> Shape:
    """Return the shape that takes the most memory: rows of maximum length on each side."""
    objective, length = experiment.objective, experiment.data.max_length
    if objective.windowed and experiment.data.batching != "pack":
        length = objective.window
    batch = blank(objective_named(objective.name), Shape(1, 1, 1))
    src, tgt = (length * (side is not None) for side in batch[:2])
    kinds = {HEADS[x].of for x in objective_named(objective.name).predicts if x in HEADS}
    if tgt and kinds and experiment.data.batching != "pack":
        tgt = 2 if "ends" in kinds else 1
    if objective.lengths is not None:
        src, tgt = objective.lengths
    return Shape(rows_for(experiment.data, length), src, tgt)


def step_cost(experiment: Experiment, sizes: Sizes, shape: Shape) -> Cost:
    """Return the cost of a step on a batch of a given shape; results are cached."""
    parts = experiment.model, experiment.objective, experiment.optimizer, experiment.training
    return _cost(*parts, sizes, shape)


def roughly(experiment: Experiment, sizes: Sizes, shape: Shape) -> int:
    """Return the approximate number of operations of a step, in a quarter of the time to trace it.

    Only the forward pass is counted, and the backward pass taken as twice that; rematerialisation
    and the optimizer's own products are ignored.
    """
    passes, objective = experiment.training.passes, experiment.objective
    return 3 * passes * _forward(experiment.model, objective, sizes, shape)


@functools.cache
def _forward(config: ModelConfig, objective: ObjectiveConfig, sizes: Sizes, shape: Shape) -> int:
    model = build(config, *sizes, **promised(objective))
    step = make_validation_step(model, TrainingConfig())
    params, batch = nn.unbox(abstract_params(model)), _batch(model, objective, shape)
    return counting.operations(counting.program(step, params, batch)).products


def _batch(model: Model, objective: ObjectiveConfig, shape: Shape) -> Any:
    here = make_mesh(MeshConfig(), jax.devices()[:1])
    return abstract_batch(
        objective_named(objective.name), shape, here, channels_of(model.example())
    )


@functools.cache
def _cost(
    model: ModelConfig, objective: ObjectiveConfig, optimizer: OptimizerConfig,
    training: TrainingConfig, sizes: Sizes, shape: Shape,
) -> Cost:  # fmt: skip
    step, state = step_of(model, objective, optimizer, training, 0, sizes)
    # On an accelerator: a CPU computes the loss in smaller chunks. Not on a GPU, where sums of a
    # table's gradients are products, too.
    tpu = AbstractDevice("TPU", num_cores=None, platform="tpu")
    mesh = AbstractMesh((1,) * len(AXES), AXES, (AxisType.Auto,) * len(AXES), abstract_device=tpu)
    with use_abstract_mesh(mesh):
        batch = _batch(build(model, *sizes, **promised(objective)), objective, shape)
        program = counting.program(step, nn.unbox(state), batch)
    return Cost(counting.operations(program), counting.memory(program))
