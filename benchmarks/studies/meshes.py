"""What `plan --search` predicts by formulas, beside counts of compiled programs; nothing is run.

    cd benchmarks/studies
    python meshes.py search dense >> meshes.jsonl  # and translation, experts: minutes each
    python meshes.py scale 1b 1024 >> meshes.jsonl  # and 70b; 8, 32, 64, 1024 devices
    python meshes.py draw meshes.jsonl --output=results/meshes

`search` compiles the step of a small model on every mesh of 8 simulated devices that divides it and
gives each the time that a roofline of H100s predicts from its collectives. How much slower than the
fastest is the one that the search finds first?

`scale` asks the search for a mesh of so many H100s, the rows growing with them, and compiles it for
as many simulated devices: the bytes that a device sends by kind of collective, and the share of the
time that it computes, by formulas and by the program. `1b` is a decoder of 16 layers of width 2,048
with 32 heads, 8 of keys, and SwiGLU of 8,192, 8 rows of 2,048 positions a device; `70b` one of 80
layers of width 8,192 with 64 heads, 8 of keys, and SwiGLU of 28,672, a row of 4,096 positions a
device. Layers are recomputed, and their program is one loop.
"""

import argparse
import dataclasses
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=" + (
    sys.argv[3] if sys.argv[1:2] == ["scale"] else "8"
)
os.environ["JAX_PLATFORMS"] = "cpu"

import jax

from transformer_jax.base.disk import write_text
from transformer_jax.config import (
    CheckpointConfig,
    DataConfig,
    EvaluationConfig,
    Experiment,
    MeshConfig,
    ModelConfig,
    ObjectiveConfig,
    TokenizerConfig,
    TrainingConfig,
)
from transformer_jax.data.sources import files
from transformer_jax.experiments import mesh_search
from transformer_jax.experiments.accelerators import GPUS
from transformer_jax.experiments.collectives import Collective
from transformer_jax.experiments.plan import compile_step
from transformer_jax.experiments.scaling import predict
from transformer_jax.nn import linear
from transformer_jax.plots.picture import save

DEVICES = jax.device_count()
CHIP = GPUS["H100 SXM"]
_SEEN, _FORMULA, _GRID = "#0b5fa5", "#8a8a8a", "#d9d9d9"


def decoder(layers: int, width: int, heads: int, keys: int, inner: int, rows: int, length: int,
            vocabulary: int = 32_000, **model: Any) -> Experiment:  # fmt: skip
    """Return a language model of Llama's shape."""
    return Experiment(
        model=ModelConfig(
            architecture="decoder", num_decoder_layers=layers, d_model=width, num_heads=heads,
            num_kv_heads=keys, d_ff=inner, activation="swiglu", norm="rms_norm",
            residual="pre_norm", positions="none", relative_positions="rope", dropout_rate=0.0,
            compute_dtype="bfloat16", layer_loop="scan", remat="full", **model,
        ),
        tokenizer=TokenizerConfig(vocab_size=vocabulary),
        objective=ObjectiveConfig("language_model", window=length),
        data=DataConfig(batching="pack", max_length=length, tokens_per_batch=rows * length),
        evaluation=EvaluationConfig(bleu_sentences=0),
        checkpoint=CheckpointConfig(best_by="loss"),
        training=TrainingConfig(label_smoothing=0.0),
    )  # fmt: skip


def translation() -> Experiment:
    """Return the base model of the paper on sentence pairs of 128 pieces."""
    return Experiment(
        model=ModelConfig(dropout_rate=0.0, compute_dtype="bfloat16", layer_loop="scan"),
        tokenizer=TokenizerConfig(vocab_size=32_000),
        data=DataConfig(batching="pack", max_length=128, tokens_per_batch=256 * 128),
    )


SMALL = {
    "dense": lambda: decoder(8, 1024, 16, 8, 4096, 32, 1024),
    "translation": translation,
    "experts": lambda: decoder(8, 512, 8, 8, 1024, 64, 512, feed_forward_pattern=("experts",),
                               num_experts=8),
}  # fmt: skip
LARGE = {
    "1b": lambda devices: decoder(16, 2048, 32, 8, 8192, 8 * devices, 2048),
    "70b": lambda devices: decoder(80, 8192, 64, 8, 28_672, devices, 4096),
}


# Products are written as an accelerator does, in bfloat16, so that they are sent as such.
linear.on_cpu = lambda: False  # type: ignore[assignment]


def compiled(experiment: Experiment, one: mesh_search.Found, of: mesh_search.Known) -> Any:
    """Return a program's bytes, seconds and collectives on a mesh that the search knows."""
    here = dataclasses.replace(
        experiment, mesh=one.mesh,
        model=dataclasses.replace(experiment.model, stage_repeats=one.repeats),
        data=dataclasses.replace(experiment.data, rows_divisible_by=_rows(one.mesh)),
    )  # fmt: skip
    program = compile_step(here, jax.devices())
    operations = of.operations / DEVICES / (1 - one.idle)
    return program, predict(operations, program.collectives, CHIP)


def _rows(mesh: MeshConfig) -> int:
    return mesh.data * mesh.fsdp * mesh.expert * mesh.stage


def by_kind(sent: list[Collective]) -> dict[str, float]:
    """Return the bytes that a device sends, by kind of collective."""
    kinds = sorted({one.kind for one in sent})
    return {kind: sum(one.sent for one in sent if one.kind == kind) for kind in kinds}


def row_of(one: mesh_search.Found, program: Any, step: Any) -> dict[str, Any]:
    """Return what formulas and a program say about a mesh."""
    sizes = {k: v for k, v in dataclasses.asdict(one.mesh).items() if v > 1}
    return {
        "mesh": sizes, "repeats": one.repeats, "formula_seconds": one.seconds, "idle": one.idle,
        "formula_computing": one.step.efficiency[0] * (1 - one.idle),
        "formula_bytes": {what: each.sent for what, each in one.sent.items()},
        "formula_memory": one.memory, "seconds": step.computing + step.near + step.far,
        "computing": step.efficiency[0] * (1 - one.idle),
        "bytes": by_kind(program.collectives), "memory": program.peak_bytes,
        "compiled_in": program.seconds,
    }  # fmt: skip


def every_mesh(name: str) -> None:
    """Print a line for each mesh that divides a small model."""
    experiment = SMALL[name]()
    of = mesh_search.known(experiment)
    tried = [mesh_search.found(experiment, of, m, CHIP) for m in mesh_search.meshes(DEVICES)]
    every = mesh_search.ranked(one for one in tried if one)
    began = time.monotonic()
    for number, one in enumerate(every, 1):
        row = {"model": name, "devices": DEVICES} | row_of(one, *compiled(experiment, one, of))
        print(json.dumps(row), flush=True)
        left = (time.monotonic() - began) / number * (len(every) - number)
        print(f"{number} of {len(every)}, {left / 60:.0f} min left", file=sys.stderr, flush=True)


def one_mesh(name: str) -> None:
    """Print a line for the best mesh that fits a large model, or the one that needs least."""
    experiment = LARGE[name](DEVICES)
    of = mesh_search.known(experiment)
    tried = [mesh_search.best(experiment, of, m, CHIP) for m in mesh_search.meshes(DEVICES)]
    every = [one for one in tried if one]
    fit = [one for one in every if one.memory <= 0.9 * CHIP.memory]
    best = mesh_search.ranked(fit)[0] if fit else min(every, key=lambda one: one.memory)
    row = row_of(best, *compiled(experiment, best, of))
    print(json.dumps({"model": name, "devices": DEVICES, "fits": bool(fit)} | row), flush=True)


def judged(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how much slower the search's first mesh, the first row, is than the fastest program
    that fits.
    """
    first, *_ = fit = [row for row in rows if row["memory"] <= 0.9 * CHIP.memory]
    fastest = min(fit, key=lambda row: row["seconds"])
    return {
        "model": rows[0]["model"], "meshes": len(rows), "fastest": fastest["mesh"],
        "searched": first["mesh"], "slower": first["seconds"] / fastest["seconds"] - 1,
    }  # fmt: skip


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Plot seconds by formulas and by programs, a panel for each small model, and the share of the
    time that large ones compute.
    """
    from matplotlib.figure import Figure

    large = [name for name in LARGE if any(row["model"] == name for row in rows)]
    panels = [name for name in SMALL if any(row["model"] == name for row in rows)]
    figure = Figure(figsize=(3.2 * (len(panels) + bool(large)), 3.2), layout="constrained")
    axes = figure.subplots(1, len(panels) + bool(large), squeeze=False)[0]
    for panel, name in zip(axes, panels, strict=False):
        mine = [row for row in rows if row["model"] == name]
        panel.scatter([1e3 * r["formula_seconds"] for r in mine],
                      [1e3 * r["seconds"] for r in mine], s=12, color=_SEEN)  # fmt: skip
        low = min(1e3 * min(r["formula_seconds"], r["seconds"]) for r in mine)
        high = max(1e3 * max(r["formula_seconds"], r["seconds"]) for r in mine)
        panel.plot([low, high], [low, high], color=_FORMULA, linewidth=0.8)
        panel.set_xlabel("ms a step, by formulas")
        panel.set_title(f"{name}: meshes of 8 devices", fontsize="small", loc="left")
    axes[0].set_ylabel("ms a step, by the program")
    for name in large:
        mine = sorted((r for r in rows if r["model"] == name), key=lambda r: r["devices"])
        counts = [r["devices"] for r in mine]
        axes[-1].plot(counts, [r["computing"] for r in mine], marker="o", color=_SEEN,
                      linestyle="-" if name == "1b" else "--", label=name)  # fmt: skip
        axes[-1].plot(counts, [r["formula_computing"] for r in mine], color=_FORMULA,
                      marker=".", linestyle="-" if name == "1b" else "--")  # fmt: skip
    if large:
        axes[-1].set(xscale="log", xlabel="H100s", ylim=(0, 1))
        axes[-1].set_title("share of the time computing", fontsize="small", loc="left")
        axes[-1].legend(frameon=False, fontsize="x-small")
    for panel in axes:
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(color=_GRID, linewidth=0.5)
    save(figure, path)


def main() -> None:
    """Compile, or draw."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    stages = parser.add_subparsers(dest="stage", required=True)
    stages.add_parser("search").add_argument("model", choices=SMALL)
    stage = stages.add_parser("scale")
    stage.add_argument("model", choices=LARGE)
    stage.add_argument("devices", type=int)
    stage = stages.add_parser("draw")
    stage.add_argument("rows", type=Path)
    stage.add_argument("--output", type=Path, required=True, help="without suffix")
    arguments = parser.parse_args()
    if arguments.stage == "search":
        every_mesh(arguments.model)
    elif arguments.stage == "scale":
        one_mesh(arguments.model)
    else:
        rows = [json.loads(line) for line in files.read_lines(arguments.rows)]
        found = [[row for row in rows if row["model"] == name] for name in SMALL]
        answer = {"search": [judged(mine) for mine in found if mine], "meshes": rows}
        write_text(arguments.output.with_suffix(".json"), json.dumps(answer, indent=1) + "\n")
        draw(rows, arguments.output.with_suffix(".svg"))
        print(json.dumps(answer["search"], indent=1))


if __name__ == "__main__":
    main()
