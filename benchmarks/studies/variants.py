"""The table of configs/variants.py: the effect of each single change, at equal updates and time.

    transformer-jax sweep --config=configs/variants.py --variants=all --workdir=DIR \
      --evaluate=validation --config.data.directory=DATA            one seed of every variant
    python benchmarks/speed/variant_speed.py --data=DATA >> speed.jsonl  # on idle cores
    python benchmarks/studies/variants.py DIR --speed=speed.jsonl --output=results/variants

Writes OUTPUT.json, OUTPUT.svg and, to standard output, the table in Markdown. DIR holds a work
directory per variant, as the sweep makes them (with --config.seed=1 in another DIR, which may be
given too). Entries already in OUTPUT.json are kept, except for variants and seeds in DIR, so a
table may grow over days and machines, and a DIR may be deleted. For each training run: the
validation loss after its last update, which decides; its loss, interpolated linearly, at the time
that `--share` of base's updates takes, by the speeds that variant_speed.py measured (the runs' own
timings also reflect how busy the machine was); BLEU on the validation split by beam search, with
sacrebleu's paired tests against the base of the same seed.
"""

import argparse
import itertools
import json
import statistics
from pathlib import Path
from runpy import run_path
from typing import Any

import tables

from transformer_jax.base.disk import write_text
from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import load_config
from transformer_jax.config.convert import parse
from transformer_jax.data import sources
from transformer_jax.data.sources import files
from transformer_jax.plots.picture import save
from transformer_jax.reports import runs
from transformer_jax.reports.compare import paired_tests
from transformer_jax.reports.systems import read_system
from transformer_jax.runs.workdir import WorkDir, read_rows

CONFIG = Path(__file__).parents[2] / "configs/variants.py"
BASE = "base"
SPEEDS = ("train", "decode", "memory_mb")  # of variant_speed.py, relative to base
_MARK, _BAND, _GRID = "#0b5fa5", "#e8eef5", "#d9d9d9"


def curve(workdir: WorkDir) -> tuple[list[int], list[float]]:
    """Return the updates and losses of all validations."""
    rows = [row for row in read_rows(workdir.metrics) if "validation_loss" in row]
    return [row["step"] for row in rows], [row["validation_loss"] for row in rows]


def at(steps: list[int], losses: list[float], step: float) -> float | None:
    """Return the loss of a curve by linear interpolation; None beyond its ends."""
    for (a, x), (b, y) in itertools.pairwise(zip(steps, losses, strict=True)):
        if a <= step <= b:
            return x + (y - x) * (step - a) / (b - a)
    return None


def point(workdir: WorkDir, base: WorkDir) -> dict[str, Any]:
    """Return the results of one run, compared with the base of the same seed."""
    steps, losses = curve(workdir)
    found = {
        "seed": workdir.experiment().seed,
        "loss": losses[-1],
        "steps": steps,
        "losses": losses,
        "parameters": runs.facts(runs.read(workdir))["parameters"],
    }
    try:
        systems = [read_system(place, None, "validation") for place in (base, workdir)]
    except UserError:
        return found  # not scored yet
    experiment = base.experiment()
    corpus = sources.load(experiment.data, "validation", experiment.objective)
    if workdir is base:
        systems = systems[:1] * 2
    _, ours = paired_tests(systems, corpus.tgt, ["BLEU"], tests=("ar",))
    found |= {"bleu": ours.score, "bleu_interval": ours.interval}
    return found if workdir is base else found | {"p": ours.p_values["ar"]}


def collect(places: list[Path]) -> dict[str, list[dict[str, Any]]]:
    """Return the points of each variant, one per finished training run."""
    points: dict[str, list[dict[str, Any]]] = {}
    last = parse(load_config(str(CONFIG), [])).training.steps
    for place, variant in itertools.product(places, run_path(str(CONFIG))["CHANGES"]):
        base, workdir = WorkDir(place / BASE), WorkDir(place / variant)
        if workdir.metrics.exists() and curve(workdir)[0][-1:] == [last]:
            found = point(base if variant == BASE else workdir, base)
            points.setdefault(variant, []).append(found)
    return points


def merge(
    before: list[dict[str, Any]], points: dict[str, list[dict[str, Any]]], speeds: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return one row per variant, base first: the earlier table, with new points and speeds."""
    old = {row["variant"]: row for row in before}
    rows = []
    for variant, change in run_path(str(CONFIG))["CHANGES"].items():
        row = {"points": [], "train": None, "decode": None, "memory_mb": None}
        row |= old.get(variant, {}) | {"variant": variant, "changes": change}
        row |= {key: speeds[variant][key] for key in SPEEDS if variant in speeds}
        by_seed = {one["seed"]: one for one in [*row["points"], *points.get(variant, [])]}
        row["points"] = [by_seed[seed] for seed in sorted(by_seed)]
        if row["points"]:
            rows.append(row)
    return rows


def at_equal_time(rows: list[dict[str, Any]], share: float) -> None:
    """Add to each point the loss of its curve when base has made `share` of its updates."""
    for row in rows:
        speed = 1.0 if row["variant"] == BASE else row["train"]
        for one in row["points"]:
            known = speed is not None and "steps" in one
            step = share * one["steps"][-1] * speed if known else None
            one["loss_at_equal_time"] = at(one["steps"], one["losses"], step) if known else None


def mean(row: dict[str, Any], key: str) -> float | None:
    """Return the mean over the seeds that have the key."""
    values = [point[key] for point in row["points"] if point.get(key) is not None]
    return statistics.fmean(values) if values else None


def p_values(row: dict[str, Any]) -> str:
    """Return the p-values of the seeds that have one, in order."""
    return ", ".join(f"{point['p']:.3f}" for point in row["points"] if "p" in point)


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the table in Markdown."""
    titles = ("variant", "parameters", "loss", "loss, equal time", "BLEU", "p", "training",
              "decoding", "memory")  # fmt: skip
    lines = []
    for row in rows:
        cells: list[tuple[Any, str]] = [
            (row["points"][0].get("parameters"), ",.0f"), (mean(row, "loss"), ".4f"),
            (mean(row, "loss_at_equal_time"), ".4f"), (mean(row, "bleu"), ".2f"),
            (p_values(row), ""),
            (row["train"], ".2f"), (row["decode"], ".2f"), (row["memory_mb"], ".0f"),
        ]  # fmt: skip
        shown = ["" if value is None else format(value, form) for value, form in cells]
        name = row["variant"] + (f" ({n} seeds)" if (n := len(row["points"])) > 1 else "")
        lines.append([name, *shown])
    return tables.markdown(titles, lines)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Plot the differences from base; the band is the range of its seeds."""
    from matplotlib.figure import Figure

    titles = {"loss": "at equal updates", "loss_at_equal_time": "at equal processor time"}
    columns = [key for key in titles if mean(rows[0], key) is not None]
    figure = Figure(figsize=(1 + 4 * len(columns), 1.2 + 0.24 * len(rows)), layout="constrained")
    panels = figure.subplots(1, len(columns), sharey=True, sharex=True, squeeze=False)[0]
    for panel, key in zip(panels, columns, strict=True):
        base = mean(rows[0], key)
        band = [one[key] - base for one in rows[0]["points"] if one[key] is not None]
        panel.axvspan(min(band), max(band), color=_BAND, zorder=0)
        panel.axvline(0, color="0.4", linewidth=0.8, zorder=1)
        for height, row in enumerate(rows):
            values = [one[key] - base for one in row["points"] if one[key] is not None]
            panel.scatter(values, [height] * len(values), s=30, color=_MARK, alpha=0.8, zorder=2)
        panel.set_title(titles[key], fontsize="small", loc="left")
        panel.set_xlabel("validation loss beyond base's")
        panel.spines[["top", "right"]].set_visible(False)
        panel.grid(axis="y", color=_GRID, linewidth=0.5)
    panels[0].set_yticks(range(len(rows)), [row["variant"] for row in rows])
    panels[0].invert_yaxis()
    save(figure, path)


def main() -> None:
    """Write the figures and the plot, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("places", nargs="*", type=Path, metavar="DIR", help="one per seed")
    parser.add_argument("--speed", type=Path, help="output of variant_speed.py")
    parser.add_argument("--share", type=float, default=0.8, help="of base's updates")
    parser.add_argument("--output", type=Path, required=True, help="without suffix")
    arguments = parser.parse_args()
    lines = [] if arguments.speed is None else files.read_lines(arguments.speed)
    speeds = {row["variant"]: row for row in map(json.loads, lines)}
    target = arguments.output.with_suffix(".json")
    before = json.loads(target.read_text())["variants"] if target.exists() else []
    rows = merge(before, collect(arguments.places), speeds)
    if not rows or rows[0]["variant"] != BASE:
        raise UserError(f"{target}: no finished training of {BASE!r}, nor in the directories")
    at_equal_time(rows, arguments.share)
    text = json.dumps({"share": arguments.share, "variants": rows}, indent=1) + "\n"
    write_text(target, text)
    draw(rows, arguments.output.with_suffix(".svg"))
    print(markdown(rows), end="")


if __name__ == "__main__":
    main()
