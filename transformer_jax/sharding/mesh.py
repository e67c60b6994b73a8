"""The device mesh, and arrays laid out on it."""

import dataclasses
import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from transformer_jax.base.errors import UserError
from transformer_jax.base.shares import POSITIONS, ROWS, check_groups
from transformer_jax.config import Experiment, MeshConfig, ModelConfig
from transformer_jax.config.choices.architectures import ARCHITECTURES
from transformer_jax.config.choices.codecs import CODECS, SIZED
from transformer_jax.config.choices.layers import MULTI_TOKENS, RESIDUALS, ROUTED
from transformer_jax.sharding.rules import SIZES, check_sizes

AXES = (*ROWS, *POSITIONS, "tensor")
_ROWS = " x ".join(ROWS)
# Fields whose records say whether stages can divide a stack.
_STAGED: dict[str, Mapping[str, Any]] = {"residual": RESIDUALS, "multi_token": MULTI_TOKENS}


def make_mesh(config: MeshConfig, devices: Sequence[Any] | None = None) -> Mesh:
    """Return the mesh of all AXES over the given devices, by default all.

    Raises:
      UserError: if the axes do not use all devices.
    """
    devices = jax.devices() if devices is None else devices
    count = len(devices)
    sizes = dataclasses.asdict(config)
    fixed = math.prod(size for size in sizes.values() if size != -1)
    sizes = {name: count // fixed if size == -1 else size for name, size in sizes.items()}
    if math.prod(sizes.values()) != count:
        axes = ", ".join(f"{name}={size}" for name, size in dataclasses.asdict(config).items())
        raise UserError(
            f"config.mesh.{axes}: the axes must use up all {count} devices; "
            "set one of them to -1 to take the rest"
        )
    kinds = (AxisType.Auto,) * len(AXES)
    return jax.make_mesh(tuple(sizes[name] for name in AXES), AXES, kinds, devices=devices)


def compiler_options(mesh: Mesh) -> dict[str, Any] | None:
    """Return the compiler's options for training on this mesh, or None for its defaults.

    NVIDIA GPUs: matrix products by cuBLAS, which adds biases and computes ReLU as it writes. XLA
    would also generate kernels and time them; to compare both, it leaves out what cuBLAS can add,
    and then often chooses cuBLAS without it.
    """
    if mesh.devices.flat[0].platform != "gpu":
        return None
    return {"xla_gpu_enable_triton_gemm": False}


def check_mesh(
    mesh: Mesh, experiment: Experiment, vocabularies: tuple[int | None, int | None]
) -> None:
    """Check that a mesh divides an experiment's batches and model; `vocabularies` are the numbers
    of pieces on the source and the target side, None if not yet known.

    Raises:
      UserError: if it does not; names both numbers.
    """
    data, slices = experiment.data, experiment.training.accumulation_steps
    parts = _row_parts(mesh) * slices
    if data.rows_divisible_by % parts:
        raise UserError(
            f"config.data.rows_divisible_by={data.rows_divisible_by} is not a multiple of {parts}, "
            f"the {_row_parts(mesh)} devices of config.mesh.{_ROWS} times "
            f"config.training.accumulation_steps={slices}; "
            f"set it to {-(-data.rows_divisible_by // parts) * parts}"
        )
    _check_positions(mesh, experiment)
    parts = mesh.shape["expert"]
    if parts > 1 and {*ROUTED}.isdisjoint(experiment.model.feed_forward_pattern):
        pattern = ",".join(experiment.model.feed_forward_pattern)
        raise UserError(
            f"config.mesh.expert={parts}: config.model.feed_forward_pattern={pattern} has no "
            "experts; choose config.mesh.data, which divides the rows of a batch alone"
        )
    _check_stages(mesh.shape["stage"], experiment.model)
    sizes = {axis: operator.attrgetter(path)(experiment) for axis, path in SIZES.items()}
    sides = ("tgt" if experiment.objective.one_sided else "src", "tgt")
    for side, codec, size in zip(sides, experiment.codecs, vocabularies, strict=True):
        divided = codec not in CODECS or CODECS[codec].text
        sizes["vocab"] = size if divided else None
        known = {axis: size for axis, size in sizes.items() if size is not None}
        chosen = codec in SIZED  # only their size can be chosen
        fields = SIZES if chosen else {**SIZES, "vocab": f"{side}.codec={codec!r}"}
        check_sizes(mesh, known, fields)


def _check_positions(mesh: Mesh, experiment: Experiment) -> None:
    """Check that a mesh divides heads and the positions of rows, where their number is known."""
    model, data = experiment.model, experiment.data
    parts = mesh.shape["ulysses"] * mesh.shape["tensor"]
    for name, count in (("num_heads", model.num_heads), ("num_kv_heads", model.kv_heads)):
        if mesh.shape["ulysses"] > 1 and count % parts:
            raise UserError(
                f"config.model.{name}: {count} heads cannot be divided among the {parts} devices "
                f"of config.mesh.ulysses x tensor; choose a multiple of {parts}, or "
                "config.mesh.context, which divides positions alone"
            )
    parts = math.prod(mesh.shape[axis] for axis in POSITIONS)
    if data.batching == "pack" and data.max_length % parts:
        raise UserError(
            f"config.data.max_length={data.max_length}: rows of so many positions cannot be "
            f"divided among the {parts} devices of config.mesh.context x ulysses; set it to "
            f"{-(-data.max_length // parts) * parts}"
        )


def _check_stages(stages: int, model: ModelConfig) -> None:
    """Check that the stacks of a model are equal groups of layers for so many stages."""
    repeats = model.stage_repeats
    if stages == 1:
        if repeats > 1:
            raise UserError(
                f"config.model.stage_repeats={repeats}: config.mesh.stage=1 has no stages that "
                "rows could pass repeatedly; set it to 1, or choose config.mesh.stage=2 or more"
            )
        return
    record, instead = ARCHITECTURES[model.architecture], "choose config.mesh.data"
    if not record.layered:
        raise UserError(
            f"config.mesh.stage={stages}: config.model.architecture={model.architecture!r} has no "
            f"stack of equal layers; {instead}"
        )
    for name, records in _STAGED.items():
        word = getattr(model, name)
        if word in records and not records[word].staged:
            raise UserError(
                f"config.mesh.stage={stages}: config.model.{name}={word!r} needs more of a stack "
                f"than its output; {instead}"
            )
    for stack in record.stacks:
        kinds = getattr(model, f"{stack}_pattern"), model.feed_forward_pattern
        period, name = math.lcm(*map(len, kinds)), f"num_{stack}_layers"
        check_groups(getattr(model, name), period, stages, repeats, f"config.model.{name}")


def _row_parts(mesh: Mesh) -> int:
    return math.prod(mesh.shape[axis] for axis in ROWS)


def row_share(mesh: Mesh) -> tuple[int, int]:
    """Return (index, count): a batch has `count` equal shares of rows; this process reads `index`.

    Processes whose devices do not differ along ROWS read the same rows.

    Raises:
      UserError: if the rows of this process are not such a share.
    """
    parts = _row_parts(mesh)
    places = rows_over_data(mesh).addressable_devices_indices_map((parts,)).values()
    mine = sorted({range(parts)[index[0]][0] for index in places if index is not None})
    index, rest = divmod(mine[0], len(mine))
    if rest or parts % len(mine) or mine != list(range(mine[0], mine[0] + len(mine))):
        raise UserError(
            f"config.mesh: process {jax.process_index()} would read parts {mine} of {parts} of "
            "each batch; choose a mesh that gives it consecutive ones, such as data=-1"
        )
    return index, parts // len(mine)


def rows_over_data(mesh: Mesh, stacked: bool = False) -> NamedSharding:
    """Return the sharding of a batch: rows are divided, other axes are not."""
    return NamedSharding(mesh, PartitionSpec(None, ROWS) if stacked else PartitionSpec(ROWS))


def place_batches(batches: Sequence[Any], mesh: Mesh) -> Any:
    """Return several batches, placed, along a first axis; a single one as `place_batch` does."""
    if len(batches) == 1:
        return place_batch(batches[0], mesh)
    stacked = jax.tree.map(lambda *each: np.stack(each), *batches)
    return _own_rows(stacked, rows_over_data(mesh, stacked=True))


def place_batch(batch: Any, mesh: Mesh) -> Any:
    """Make one global array from each process's rows."""
    return _own_rows(batch, rows_over_data(mesh))


def _own_rows(batch: Any, sharding: NamedSharding) -> Any:
    return jax.tree.map(lambda x: jax.make_array_from_process_local_data(sharding, x), batch)


def place_whole(batch: Any, mesh: Mesh) -> Any:
    """Make one global array from rows that every process holds in full."""
    return _placed(batch, rows_over_data(mesh))


def place_everywhere(tree: Any, mesh: Mesh) -> Any:
    """Put arrays that every process holds on every device."""
    return _placed(tree, on_every_device(mesh))


def _placed(tree: Any, sharding: NamedSharding) -> Any:
    return jax.tree.map(
        lambda x: jax.make_array_from_callback(x.shape, sharding, lambda part: np.asarray(x)[part]),
        tree,
    )


def on_every_device(mesh: Mesh) -> NamedSharding:
    """Return the sharding that replicates an array on every device."""
    return NamedSharding(mesh, PartitionSpec())


def own_copy(tree: Any) -> Any:
    """Return this process's own copy of arrays that are replicated on every device."""
    return jax.tree.map(lambda x: x if x.is_fully_addressable else x.addressable_data(0), tree)


def replicated(tree: Any, mesh: Mesh) -> Any:
    """Return a tree of shardings that replicate every leaf on every device."""
    return jax.tree.map(lambda _: on_every_device(mesh), tree)
