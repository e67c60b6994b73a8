"""Does the best learning rate stay where it is as a model grows? Standard, muP and CompleteP.

    cd benchmarks/studies
    python transfer.py train width --data=SHAKESPEARE --workdir=DIR
    python transfer.py train depth --data=SHAKESPEARE --workdir=DIR
    python transfer.py train translation --data=MULTI30K --workdir=DIR
    python transfer.py table DIR --output=results/transfer

`width`: the character model of configs/shakespeare.py with 2 layers, 64 to 512 wide; `depth`: the
same, 64 wide, with 2 to 16 layers; `translation`: an encoder-decoder of 1 + 1 layers, the base of
configs/variants.py on packed batches, 64 to 256 wide. Heads are 32 wide and feed-forward layers 4
times the width (2 in translation). Adam without clipping or weight decay, in bfloat16; warm-up,
then linear decay.

The rule: rates are a start times powers of two. Beginning at the best rate of the size before, or
at the start, the walk goes on with seed 0 until the best rate has a worse one on both sides; seed 1
then has the best and its neighbours. The optimum of a seed is that of the parabola through these
three losses over the logarithm of the rate. One thread; an interrupted `train` goes on where it
stopped. `table` keeps the models of the output's earlier table of which DIR has no runs.
"""

import argparse
import json
import math
import os
import statistics
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("NPROC", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import tables
import trials

from transformer_jax.base.disk import write_text
from transformer_jax.plots.picture import save

COMMON = {
    "optimizer.algorithm": "adam", "optimizer.schedule": "linear", "optimizer.warmup_steps": 50,
    "optimizer.clip_norm": None, "optimizer.weight_decay": 0.0, "optimizer.b2": 0.98,
    "checkpoint.keep_last": 1, "checkpoint.best_by": "loss", "evaluation.bleu_sentences": 0,
    "training.ema_decay": None, "model.residual": "pre_norm", "model.compute_dtype": "bfloat16",
}  # fmt: skip
SEEDS = (0, 1)
KEYS = ("family", "parametrization", "size")  # of a row
_GRID = "#d9d9d9"


class Family(NamedTuple):
    """Models that differ in size only."""

    config: str  # a path from the root
    sizes: tuple[int, ...]
    deep: bool  # the size is the number of layers
    grown: str  # the parametrization beside "standard"
    feed_forward: int  # times the width
    layers: dict[str, int]
    steps: int
    start: float  # the learning rate at which the walk begins

    def fields(self, size: int, parametrization: str) -> dict[str, Any]:
        """Return the fields of a model, by their paths."""
        width = self.sizes[0] if not self.deep else 64
        fields: dict[str, Any] = {"model.parametrization": parametrization}
        if parametrization != "standard":
            fields["model.base_width"] = width
        if parametrization == "completep":
            fields["model.base_depth"] = self.sizes[0]
        width = width if self.deep else size
        fields |= {"model.d_model": width, "model.num_heads": width // 32,
                   "model.d_ff": self.feed_forward * width}  # fmt: skip
        layers = dict.fromkeys(self.layers, size) if self.deep else self.layers
        fields |= {f"model.{name}": number for name, number in layers.items()}
        fields |= {"model.layer_loop": "scan"} if self.deep else {}  # one layer is compiled
        fields |= {} if self.config == _TEXT else {"data.batching": "pack"}  # one shape
        return fields | {"training.steps": self.steps, "checkpoint.every_steps": self.steps,
                         "evaluation.every_steps": self.steps}  # fmt: skip


_TEXT = "configs/shakespeare.py"
FAMILIES = {
    "width": Family(
        _TEXT, (64, 128, 256, 512), False, "mup", 4, {"num_decoder_layers": 2}, 300, 2.0**-7
    ),
    "depth": Family(
        _TEXT, (2, 4, 8, 16), True, "completep", 4, {"num_decoder_layers": 2}, 300, 2.0**-7
    ),
    "translation": Family(
        "configs/variants.py", (64, 128, 256), False, "mup", 2,
        {"num_encoder_layers": 1, "num_decoder_layers": 1}, 300, 2.0**-7,
    ),
}  # fmt: skip


def train(name: str, directory: Path, data: str) -> None:
    """Train all sizes of a family, with both parametrizations."""
    family = FAMILIES[name]
    for parametrization in ("standard", family.grown):
        start = 0
        for size in family.sizes:
            tried: dict[int, float] = {}

            def loss(power: int, seed: int, of=(parametrization, size)) -> float:
                parametrization, size = of
                rate = family.start * 2.0**power
                fields = COMMON | family.fields(size, parametrization)
                fields |= {"data.directory": data, "seed": seed, "optimizer.learning_rate": rate}
                place = directory / "runs" / name / f"{parametrization},{size},{rate:.8g},{seed}"
                return trials.run(family.config, fields, place)

            tried[start] = loss(start, SEEDS[0])
            while True:
                best = min(tried, key=tried.__getitem__)
                more = [power for power in (best - 1, best + 1) if power not in tried]
                if not more:
                    break
                tried[more[0]] = loss(more[0], SEEDS[0])
            for seed in SEEDS[1:]:
                for power in (best - 1, best, best + 1):
                    loss(power, seed)
            start = best


def optimum(tried: dict[float, float]) -> float | None:
    """Return the logarithm to the base 2 of the best rate: the vertex of the parabola through the
    best of `tried`, losses by rates, and its neighbours; None without a worse rate on both sides.
    """
    best = min(tried, key=tried.__getitem__)
    around = [tried.get(best * factor, math.inf) for factor in (0.5, 1.0, 2.0)]
    if not all(map(math.isfinite, around)):
        return None
    low, middle, high = around
    bend = low - 2 * middle + high
    return math.log2(best) + (0.5 * (low - high) / bend if bend else 0.0)


def collect(directory: Path) -> list[dict[str, Any]]:
    """Return a row for each size: its losses by seed and rate, and the optimum of each seed."""
    found: dict[tuple[str, str, int], dict[int, dict[float, float]]]
    found = defaultdict(lambda: defaultdict(dict))
    for name in FAMILIES:
        for place in (directory / "runs" / name).glob("*"):
            parametrization, size, rate, seed = place.name.split(",")
            curve = trials.losses(place)
            if curve:
                found[name, parametrization, int(size)][int(seed)][float(rate)] = curve[-1][1]
    rows = []
    for (name, parametrization, size), seeds in sorted(found.items()):
        rows.append({
            "family": name, "parametrization": parametrization, "size": size,
            "losses": {seed: dict(sorted(tried.items())) for seed, tried in sorted(seeds.items())},
            "optima": [best for tried in seeds.values() if (best := optimum(tried)) is not None],
            "best_losses": [min(tried.values()) for tried in seeds.values()],
        })  # fmt: skip
    return rows


def slope(rows: list[dict[str, Any]]) -> float:
    """Return by how many doublings the optimum moves with each doubling of the size."""
    points = [(math.log2(row["size"]), best) for row in rows for best in row["optima"]]
    return float(np.polyfit(*zip(*points, strict=True), 1)[0])


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the table in Markdown: optima as rates, and losses at the best rate of each seed."""
    titles = ("family, parametrization", "size", "best rate", "its seeds, log2", "loss")
    lines = [
        [f"{row['family']}, {row['parametrization']}", str(row["size"]),
         f"{2 ** statistics.fmean(row['optima']):.5f}",
         " ".join(f"{best:.2f}" for best in row["optima"]),
         f"{statistics.fmean(row['best_losses']):.4f}"]
        for row in rows
    ]  # fmt: skip
    return tables.markdown(titles, lines)


def of(rows: list[dict[str, Any]], family: str, parametrization: str) -> list[dict[str, Any]]:
    """Return the rows of a family and parametrization."""
    return [r for r in rows if (r["family"], r["parametrization"]) == (family, parametrization)]


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Plot loss against rate, a line for each size: a row of panels for each family."""
    from matplotlib.figure import Figure

    names = [name for name in FAMILIES if any(row["family"] == name for row in rows)]
    figure = Figure(figsize=(8, 3 * len(names)), layout="constrained")
    panels = figure.subplots(len(names), 2, squeeze=False, sharey="row", sharex="row")
    for line, name in zip(panels, names, strict=True):
        for panel, word in zip(line, ("standard", FAMILIES[name].grown), strict=True):
            mine = of(rows, name, word)
            for number, row in enumerate(mine):
                tried = {float(r): loss for r, loss in row["losses"][str(SEEDS[0])].items()}
                shade = str(0.7 * (1 - number / max(len(mine) - 1, 1)))
                panel.plot(tried.keys(), tried.values(), marker="o", markersize=3, linewidth=1,
                           color=shade, label=str(row["size"]))  # fmt: skip
                rate = 2 ** statistics.fmean(row["optima"])
                panel.plot([rate], [min(tried.values())], marker="v", color=shade, markersize=8)
            panel.set_xscale("log", base=2)
            moves = f"{slope(mine):+.2f} doublings a doubling"
            panel.set_title(f"{name}, {word}: {moves}", fontsize="small", loc="left")
            panel.legend(
                frameon=False, fontsize="x-small", title_fontsize="x-small",
                title="depth" if FAMILIES[name].deep else "width",
            )  # fmt: skip
            panel.spines[["top", "right"]].set_visible(False)
            panel.grid(color=_GRID, linewidth=0.5)
        line[0].set_ylabel("validation loss, nats")
    for panel in panels[-1]:
        panel.set_xlabel("learning rate")
    save(figure, path)


def main() -> None:
    """Train, or write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    stages = parser.add_subparsers(dest="stage", required=True)
    stage = stages.add_parser("train")
    stage.add_argument("family", choices=FAMILIES)
    stage.add_argument("--data", required=True)
    stage.add_argument("--workdir", type=Path, required=True)
    stage = stages.add_parser("table")
    stage.add_argument("directory", type=Path, metavar="DIR")
    stage.add_argument("--output", type=Path, required=True, help="without suffix")
    arguments = parser.parse_args()
    if arguments.stage == "train":
        train(arguments.family, arguments.workdir, arguments.data)
        return
    result = arguments.output.with_suffix(".json")
    rows = trials.with_earlier(collect(arguments.directory), KEYS, result, "sizes")
    moves = {f"{name}, {word}": slope(of(rows, name, word)) for name in FAMILIES
             for word in ("standard", FAMILIES[name].grown) if of(rows, name, word)}  # fmt: skip
    text = json.dumps({"doublings_a_doubling": moves, "sizes": rows}, indent=1) + "\n"
    write_text(result, text)
    draw(rows, arguments.output.with_suffix(".svg"))
    print(markdown(rows), end="")


if __name__ == "__main__":
    main()
