"""Compare the models of configs/predecessors.py: scores, cost, and BLEU by length.

    transformer-jax sweep --config=configs/predecessors.py --variants=all --workdir=DIR \
      --evaluate=test --config.data.directory=DATA
    python benchmarks/studies/predecessors.py DIR --output=results/predecessors

For each model that was trained and scored: parameters, processor time of its training, the
validation loss after its last update, BLEU on the test split with its 95 % interval, sacrebleu's
approximate randomisation test against "transformer", and, with --speed (on idle cores), the
throughput of `translate` on the test split on this machine, in sentences per second, the better of
two runs after one that compiles. OUTPUT.svg plots BLEU by source length in words, in groups of
about equal size. OUTPUT.json keeps its entries for models that are not in DIR.
"""

import argparse
import json
import time
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import tables

from transformer_jax.api import load
from transformer_jax.base.disk import write_text
from transformer_jax.base.errors import UserError
from transformer_jax.data import sources
from transformer_jax.data.sources.files import read_lines
from transformer_jax.evaluation.sentences import corpus_bleu
from transformer_jax.experiments.process import keep_freed_memory, use_every_core
from transformer_jax.plots.picture import save
from transformer_jax.reports import runs
from transformer_jax.reports.compare import paired_tests
from transformer_jax.reports.systems import read_system
from transformer_jax.runs.workdir import WorkDir, read_rows

CONFIG = Path(__file__).parents[2] / "configs/predecessors.py"
BASE = "transformer"
GROUPS = 5


def by_words(rows: list[dict[str, Any]], groups: int = GROUPS) -> list[dict[str, Any]]:
    """Return the BLEU of sentences grouped by source length in words, shortest first; sentences of
    one length are in one group.
    """
    words = np.array([len(row["source"].split()) for row in rows])
    edges = np.unique(np.quantile(words, np.arange(1, groups + 1) / groups, method="higher"))
    which = np.searchsorted(edges, words)
    return [
        {"words": int(edge), "sentences": int((which == group).sum()),
         "bleu": round(corpus_bleu([row["counts"] for row, own in zip(rows, which, strict=True)
                                    if own == group]).score, 2)}
        for group, edge in enumerate(edges)
    ]  # fmt: skip


def scores(workdir: WorkDir) -> Path:
    """Return the path of eval.py's sentence scores for the test split."""
    return workdir.eval / f"test.{workdir.experiment().evaluation.checkpoint}.jsonl"


def speed(workdir: WorkDir, lines: list[str]) -> float:
    """Return the sentences translated per second."""
    model = load(str(workdir.path))
    model.translate(lines)
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        model.translate(lines)
        seconds.append(time.perf_counter() - began)
    return round(len(lines) / min(seconds), 1)


def point(workdir: WorkDir, base: WorkDir, measure: bool) -> dict[str, Any]:
    """Return the results of one training run."""
    experiment = workdir.experiment()
    metrics = read_rows(workdir.metrics)
    losses = [row["validation_loss"] for row in metrics if "validation_loss" in row]
    corpus = sources.load(experiment.data, "test", experiment.objective)
    systems = [read_system(place, None, "test") for place in (base, workdir)]
    _, ours = paired_tests(systems, corpus.tgt, ["BLEU"], tests=("ar",))
    rows = [json.loads(line) for line in read_lines(scores(workdir))]
    minutes = sum(row["processor_seconds"] for row in read_rows(workdir.timings)) / 60
    found = {
        "seed": experiment.seed, "updates": experiment.training.steps,
        "parameters": runs.facts(runs.read(workdir))["parameters"], "minutes": round(minutes, 1),
        "loss": losses[-1], "bleu": ours.score, "bleu_interval": ours.interval,
        "by_words": by_words(rows),
    }  # fmt: skip
    found |= {} if workdir is base else {"p": ours.p_values["ar"]}
    return found | ({"sentences_per_s": speed(workdir, list(corpus.src))} if measure else {})


def markdown(rows: dict[str, dict[str, Any]]) -> str:
    """Return the table in Markdown."""
    titles = ("model", "parameters", "minutes of one core", "updates", "loss", "BLEU", "p",
              "sentences/s")  # fmt: skip
    lines = []
    for name, row in rows.items():
        cells = [(row["parameters"], ",.0f"), (row["minutes"], ".0f"), (row["updates"], ",.0f"),
                 (row["loss"], ".3f"), (row["bleu"], ".2f"), (row.get("p"), ".4f"),
                 (row.get("sentences_per_s"), ".0f")]  # fmt: skip
        shown = ["" if value is None else format(value, form) for value, form in cells]
        lines.append([name, *shown])
    return tables.markdown(titles, lines)


def draw(rows: dict[str, dict[str, Any]], path: Path) -> None:
    """Plot BLEU by length, one line per model."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4), layout="constrained")
    panel = figure.subplots()
    for number, (name, row) in enumerate(rows.items()):
        line = "o-" if number < 10 else "o--"  # there are ten colours
        groups = row["by_words"]
        panel.plot(
            [str(group["words"]) for group in groups], [group["bleu"] for group in groups],
            line, markersize=4, color=f"C{number % 10}", label=name,
        )  # fmt: skip
    panel.set_xlabel("words of the source, up to")
    panel.set_ylabel("BLEU")
    panel.set_ylim(0)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    save(figure, path)


def main() -> None:
    """Write the figures and the plot, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sweep", type=Path, metavar="DIR")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--output", type=Path, required=True, help="without suffix")
    arguments = parser.parse_args()
    use_every_core()
    keep_freed_memory()
    target = arguments.output.with_suffix(".json")
    before = json.loads(target.read_text()) if target.exists() else {}
    base, rows = WorkDir(arguments.sweep / BASE), {}
    for name in run_path(str(CONFIG))["MODELS"]:
        workdir = base if name == BASE else WorkDir(arguments.sweep / name)
        if workdir.config.exists() and scores(workdir).exists():
            rows[name] = before.get(name, {}) | point(workdir, base, arguments.speed)
        elif name in before:
            rows[name] = before[name]
    if BASE not in rows:
        raise UserError(f"{arguments.sweep}: no scored run of {BASE!r}")
    write_text(target, json.dumps(rows, indent=1) + "\n")
    draw(rows, arguments.output.with_suffix(".svg"))
    print(markdown(rows), end="")


if __name__ == "__main__":
    main()
