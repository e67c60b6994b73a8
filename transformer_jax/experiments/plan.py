"""The cost of a run, estimated without training: operations, memory, time, energy.

Run as a program, it compiles for a TPU slice: it reads an experiment as JSON and prints a line of
JSON.
"""

import dataclasses
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import flax.linen as nn
import jax

from transformer_jax.base.errors import UserError
from transformer_jax.base.shares import ROWS
from transformer_jax.config import Experiment, ModelConfig, parts
from transformer_jax.config.choices.layers import FEED_FORWARDS
from transformer_jax.config.convert import from_json, own_parts, to_json
from transformer_jax.data.batches.batch import channels_of
from transformer_jax.data.codecs.pair import expected_sizes
from transformer_jax.data.objectives import objective_named
from transformer_jax.experiments.accelerators import GPUS, TPUS, Chip
from transformer_jax.experiments.collectives import Collective, collectives
from transformer_jax.experiments.scaling import (
    described,
    exchanged,
    gigabytes,
    on_gpus,
    predict,
)
from transformer_jax.models.build import build_for
from transformer_jax.models.pipeline import bubble, microbatches
from transformer_jax.sharding.mesh import check_mesh, make_mesh
from transformer_jax.sharding.rules import param_shardings
from transformer_jax.training.cost import (
    Cost,
    Sizes,
    active_parameters,
    longest_shape,
    parameters,
    state_bytes,
    step_cost,
    step_of,
)
from transformer_jax.training.heartbeat import duration
from transformer_jax.training.programs import abstract_batch, peak_bytes
from transformer_jax.training.step import jit_train_step

_FAR = 4  # times the noise scale: fewer updates by less than a fifth, for five times the tokens


# Devices of a CPU stand for others. What a program sends and keeps is known before its machine
# code, whose tuning takes half of the compiler's time.
_UNTUNED = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


class Compiled(NamedTuple):
    """The compiler's figures for one step on one device."""

    peak_bytes: int  # arguments, results and temporaries; aliased memory counts once
    operations: float  # the body of a loop counts once
    bytes_accessed: float
    seconds: float  # of compilation
    collectives: list[Collective]  # communication between devices


def compile_step(experiment: Experiment, devices: Any) -> Compiled:
    """Compile the train step for devices, which need not be present, on the longest batch.

    Raises:
      UserError: if the mesh does not fit the devices or the sizes.
    """
    mesh = make_mesh(experiment.mesh, devices)
    sizes = expected_sizes(experiment)
    check_mesh(mesh, experiment, sizes)
    step, boxed = step_of(
        experiment.model, experiment.objective, experiment.optimizer, experiment.training,
        experiment.seed, sizes,
    )  # fmt: skip
    state = jax.tree.map(
        lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
        nn.unbox(boxed),
        param_shardings(boxed, mesh),
    )
    objective = objective_named(experiment.objective.name)
    channels = channels_of(build_for(experiment, *sizes).example())
    batch = abstract_batch(objective, longest_shape(experiment), mesh, channels)
    began = time.monotonic()
    simulated = mesh.size > 1 and mesh.devices.flat[0].platform == "cpu"
    with jax.set_mesh(mesh):
        lowered = jit_train_step(step, state, mesh).lower(state, batch)
        program = lowered.compile(compiler_options=_UNTUNED if simulated else None)
    cost, seconds = program.cost_analysis(), time.monotonic() - began
    exchanges = collectives(program.as_text())
    return Compiled(peak_bytes(program), cost["flops"], cost["bytes accessed"], seconds, exchanges)


def compile_for_tpu(experiment: Experiment, topology: str, libtpu: str) -> Compiled | str:
    """Compile for a TPU slice such as "v5e:2x2", or return the reason why it cannot run there.

    `libtpu` is the directory of that package, kept outside this environment, where every start of
    JAX would load it; so the compiler runs in a separate process.
    """
    paths = [libtpu, *(path for path in sys.path if path)]
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join(paths), "TPU_SKIP_MDS_QUERY": "1",
        "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3",
    }  # fmt: skip
    child = subprocess.run(
        [sys.executable, "-m", "transformer_jax.experiments.plan", topology,
         *parts.homes([*own_parts(experiment)])],
        input=to_json(experiment), env=environment, capture_output=True, check=False,
        encoding="utf-8", errors="replace",
    )  # fmt: skip
    lines = child.stdout.strip().splitlines()
    if child.returncode or not lines:
        errors = [line for line in child.stderr.splitlines() if line.strip()]
        raise UserError(f"--libtpu={libtpu}: {errors[-1] if errors else 'no answer'}")
    answer = json.loads(lines[-1])
    if "no" in answer:
        return answer["no"]
    exchanges = [Collective(*one) for one in answer.pop("collectives")]
    return Compiled(**answer, collectives=exchanges)


def report(
    experiment: Experiment, libtpu: str | None, rate: float | None, watts: float | None,
    noise_scale: float | None = None,
) -> Iterator[str]:  # fmt: skip
    """Yield the lines of a plan; `rate`, in operations per second, and `watts` are per device;
    `noise_scale` is in target tokens.
    """
    sizes, shape = expected_sizes(experiment), longest_shape(experiment)
    cost = step_cost(experiment, sizes, shape)
    per_step = cost.operations.products
    whole = per_step * experiment.training.steps
    yield f"parameters: {_parameters(experiment, sizes):,} with {_pieces(sizes)}"
    if chosen := _chosen(experiment.model):
        active = active_parameters(experiment, sizes)
        yield f"active: {active:,} parameters for each piece, with {chosen}"
    sides = f"{shape.rows} x {shape.src_length} source and {shape.rows} x {shape.tgt_length} target"
    if not (shape.src_length and shape.tgt_length):
        sides = f"{shape.rows} x {max(shape.src_length, shape.tgt_length)}"
    yield f"batch: {sides} positions, the longest of its shapes"
    if noise_scale is not None:
        yield from _of_noise(experiment.data.tokens_per_batch, noise_scale)
    yield (
        f"operations: {per_step:.3g} per step in matrix products, {whole:.3g} in "
        f"{experiment.training.steps:,} steps"
    )
    for what in cost.operations.missing:
        yield f"  not exact: {what}"
    held, kept = state_bytes(experiment, sizes)
    yield (
        f"state: {gigabytes(held)} of parameters and gradients, and {gigabytes(kept)} that "
        f"optimizer.algorithm={parts.short(experiment.optimizer.algorithm)!r} keeps beside them"
    )
    mine = compile_step(experiment, jax.devices())
    kind = jax.devices()[0].device_kind
    yield f"this machine: {jax.device_count()} {kind}, {_described(mine)}"
    if rate is not None:
        chip = Chip(0, rate, watts)
        yield f"  {_cost(whole, chip, jax.device_count(), 1.0)}"
    if mine.collectives:
        yield "communication, per device and step:"
        yield from (f"  {line}" for line in exchanged(mine.collectives))
    yield from _tpu_lines(experiment, libtpu, cost)
    if mine.collectives:
        idle = _idle(experiment, shape.rows)
        if idle:
            repeats = experiment.model.stage_repeats
            groups = f" with {repeats} groups of layers each" if repeats > 1 else ""
            yield (
                f"pipeline: {experiment.mesh.stage} stages{groups}, each of which waits for "
                f"{idle:.1%} of the time of a stack"
            )
        busy = per_step / (1 - idle)
        yield from on_gpus(experiment, mine.peak_bytes, busy, mine.collectives, held + kept)
    else:
        yield from _gpu_lines(cost, whole)


def _idle(experiment: Experiment, rows: int) -> float:
    """Return the share of the time in which a stage waits, in batches of so many rows."""
    shape = make_mesh(experiment.mesh).shape
    parts = math.prod(shape[axis] for axis in ROWS) * experiment.training.accumulation_steps
    stages = shape["stage"]
    each = microbatches(rows // parts * stages, stages)
    return bubble(stages, each, experiment.model.stage_repeats)


def _of_noise(tokens: int, scale: float) -> Iterator[str]:
    """Yield what batches of so many tokens cost at a noise scale (McCandlish et al. 2018,
    arXiv:1812.06162, equation 2.11).
    """
    times = tokens / scale
    yield (
        f"batches of up to {tokens:,} target tokens are {times:.3g} x the noise scale: they take "
        f"about {1 + 1 / times:.3g} x the updates of very large ones, and {1 + times:.3g} x the "
        "tokens of very small ones"
    )
    if times > _FAR:
        yield (
            f"warning: config.data.tokens_per_batch={tokens} is far beyond the noise scale; "
            f"{int(scale)} would take {2 / (1 + 1 / times):.2g} x the updates and "
            f"{2 / (1 + times):.2g} x the tokens"
        )


def _parameters(experiment: Experiment, sizes: Sizes) -> int:
    return parameters(experiment.model, sizes, experiment.objective)


def _tpu_lines(experiment: Experiment, libtpu: str | None, cost: Cost) -> Iterator[str]:
    if libtpu is None:
        yield (
            "TPU: not compiled; pip install --no-deps --target=DIR libtpu, in a version that "
            "matches this jax, then add --libtpu=DIR"
        )
        return
    sizes = dataclasses.astuple(experiment.mesh)
    for topology, chip in TPUS.items():
        count = math.prod(int(side) for side in topology.partition(":")[2].split("x"))
        if -1 not in sizes and math.prod(sizes) not in (1, count):
            continue
        program = compile_for_tpu(experiment, topology, libtpu)
        if isinstance(program, Compiled) and program.peak_bytes <= chip.memory:
            yield (
                f"TPU: fits on {topology}, {count} chips of {gigabytes(chip.memory)}, compiled by "
                f"libtpu: {_described(program)}"
            )
            products = cost.operations.products
            yield f"  {_cost(products * experiment.training.steps, chip, count)}"
            yield from (f"  {line}" for line in exchanged(program.collectives))
            step = predict(products / count, program.collectives, chip)
            yield f"  {described(topology, count, step)}"
            return
        reason = program if isinstance(program, str) else f"needs {gigabytes(program.peak_bytes)}"
        yield f"TPU: does not run on {topology}: {reason}"


def _gpu_lines(cost: Cost, whole: float) -> Iterator[str]:
    need = (
        f"{gigabytes(cost.memory)} of arrays at once, counted without compiling; GPU-only kernels "
        "need less"
    )
    for name, chip in GPUS.items():
        if cost.memory <= 0.9 * chip.memory:  # the rest is for the allocator and libraries
            yield f"GPU: fits on one {name} of {gigabytes(chip.memory)}: {need}"
            yield f"  {_cost(whole, chip, 1)}"
            return
    yield f"GPU: fits on none of {', '.join(GPUS)}: {need}; try model.remat='full'"


def _chosen(config: ModelConfig) -> str:
    """Describe the parts that not every piece passes through, if there are any."""
    records = [FEED_FORWARDS.get(word) for word in dict.fromkeys(config.feed_forward_pattern)]
    return ", ".join(record.active(config) for record in records if record and record.active)


def _pieces(sizes: Sizes) -> str:
    source, target = sizes
    if source == target:
        return f"{target:,} pieces"
    return f"{source:,} pieces on the source side and {target:,} on the target side"


def _described(compiled: Compiled) -> str:
    return (
        f"peak {gigabytes(compiled.peak_bytes)} per device, {compiled.operations:.3g} operations "
        f"and {gigabytes(compiled.bytes_accessed)} read and written per step and device (a loop's "
        f"body counts once), compiled in {compiled.seconds:.0f} s"
    )


def _cost(whole: float, chip: Chip, count: int, share: float = 0.4) -> str:
    seconds = whole / (count * chip.operations * share)
    text = duration(seconds) if seconds >= 1 else "under 1 s"
    text += f" at {share * chip.operations:.3g} operations/s per device"
    if share < 1:
        text += f", {share:.0%} of its bfloat16 peak"
    if chip.watts is not None:
        energy = count * chip.watts * seconds / 3.6e6
        amount = f"{energy:,.2f}" if energy >= 0.01 else "under 0.01"
        text += f"; {amount} kWh at {chip.watts:.0f} W each"
    return text


def _child(topology: str, *files: str) -> dict[str, Any]:
    from jax.experimental import topologies

    for file in files:
        parts.admit(file)
    experiment = from_json(sys.stdin.read())
    devices = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices
    try:
        return compile_step(experiment, devices)._asdict()
    except UserError as error:
        return {"no": str(error)}
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        reasons = [line for line in str(error).splitlines() if "hbm" in line]
        return {"no": (reasons or ["it runs out of memory"])[0].strip()}


if __name__ == "__main__":
    print(json.dumps(_child(*sys.argv[1:])))
