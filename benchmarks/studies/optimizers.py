"""Optimizers, each tuned by the same rule: loss at equal updates and at equal time, memory.

    cd benchmarks/studies
    python optimizers.py train text --data=SHAKESPEARE --workdir=DIR
    python optimizers.py train translation --data=MULTI30K --workdir=DIR
    python optimizers.py speed text --data=SHAKESPEARE >> speed.jsonl  # on idle cores
    python optimizers.py speed translation --data=MULTI30K >> speed.jsonl
    python optimizers.py table DIR --speed=speed.jsonl --output=results/optimizers

Two tasks: `text`, the character model of configs/shakespeare.py (4 layers of width 128, 2,000
updates of 768 characters), and `translation`, the base of configs/variants.py (Multi30k, 300
updates of 2,048 packed positions). All optimizers have the same model, data, warm-up, clipping and
linear decay of the learning rate, but for schedule_free, whose rate is constant; fields of their
own are their authors', but for the memory of ademamix, which is theirs in proportion to the
training.

The rule: five trials of the learning rate with seed 0. Three are the usual rate r, r / 4 and 4 r;
two are half and twice the best of these, or, if that is r / 4 or 4 r, another factor of 4 beyond it
and the factor of 2 between it and r. Then `translation`, which has fewer and larger updates, has
three: the best rate of `text` in the earlier table, twice and four times of it. The rate with the
lowest validation loss after the last update is the optimizer's, and the five best optimizers get
two more seeds with theirs. So the loss of seed 0 is the best of its trials and flatters; p-values,
of Welch's t-test against Adam, are of the other seeds and this one alike. One thread; an
interrupted `train` goes on where it stopped: runs/ has a work directory for each. `table` keeps the
rows of the output's earlier table of which DIR has no runs.
"""

import argparse
import itertools
import json
import os
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("NPROC", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import tables
import trials
from scipy import stats

from transformer_jax.base.disk import write_text
from transformer_jax.data.batches.batching import BatchSource
from transformer_jax.data.sources import files
from transformer_jax.experiments.prepare import prepare
from transformer_jax.models.build import build_for, roles_of
from transformer_jax.plots.picture import save
from transformer_jax.runs.workdir import WorkDir
from transformer_jax.sharding.mesh import make_mesh, place_batch
from transformer_jax.training.cost import state_bytes
from transformer_jax.training.optimizer import averaged, make_optimizer
from transformer_jax.training.programs import TrainStep
from transformer_jax.training.state import init_state

TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "text": ("configs/shakespeare.py", {"checkpoint.every_steps": 250}),
    "translation": (
        "configs/variants.py",
        {"training.steps": 300, "training.ema_decay": None, "checkpoint.every_steps": 50,
         "data.batching": "pack"},
    ),
}  # fmt: skip
COMMON = {
    "optimizer.schedule": "linear", "optimizer.warmup_steps": 100, "optimizer.clip_norm": 1.0,
    "optimizer.weight_decay": 0.1, "optimizer.update_rms": 0.2, "optimizer.b2": 0.98,
    "checkpoint.keep_last": 1, "checkpoint.best_by": "loss", "evaluation.bleu_sentences": 0,
}  # fmt: skip
# The usual rate, and fields other than the defaults.
OPTIMIZERS: dict[str, tuple[float, dict[str, Any]]] = {
    "adam": (2e-3, {}),
    "muon": (2e-3, {}),
    "sgd": (0.2, {"momentum": 0.9}),
    "lion": (3e-4, {"b2": 0.99, "weight_decay": 0.5}),
    "adafactor": (2e-2, {}),
    "ademamix": (2e-3, {"slow_warmup": "steps", "b3": "share"}),
    "schedule_free": (4e-3, {"schedule": "constant"}),
    "shampoo": (2e-3, {}),
    "soap": (2e-3, {"b1": 0.95, "b2": 0.95}),
}
KEYS = ("task", "optimizer")  # of a row
AGAINST, SEEDS, BEST = "adam", (0, 1, 2), 5
_MARK, _GRID = "#0b5fa5", "#d9d9d9"


def overrides(task: str, word: str, rate: float, seed: int, data: str) -> dict[str, Any]:
    """Return the fields of one run, by their paths."""
    fields = {**COMMON, **TASKS[task][1], "data.directory": data, "seed": seed}
    fields |= {"optimizer.algorithm": word, "optimizer.learning_rate": rate}
    fields["evaluation.every_steps"] = fields["checkpoint.every_steps"]
    own = {f"optimizer.{name}": value for name, value in OPTIMIZERS[word][1].items()}
    steps = fields.get("training.steps", 2000)
    # A slow mean whose half-life is as small a part of the training as the authors', 3.4 %.
    by_steps = {"steps": steps, "share": round(0.99 ** (2000 / steps), 4)}
    return fields | {path: by_steps.get(value, value) for path, value in own.items()}


def place_of(directory: Path, task: str, word: str, rate: float, seed: int) -> Path:
    """Return the work directory of a run."""
    return directory / "runs" / task / f"{word},{rate:.3g},{seed}"


def run(directory: Path, task: str, word: str, rate: float, seed: int, data: str) -> float:
    """Train one run, or what is left of it, and return its last loss."""
    fields = overrides(task, word, rate, seed, data)
    return trials.run(TASKS[task][0], fields, place_of(directory, task, word, rate, seed))


def rates(task: str, word: str, tried: dict[float, float]) -> list[float]:
    """Return the rates to try next by the rule above; none when all are tried."""
    if task != "text":
        rows = json.loads((trials.ROOT / "results/optimizers.json").read_text())["optimizers"]
        carried = {r["optimizer"]: float(r["rate"]) for r in rows if r["task"] == "text"}[word]
        return [] if tried else [carried, carried * 2, carried * 4]
    usual = OPTIMIZERS[word][0]
    first = [usual / 4, usual, usual * 4]
    if len(tried) < 3:
        return [rate for rate in first if rate not in tried]
    best = min(first, key=tried.__getitem__)
    beyond = {first[0]: (best / 4, best * 2), usual: (best / 2, best * 2)}
    return [rate for rate in beyond.get(best, (best / 2, best * 4)) if rate not in tried]


def train(task: str, directory: Path, data: str) -> None:
    """Train all trials of all optimizers, and further seeds of the best."""
    found = {}
    for word in OPTIMIZERS:
        tried: dict[float, float] = {}
        while more := rates(task, word, tried):
            tried |= {rate: run(directory, task, word, rate, SEEDS[0], data) for rate in more}
        found[word] = min((loss, rate) for rate, loss in tried.items())
    best = sorted(found, key=lambda word: found[word])[:BEST]
    for word in dict.fromkeys((AGAINST, *best)):
        for seed in SEEDS[1:]:
            run(directory, task, word, found[word][1], seed, data)


def speed(task: str, data: str, rounds: int = 5, updates: int = 20) -> None:
    """Print seconds per update, the median of alternating rounds, and the bytes of state."""
    runs, seconds = {}, {}
    for word, (rate, _) in OPTIMIZERS.items():
        experiment = trials.experiment_of(TASKS[task][0], overrides(task, word, rate, 0, data))
        prepared = prepare(experiment, WorkDir(Path("no work directory")))
        sizes = prepared.tokenizers.sizes
        model, mesh = build_for(experiment, *sizes), make_mesh(experiment.mesh)
        config = experiment.optimizer
        tx = make_optimizer(config, lambda _: 0.0, roles_of(model))
        state = init_state(model, tx, 0, mesh, averaged(config, experiment.training))
        step = TrainStep(experiment, model, state, mesh)
        source = BatchSource(prepared.train, prepared.plan, prepared.objective)
        shape, _ = prepared.plan.batch(0)
        with jax.set_mesh(mesh), step.compiled([shape]):
            program = step._programs[shape, 1].result()
        batch = place_batch(source[0], mesh)
        runs[word] = [program, state, batch, step._given, mesh]
        seconds[word] = []
        kept = state_bytes(experiment, sizes)[1]
        print(json.dumps({"task": task, "optimizer": word, "state_mb": kept / 1e6}), flush=True)
    for _ in range(rounds + 1):
        for word, job in runs.items():
            program, state, batch, given, mesh = job
            with jax.set_mesh(mesh):
                began = time.perf_counter()
                for _ in range(updates):
                    state, metrics = program(state, batch, *given)
                jax.block_until_ready(metrics.grad_norm)
                seconds[word].append((time.perf_counter() - began) / updates)
            job[1] = state
    for word, values in seconds.items():
        row = {"task": task, "optimizer": word, "seconds": statistics.median(values[1:])}
        print(json.dumps(row), flush=True)


def collect(directory: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each optimizer of each task: its trials, and the curves of its best rate."""
    for task in TASKS:
        for word in OPTIMIZERS:
            tried, curves = {}, {}
            for place in sorted((directory / "runs" / task).glob(f"{word},*")):
                _, rate, seed = place.name.split(",")
                curve = trials.losses(place)
                if not curve:
                    continue
                curves[rate, int(seed)] = curve
                if int(seed) == SEEDS[0]:
                    tried[rate] = curve[-1][1]
            if tried:
                best = min(tried, key=tried.__getitem__)
                seeds = {s: curves[best, s] for s in SEEDS if (best, s) in curves}
                yield {"task": task, "optimizer": word, "trials": tried, "rate": best,
                       "curves": seeds, "losses": [c[-1][1] for c in seeds.values()]}  # fmt: skip


def add_times(rows: list[dict[str, Any]], speeds: list[dict[str, Any]]) -> None:
    """Add speeds and state to rows, the loss when Adam has made four fifths of its updates, and
    p-values.
    """
    for row in rows:
        for known in speeds:
            if (known["task"], known["optimizer"]) == (row["task"], row["optimizer"]):
                row |= {key: known[key] for key in ("seconds", "state_mb") if key in known}
    base = {row["task"]: row for row in rows if row["optimizer"] == AGAINST}
    for row in rows:
        other = base[row["task"]]
        if "seconds" in row and "seconds" in other:
            share = 0.8 * other["seconds"] / row["seconds"]
            row["equal_time"] = [
                at(curve, share * curve[-1][0]) for curve in row["curves"].values()
            ]
        if len(row["losses"]) == len(other["losses"]) == len(SEEDS) and row is not other:
            row["p"] = float(
                stats.ttest_ind(row["losses"], other["losses"], equal_var=False).pvalue
            )


def at(curve: list[tuple[int, float]], step: float) -> float | None:
    """Return the loss at an update, linearly between validations; None beyond the last."""
    for (a, x), (b, y) in itertools.pairwise(curve):
        if a <= step <= b:
            return x + (y - x) * (step - a) / (b - a)
    return curve[-1][1] if step > curve[-1][0] else None


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the table in Markdown."""
    titles = ("task, optimizer", "rate", "loss", "seeds", "p", "loss, equal time", "seconds", "MB")
    lines = []
    for row in rows:
        timed = [x for x in row.get("equal_time", []) if x is not None]
        cells = [
            row["rate"], f"{statistics.fmean(row['losses']):.4f}", str(len(row["losses"])),
            f"{row['p']:.3f}" if "p" in row else "",
            f"{statistics.fmean(timed):.4f}" if timed else "",
            f"{row['seconds']:.4f}" if "seconds" in row else "",
            f"{row['state_mb']:.1f}" if "state_mb" in row else "",
        ]  # fmt: skip
        lines.append([f"{row['task']}, {row['optimizer']}", *cells])
    return tables.markdown(titles, lines)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Plot the losses of all trials against rates relative to the usual one, a panel for a task,
    and beside it the losses of all seeds.
    """
    from matplotlib.figure import Figure

    tasks = list(dict.fromkeys(row["task"] for row in rows))
    figure = Figure(figsize=(9, 3.4 * len(tasks)), layout="constrained")
    panels = figure.subplots(len(tasks), 2, squeeze=False)
    for (left, right), task in zip(panels, tasks, strict=True):
        mine = [row for row in rows if row["task"] == task]
        for number, row in enumerate(mine):
            usual = OPTIMIZERS[row["optimizer"]][0]
            points = sorted((float(r) / usual, loss) for r, loss in row["trials"].items())
            shade = str(0.75 * number / max(len(mine) - 1, 1))
            left.plot(*zip(*points, strict=True), marker="osv^DPX<>"[number % 9], color=shade,
                      linewidth=1, markersize=4, label=row["optimizer"])  # fmt: skip
            right.scatter(row["losses"], [number] * len(row["losses"]), s=26, color=_MARK)
        left.set_xscale("log", base=2)
        left.set_title(f"{task}: validation loss of each trial", fontsize="small", loc="left")
        left.set_xlabel("learning rate / the usual one")
        low, high = left.get_ylim()
        left.set_ylim(top=high + 0.4 * (high - low))  # for the legend
        left.legend(frameon=False, fontsize="x-small", ncols=3, loc="upper center")
        right.set_yticks(range(len(mine)), [row["optimizer"] for row in mine])
        right.invert_yaxis()
        right.set_title("at the best rate, each seed", fontsize="small", loc="left")
        for panel in (left, right):
            panel.spines[["top", "right"]].set_visible(False)
            panel.grid(color=_GRID, linewidth=0.5)
    save(figure, path)


def main() -> None:
    """Train, measure speeds, or write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    stages = parser.add_subparsers(dest="stage", required=True)
    for name in ("train", "speed"):
        stage = stages.add_parser(name)
        stage.add_argument("task", choices=TASKS)
        stage.add_argument("--data", required=True)
    stages.choices["train"].add_argument("--workdir", type=Path, required=True)
    stage = stages.add_parser("table")
    stage.add_argument("directory", type=Path, metavar="DIR")
    stage.add_argument("--speed", type=Path, help="output of speed")
    stage.add_argument("--output", type=Path, required=True, help="without suffix")
    arguments = parser.parse_args()
    if arguments.stage == "train":
        train(arguments.task, arguments.workdir, arguments.data)
    elif arguments.stage == "speed":
        speed(arguments.task, arguments.data)
    else:
        result = arguments.output.with_suffix(".json")
        collected = list(collect(arguments.directory))
        rows = trials.with_earlier(collected, KEYS, result, "optimizers")
        lines = [] if arguments.speed is None else files.read_lines(arguments.speed)
        add_times(rows, [json.loads(line) for line in lines])
        text = json.dumps({"optimizers": rows}, indent=1) + "\n"
        write_text(result, text)
        draw(rows, arguments.output.with_suffix(".svg"))
        print(markdown(rows), end="")


if __name__ == "__main__":
    main()
