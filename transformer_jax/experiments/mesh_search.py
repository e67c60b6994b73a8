"""The best meshes for an experiment and a number of devices, by formulas, without compiling.

Each mesh that divides the experiment is tried. Its communication follows from sizes alone (rings:
arXiv:2310.01889; heads: arXiv:2309.14509; tensors: Megatron-LM, arXiv:1909.08053; shards: ZeRO,
arXiv:1910.02054; stages: arXiv:1811.06965, repeated: arXiv:2104.04473; experts: arXiv:2006.16668),
and its time from the same roofline model as that of a compiled program.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import astuple, fields, replace
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh

from transformer_jax.base.errors import UserError
from transformer_jax.base.shares import POSITIONS, ROWS
from transformer_jax.config import Experiment, MeshConfig, ModelConfig
from transformer_jax.config.choices.architectures import ARCHITECTURES
from transformer_jax.config.choices.dtypes import DTYPES
from transformer_jax.config.choices.layers import ROUTED
from transformer_jax.config.choices.mixers import MIXERS, Mixer
from transformer_jax.data.codecs.pair import expected_sizes
from transformer_jax.experiments.accelerators import GPUS, Chip
from transformer_jax.experiments.collectives import Collective
from transformer_jax.experiments.scaling import Step, gigabytes, predict
from transformer_jax.models.pipeline import bubble, microbatches
from transformer_jax.sharding.mesh import AXES, check_mesh
from transformer_jax.sharding.rules import bytes_per_device
from transformer_jax.training.cost import Sizes, longest_shape, step_cost, step_of
from transformer_jax.training.state import TrainState

_BEST = 5
_FULL = 0.9  # of a device's memory: the rest is for the allocator and libraries
_LEVEL = 1.01  # times the least seconds, which formulas cannot tell apart


class Found(NamedTuple):
    """A mesh, and what it costs."""

    mesh: MeshConfig
    repeats: int  # of its stages
    step: Step
    idle: float  # share of the time in which a stage waits
    memory: float  # bytes of a device
    sent: dict[str, Collective]  # by what is sent

    @property
    def seconds(self) -> float:
        """The time of a step, if communication does not overlap with computing."""
        return self.step.computing + self.step.near + self.step.far


class Known(NamedTuple):
    """What is the same for all meshes."""

    sizes: Sizes
    state: Counter[Any]  # how often it has each shape with logical axes
    parameters: float  # bytes, but for those of experts
    experts: float  # bytes of their parameters
    tables: float  # bytes of parameters for each piece, which are among the former
    operations: float
    activations: float  # bytes of a step on one device, besides the state
    rows: int
    length: int


def known(experiment: Experiment) -> Known:
    """Return what the costs of all meshes follow from."""
    sizes, shape = expected_sizes(experiment), longest_shape(experiment)
    parts = experiment.model, experiment.objective, experiment.optimizer, experiment.training
    state = step_of(*parts, experiment.seed, sizes)[1]
    cost = step_cost(experiment, sizes, shape)
    held = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(nn.unbox(state)))
    length = max(shape.src_length, shape.tgt_length)
    activations = max(cost.memory - held, 0)
    apart = Counter(jax.tree.leaves(state, is_leaf=_is_box))
    operations = cost.operations.products
    return Known(sizes, apart, *_parameters(state), operations, activations, shape.rows, length)


def meshes(devices: int) -> Iterator[MeshConfig]:
    """Yield all meshes of so many devices."""
    names = [field.name for field in fields(MeshConfig)]

    def factors(left: int, axes: int) -> Iterator[tuple[int, ...]]:
        if axes == 1:
            yield (left,)
            return
        for size in (n for n in range(1, left + 1) if left % n == 0):
            yield from ((size, *others) for others in factors(left // size, axes - 1))

    for sizes in factors(devices, len(names)):
        yield MeshConfig(**dict(zip(names, sizes, strict=True)))


def found(experiment: Experiment, of: Known, mesh: MeshConfig, chip: Chip) -> Found | None:
    """Return the cost of a mesh, or None if it does not divide the experiment."""
    here = AbstractMesh(tuple(getattr(mesh, axis) for axis in AXES), AXES)
    parts = math.prod(here.shape[axis] for axis in ROWS) * experiment.training.accumulation_steps
    if of.rows % parts or of.length % math.prod(here.shape[axis] for axis in POSITIONS):
        return None
    data = replace(experiment.data, rows_divisible_by=parts)
    try:
        check_mesh(here, replace(experiment, mesh=mesh, data=data), of.sizes)  # type: ignore
        sizes = [
            times * bytes_per_device(box, here)  # type: ignore[arg-type]
            for box, times in of.state.items()
        ]
    except UserError:
        return None
    sent = exchanged(experiment.model, of, mesh)
    rows, repeats = of.rows // parts * mesh.stage, experiment.model.stage_repeats
    idle = bubble(mesh.stage, microbatches(rows, mesh.stage), repeats)
    operations = of.operations / math.prod(astuple(mesh)) / (1 - idle)
    step = predict(operations, list(sent.values()), chip)
    memory = sum(sizes) + of.activations / math.prod(astuple(mesh))
    if mesh.stage > 1:  # a stage's layers and their gradients are whole, whatever fsdp has at rest
        own = of.parameters + of.experts / mesh.expert
        whole = 2 * own / (mesh.tensor * mesh.stage)
        memory += _rest(mesh.fsdp) * whole
        if repeats > 1:  # and those of a repeat once more
            memory += whole / repeats
    return Found(mesh, repeats, step, idle, memory, sent)


def best(experiment: Experiment, of: Known, mesh: MeshConfig, chip: Chip) -> Found | None:
    """Return the least cost of a mesh with 1, 2, 4, ... repeats of its stages, or None."""
    ways = (found(one, of, mesh, chip) for one in _repeated(experiment, mesh.stage))
    return min((one for one in ways if one), key=lambda one: one.seconds, default=None)


def ranked(every: Iterable[Found]) -> list[Found]:
    """Return meshes by their seconds; of those that are level with the fastest, first the ones with
    fewest axes, which wait least for one another.
    """
    found = sorted(every, key=lambda one: one.seconds)
    level = [one for one in found if one.seconds <= _LEVEL * found[0].seconds]
    level.sort(key=lambda one: sum(size > 1 for size in astuple(one.mesh)))
    return level + found[len(level) :]


def _repeated(experiment: Experiment, stages: int) -> Iterator[Experiment]:
    """Yield an experiment with all repeats of so many stages for which it has enough layers."""
    model = experiment.model
    layers = max((getattr(model, f"num_{stack}_layers") for stack in model.stacks), default=1)
    repeats = 1
    while repeats == 1 or 1 < stages <= layers // repeats:
        yield replace(experiment, model=replace(model, stage_repeats=repeats))
        repeats *= 2


def exchanged(model: ModelConfig, of: Known, mesh: MeshConfig) -> dict[str, Collective]:
    """Return what each device sends in a step, by the axis and what it is for."""
    word = jnp.dtype(DTYPES[model.compute_dtype].activations).itemsize
    stacks = ARCHITECTURES[model.architecture].stacks
    layers = sum(getattr(model, f"num_{stack}_layers") for stack in stacks)
    # Decoders beside an encoder attend to it, too.
    across = model.num_decoder_layers if len(stacks) > 1 else 0
    kinds = model.feed_forward_pattern
    routed = layers * sum(kind in ROUTED for kind in kinds) // len(kinds)
    own = of.parameters / (mesh.tensor * mesh.stage)
    own_experts = of.experts / (mesh.tensor * mesh.stage * mesh.expert)
    # Positions of a device, of all layers: as many rows more in a stage as it has layers fewer.
    here = of.rows * of.length / (math.prod(astuple(mesh)) / mesh.tensor)
    vectors = here * model.d_model * word
    keys = here * model.kv_heads * model.key_size * word
    queries = here * model.num_heads * model.key_size * word
    passes = 3 if model.remat == "full" else 2  # forward, backward, and forward again
    positions = mesh.context * mesh.ulysses
    # A pipeline's loop adds up what devices of a row's positions have found in every turn.
    copies = mesh.data * (positions if mesh.stage == 1 else 1)
    rows = of.rows // (mesh.data * mesh.fsdp * mesh.expert)
    turns = microbatches(rows, mesh.stage) + (mesh.stage - 1) / model.stage_repeats
    sent = {
        "gradients over data": (
            "data", copies,
            2 * _rest(copies * mesh.expert) * own / mesh.fsdp
            + 2 * _rest(copies) * own_experts / mesh.fsdp,
        ),
        "gradients over positions": (
            "context" if mesh.context > 1 else "ulysses", positions,
            turns * 2 * _rest(positions) * (own + own_experts) if mesh.stage > 1 else 0.0,
        ),
        "parameters and gradients over fsdp": (  # gathered in each pass
            "fsdp", mesh.fsdp,
            ((passes if mesh.stage == 1 else 2) + 1) * _rest(mesh.fsdp) * (own + own_experts),
        ),
        "parameters and gradients over stage": (
            "stage", mesh.stage, 2 * _rest(mesh.stage) * (own + own_experts) / mesh.fsdp
        ),
        "tables over stage": (  # and over fsdp, but for what is counted there
            "stage", mesh.stage,
            3 * (_rest(mesh.fsdp * mesh.stage) - _rest(mesh.fsdp) / mesh.stage)
            * of.tables / mesh.tensor,
        ),
        "microbatches over stage": (
            "stage", mesh.stage,
            (2 * model.stage_repeats + 4 * _rest(mesh.stage)) * vectors * mesh.stage
            if mesh.stage > 1 else 0.0,
        ),
        "positions over expert": (
            "expert", mesh.expert,
            2 * passes * (mesh.expert - 1) * model.experts_per_token * vectors * routed,
        ),
        "keys and values over context": (
            "context", mesh.context,
            keys * _keys_sent(model, of.length, mesh.context, passes)
            + 6 * (mesh.context - 1) * keys * across,
        ),
        "heads over ulysses": (
            "ulysses", mesh.ulysses,
            passes * _rest(mesh.ulysses) * (2 * queries + 2 * keys) * (layers + across),
        ),
        "activations over tensor": (  # a sum of each part of a layer, and of each expert's answer
            "tensor", mesh.tensor,
            passes * 2 * _rest(mesh.tensor) * vectors
            * (2 * layers + across + routed * (model.experts_per_token - 1)),
        ),
    }  # fmt: skip
    return {
        what: Collective("", count, _span(mesh, axis, count), 1, size)
        for what, (axis, count, size) in sent.items()
        if count > 1 and size
    }


def _keys_sent(model: ModelConfig, length: int, context: int, passes: int) -> float:
    """Return what a device sends for all layers over `context`, as a multiple of its own keys."""
    total = 0.0
    for stack in ARCHITECTURES[model.architecture].stacks:
        pattern = getattr(model, f"{stack}_pattern")
        for kind in pattern:
            record = MIXERS.get(kind, Mixer())
            reach = (model.window or 0) * (model.dilation if "dilation" in record.reads else 1)
            near = record.sends == "near" and length > 2 * reach
            each = 6.0 * (context - 1)
            if record.sends == "state":
                each = 0.0
            elif near and length % (reach * context) == 0:  # keys and values of blocks beside
                each = 2.0 * passes * (1 + (stack == "encoder")) * reach * context / length
            total += each * getattr(model, f"num_{stack}_layers") / len(pattern)
    return total


def _rest(count: int) -> float:
    return (count - 1) / count


def _span(mesh: MeshConfig, axis: str, count: int) -> int:
    """Return how far the devices of a group are apart, as `Collective` does."""
    stride = math.prod(getattr(mesh, inner) for inner in AXES[AXES.index(axis) + 1 :])
    stride = stride if count == getattr(mesh, axis) else 1
    return stride * (count - 1) + 1


def _parameters(state: TrainState) -> tuple[float, float, float]:
    """Return the bytes of parameters, but for those of experts; of these; and of tables."""
    total = experts = tables = 0.0
    for box in jax.tree.leaves(state.params, is_leaf=_is_box):
        size = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(nn.unbox(box)))
        total += size
        experts += size * ("experts" in getattr(box, "names", ()))
        tables += size * ("vocab" in getattr(box, "names", ()))
    return total - experts, experts, tables


def _is_box(x: Any) -> bool:
    return hasattr(x, "names")


def search(experiment: Experiment, devices: int, name: str = "H100 SXM") -> Iterator[str]:
    """Yield lines about the best meshes of so many devices of a kind.

    Raises:
      UserError: if none divides the experiment.
    """
    chip, of = GPUS[name], known(experiment)
    tried = (best(experiment, of, mesh, chip) for mesh in meshes(devices))
    every = [one for one in tried if one]
    if not every:
        raise UserError(
            f"--search={devices}: no mesh of {devices} devices divides {of.rows} rows of "
            f"{of.length} positions and this model; choose fewer devices or a larger "
            f"config.data.tokens_per_batch than {experiment.data.tokens_per_batch}"
        )
    fit = ranked(one for one in every if one.memory <= _FULL * chip.memory)
    yield (
        f"{devices:,} x {name}: {len(every):,} meshes divide the experiment, {len(fit):,} of them "
        f"fit in {gigabytes(chip.memory)}; the best by formulas, nothing compiled:"
    )
    if not fit:
        least = min(every, key=lambda one: one.memory)
        yield f"  none fits: {shown(least)} needs least, {gigabytes(least.memory)}"
    for one in fit[:_BEST]:
        yield f"  {shown(one)}: {_reasons(one)}"


def shown(one: Found) -> str:
    """Return the axes of a mesh, and repeats of its stages, as options of the command line."""
    sizes = {axis: getattr(one.mesh, axis) for axis in AXES}
    chosen = [f"{axis}={size}" for axis, size in sizes.items() if size > 1 or axis == "data"]
    options = [f"--config.mesh.{axis}" for axis in chosen]
    if one.repeats > 1:
        options.append(f"--config.model.stage_repeats={one.repeats}")
    return " ".join(options)


def _reasons(one: Found) -> str:
    share, _ = one.step.efficiency
    text = f"{1e3 * one.seconds:.3g} ms a step, {share * (1 - one.idle):.0%} of it computing"
    text += f", {gigabytes(one.memory)} a device"
    if one.idle:
        text += f"; stages wait for {one.idle:.0%} of the time"
    if one.sent:
        what, most = max(one.sent.items(), key=lambda pair: pair[1].sent)
        text += f"; most is sent for {what}, {gigabytes(most.sent)}"
    return text
