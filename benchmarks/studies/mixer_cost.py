"""Cost against length: each mixer on one row of 256 to 16,384 tokens.

    python benchmarks/studies/mixer_cost.py measure --output=results/mixer_cost.json  # idle cores
    python benchmarks/studies/mixer_cost.py picture results/mixer_cost.json

One layer's mixer alone, width 128 and 4 heads, in float32 on one thread of the installed XLA.
`measure` covers the forward pass, the forward pass with the gradients of all inputs, and one more
token after that many: operations in matrix products, counted from the program; the compiler's
temporary memory; and seconds, the median of several runs. Beyond 8,192 tokens, mixers that attend
to all pairs are compiled but not run. Exponents are log-log slopes over the longer half of lengths.
"""

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("NPROC", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base import counting
from transformer_jax.base.disk import write_text
from transformer_jax.config import ModelConfig
from transformer_jax.nn.cache import Lanes
from transformer_jax.nn.mixers.kinds import MIXERS
from transformer_jax.nn.view import self_view
from transformer_jax.plots.picture import save

WIDTH, HEADS = 128, 4
LENGTHS = [2**n for n in range(8, 15)]
# mixers that need the whole text
WHOLE = {
    "longformer", "bigbird", "bielman", "bilstm", "bigru", "conformer",
    "bis4d", "bimamba", "bimamba2", "bigated_delta", "biretention", "birwkv7", "bimega",
    "bimega_chunk",
}  # fmt: skip
# mixers that attend to all pairs
PAIRS = {"full", "differential", "conformer", "aft_full", "mega", "bimega"}
OF_PICTURES = {"joint", "joint_last", "space", "time", "divided"}  # which read no texts
LONGEST_RUN = 8192
FIELDS = {
    "local": {"window": 64}, "dilated": {"window": 64}, "longformer": {"window": 64},
    "aft_local": {"window": 64}, "aft_conv": {"window": 64},
    "bigbird": {"block_size": 64}, "lsh": {"block_size": 64},
    "random_features": {"num_features": 32}, "gated_random_features": {"num_features": 32},
    "favor": {"num_features": 64},
    "mamba": {"state_size": 16}, "bimamba": {"state_size": 16}, "mega": {"state_size": 16},
    "bimega": {"state_size": 16}, "mega_chunk": {"state_size": 16},
    "bimega_chunk": {"state_size": 16},
}  # fmt: skip


def config_of(kind: str) -> ModelConfig:
    """Return the configuration of a model with such layers."""
    fields: dict[str, Any] = {
        "d_model": WIDTH, "num_heads": HEADS, "max_positions": max(LENGTHS), "positions": "none",
        "residual": "pre_norm",
        "encoder_pattern" if kind in WHOLE else "decoder_pattern": (kind,),
    }  # fmt: skip
    return ModelConfig(**fields, **FIELDS.get(kind, {}))


def workloads(kind: str, length: int) -> dict[str, tuple[Callable, tuple]]:
    """Return the workloads on a row of this length, each a function and its arguments."""
    mixer = MIXERS[kind](config_of(kind), jnp.dtype("float32"))
    pos = jnp.arange(length)[None]
    order: Any = "all" if kind in WHOLE else "causal"
    view = self_view(pos, jnp.ones_like(pos), order, single=True)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(1, length, WIDTH)), jnp.float32)
    short = self_view(pos[:, :2], jnp.ones_like(pos[:, :2]), order, single=True)
    params = mixer.init(jax.random.key(0), x[:, :2], short, False, method="mix")

    def forward(params: Any, x: Any) -> Any:
        return mixer.apply(params, x, view, False, method="mix")[0]

    def training(params: Any, x: Any) -> Any:
        return jax.grad(lambda p, x: jnp.sum(forward(p, x) ** 2), (0, 1))(params, x)

    found = {"forward": (forward, (params, x)), "training": (training, (params, x))}
    if kind not in WHOLE:
        lanes = Lanes.empty(1, 1, length)
        cache = mixer.apply(params, lanes, method="empty")
        everyone = jnp.ones(1, bool)

        def token(params: Any, x: Any, cache: Any, lanes: Any) -> Any:
            lanes, slots = lanes.fill(jnp.full((1, 1), length - 1), everyone, "causal")
            y, _, cache = mixer.apply(params, x, cache, slots, everyone, method="extend")
            return y, cache

        found["token"] = (token, (params, x[:, :1], cache, lanes))
    return found


def measured(function: Callable, given: tuple, runs: bool) -> dict[str, Any]:
    """Return the cost of one workload."""
    products = counting.operations(counting.program(function, *given)).products
    compiled = jax.jit(function).lower(*given).compile()
    row = {"operations": products, "memory": compiled.memory_analysis().temp_size_in_bytes}
    if runs:
        jax.block_until_ready(compiled(*given))
        seconds: list[float] = []
        while len(seconds) < 3 or (sum(seconds) < 1 and len(seconds) < 30):
            began = time.perf_counter()
            jax.block_until_ready(compiled(*given))
            seconds.append(time.perf_counter() - began)
        row["seconds"] = statistics.median(seconds)
    return row


def exponent(rows: list[dict[str, Any]], what: str) -> float | None:
    """Return the log-log slope against length, over the longer half of the rows."""
    points = [(math.log(row["length"]), math.log(row[what])) for row in rows if row.get(what)]
    points = points[len(points) // 2 :]
    if len(points) < 2:
        return None
    slope, _ = np.polyfit(*zip(*points, strict=True), 1)
    return round(float(slope), 3)


def measure(arguments: argparse.Namespace) -> None:
    """Measure, and write all rows and exponents after each mixer.

    Rows of other mixers already in the file are kept.
    """
    rows: list[dict[str, Any]] = []
    if arguments.output.exists():
        rows = json.loads(arguments.output.read_text(encoding="utf-8"))["rows"]
    of_texts = [kind for kind in MIXERS if kind not in OF_PICTURES]
    for kind in arguments.mixers.split(",") if arguments.mixers else of_texts:
        rows = [row for row in rows if row["mixer"] != kind]
        for length in LENGTHS:
            runs = kind not in PAIRS or length <= LONGEST_RUN
            for work, (function, given) in workloads(kind, length).items():
                row = {"mixer": kind, "work": work, "length": length}
                rows.append(row | measured(function, given, runs))
                print(json.dumps(rows[-1]), flush=True)
        found = [
            {"mixer": mixer, "work": work,
             **{what: exponent(mine, what) for what in ("operations", "memory", "seconds")}}
            for mixer in MIXERS for work in ("forward", "training", "token")
            if (mine := [row for row in rows if (row["mixer"], row["work"]) == (mixer, work)])
        ]  # fmt: skip
        rows.sort(key=lambda row: list(MIXERS).index(row["mixer"]))
        text = json.dumps({"rows": rows, "exponents": found}, indent=1)
        write_text(arguments.output, text + "\n")


def picture(arguments: argparse.Namespace) -> None:
    """Plot the cost of training and of a token, next to the data file."""
    from matplotlib.figure import Figure

    rows = json.loads(arguments.data.read_text(encoding="utf-8"))["rows"]
    figure = Figure(figsize=(11, 7), layout="constrained")
    panels = figure.subplots(2, 3, sharex=True)
    for line, work in zip(panels, ("training", "token"), strict=True):
        for panel, what in zip(line, ("operations", "memory", "seconds"), strict=True):
            for kind in dict.fromkeys(row["mixer"] for row in rows):
                mine = [r for r in rows if (r["mixer"], r["work"]) == (kind, work) and r.get(what)]
                style = {"linewidth": 2.5, "color": "black"} if kind == "full" else {"linewidth": 1}
                panel.loglog(
                    [r["length"] for r in mine], [r[what] for r in mine], label=kind, **style
                )
            panel.set_title(f"{what}, {work}", fontsize="small")
            panel.spines[["top", "right"]].set_visible(False)
    for panel in panels[1]:
        panel.set_xlabel("tokens")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right", fontsize="x-small", frameon=False)
    save(figure, arguments.data.with_suffix(".svg"))


def main() -> None:
    """Measure or plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("measure")
    one.add_argument("--mixers", help="comma-separated; default: all")
    one.add_argument("--output", type=Path, required=True)
    one.set_defaults(run=measure)
    other = commands.add_parser("picture")
    other.add_argument("data", type=Path)
    other.set_defaults(run=picture)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
