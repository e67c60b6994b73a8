"""ListOps accuracy of mixers, overall and by depth, against three guessing baselines.

    transformer-jax sweep --config=configs/listops.py --variants=all --workdir=DIR --evaluate=test
    python benchmarks/studies/listops.py DIR --output=results/listops

A sweep with --config.seed=1 goes to another DIR, which may be given too, as models after
self-pre-training or without dropout may be in DIR/pretrained-NAME and DIR/no_dropout-NAME. Writes
OUTPUT.json, OUTPUT.svg and, to standard output, the table in Markdown. Other mixers and seeds
already in OUTPUT.json are kept. The depth of a text is that of the deepest list on whose value its
own depends: a 9 after MAX makes all lists beside it irrelevant. The baselines, none of which learns
nesting: the most common class of the training texts; the most common one for the first operator;
and that operator applied to the digits of its own list only.
"""

import argparse
import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from runpy import run_path
from typing import Any, NamedTuple

import tables

from transformer_jax.base.disk import write_text
from transformer_jax.base.errors import UserError
from transformer_jax.config import Experiment
from transformer_jax.data import sources
from transformer_jax.data.sources.listops import END, OPERATORS
from transformer_jax.plots.picture import save
from transformer_jax.reports import runs
from transformer_jax.reports.systems import read_system
from transformer_jax.runs.workdir import WorkDir, read_rows

CONFIG = Path(__file__).parents[2] / "configs/listops.py"
COMMONEST, FIRST, DIGITS = "commonest class", "first operator", "first operator, its own digits"
GUESSES = {COMMONEST: ":", FIRST: "-.", DIGITS: "--"}  # and their line styles


class Nested(NamedTuple):
    """A list: its operator and arguments, digits or lists."""

    operator: str
    arguments: "list[int | Nested]"

    @classmethod
    def of(cls, text: str) -> "Nested":
        """Return the list parsed from a text."""
        root = cls("", [])
        inside = [root]
        for symbol in text.split():
            if symbol == END:
                inside.pop()
                continue
            argument = cls(symbol, []) if symbol in OPERATORS else int(symbol)
            inside[-1].arguments.append(argument)
            if isinstance(argument, Nested):
                inside.append(argument)
        (found,) = root.arguments
        assert isinstance(found, Nested)
        return found

    @property
    def values(self) -> list[int]:
        """The values of the arguments."""
        return [x.value if isinstance(x, Nested) else x for x in self.arguments]

    @property
    def value(self) -> int:
        """The value of the list."""
        return OPERATORS[self.operator](self.values)

    def levels(self, whole: Sequence[int] = range(10)) -> int:
        """Return the depth of the deepest list, among this one and those in it, whose value affects
        the value of the whole.

        `whole` is the value of the whole for each value that this list could have.
        """
        if len(set(whole)) == 1:
            return 0
        values, deepest = self.values, 0
        for place, argument in enumerate(self.arguments):
            if isinstance(argument, Nested):
                others = (values[:place], values[place + 1 :])
                ours = (OPERATORS[self.operator]([*others[0], x, *others[1]]) for x in range(10))
                deepest = max(deepest, argument.levels([whole[value] for value in ours]))
        return 1 + deepest


def guesses(train: sources.Corpus, texts: Sequence[str]) -> dict[str, list[str]]:
    """Return the answers of each guessing baseline."""
    behind: dict[str, Counter] = defaultdict(Counter)
    for text, value in zip(train.src, train.tgt, strict=True):
        behind[text.split()[0]][value] += 1
    commonest = Counter(train.tgt).most_common(1)[0][0]
    found: dict[str, list[str]] = {COMMONEST: [], FIRST: [], DIGITS: []}
    for text in texts:
        root = Nested.of(text)
        first = behind[root.operator].most_common(1)[0][0]
        own = [x for x in root.arguments if isinstance(x, int)]
        found[COMMONEST].append(commonest)
        found[FIRST].append(first)
        found[DIGITS].append(str(OPERATORS[root.operator](own)) if own else first)
    return found


def by_depth(texts: Sequence[str], right: Sequence[bool]) -> list[dict[str, Any]]:
    """Return the accuracy in percent at each depth."""
    groups: dict[int, list[bool]] = defaultdict(list)
    for text, good in zip(texts, right, strict=True):
        groups[Nested.of(text).levels()].append(good)
    return [
        {"depth": depth, "texts": len(group), "accuracy": round(100 * statistics.fmean(group), 2)}
        for depth, group in sorted(groups.items())
    ]


def scored(corpus: sources.Corpus, said: Sequence[str]) -> dict[str, Any]:
    """Return the accuracy of the answers in percent, overall and by depth."""
    right = [one == other for one, other in zip(said, corpus.tgt, strict=True)]
    accuracy = round(100 * statistics.fmean(right), 2)
    return {"accuracy": accuracy, "by_depth": by_depth(corpus.src, right)}


def point(workdir: WorkDir, corpus: sources.Corpus) -> dict[str, Any]:
    """Return the results of one run, and the processor time of its training."""
    experiment = workdir.experiment()
    minutes = sum(row["processor_seconds"] for row in read_rows(workdir.timings)) / 60
    found = {
        "seed": experiment.seed,
        "updates": experiment.training.steps,
        "parameters": runs.facts(runs.read(workdir))["parameters"],
        "minutes": round(minutes, 1),
    }
    return found | scored(corpus, read_system(workdir, None, "test").hypotheses)


def corpora(experiment: Experiment) -> tuple[sources.Corpus, sources.Corpus]:
    """Return the training and test sets."""
    data, objective = experiment.data, experiment.objective
    return sources.load(data, "train", objective), sources.load(data, "test", objective)


def draw(rows: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Plot accuracy by depth, averaged over seeds; guessing baselines in grey."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    panel = figure.subplots()
    trained = 0
    for name, points in rows.items():
        depths = [group["depth"] for group in points[0]["by_depth"]]
        means = [
            statistics.fmean(one["by_depth"][place]["accuracy"] for one in points)
            for place in range(len(depths))
        ]
        if "seed" in points[0]:
            line = ("o-", "o--", "o:")[trained // 10 % 3]  # there are ten colours
            panel.plot(depths, means, line, markersize=4, color=f"C{trained % 10}", label=name)
            trained += 1
        else:
            panel.plot(depths, means, GUESSES[name], color="0.6", label=name)
        panel.set_xticks(depths)
    panel.set_xlabel("depth of the deepest list that matters")
    panel.set_ylabel("accuracy, %")
    panel.set_ylim(0, 100)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5))
    save(figure, path)


def markdown(rows: dict[str, list[dict[str, Any]]]) -> str:
    """Return the table in Markdown."""
    depths = [group["depth"] for group in next(iter(rows.values()))[0]["by_depth"]]
    by_depth = [f"depth {depth}" for depth in depths]
    lines = []
    for name, points in rows.items():
        groups = zip(*(one["by_depth"] for one in points), strict=True)
        lines.append([
            name, f"{points[0]['parameters']:,}" if "parameters" in points[0] else "",
            ", ".join(f"{one['accuracy']:.1f}" for one in points),
            *[f"{statistics.fmean(one['accuracy'] for one in group):.0f}" for group in groups],
            ", ".join(f"{one['minutes']:.0f}" for one in points if "minutes" in one),
        ])  # fmt: skip
    return tables.markdown(["mixer", "parameters", "accuracy", *by_depth, "minutes"], lines)


def main() -> None:
    """Write the figures and the plot, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("places", nargs="+", type=Path, metavar="DIR", help="one per seed")
    parser.add_argument("--output", type=Path, required=True, help="without suffix")
    arguments = parser.parse_args()
    mixers = run_path(str(CONFIG))["MIXERS"]
    mixers = [*mixers, *(f"no_dropout-{name}" for name in mixers)]
    mixers = [*mixers, *(f"pretrained-{name}" for name in mixers)]
    found = [WorkDir(place / mixer) for place in arguments.places for mixer in mixers]
    found = [workdir for workdir in found if (workdir.eval / "test.best.jsonl").exists()]
    if not found:
        raise UserError(f"{arguments.places[0]}: no mixer has a scored test split there")
    data = found[0].experiment().data
    if any(workdir.experiment().data != data for workdir in found):
        raise UserError(f"{arguments.places[0]}: the mixers were trained on different data")
    train, test = corpora(found[0].experiment())
    target = arguments.output.with_suffix(".json")
    before = json.loads(target.read_text()) if target.exists() else {}
    rows = {name: [scored(test, said)] for name, said in guesses(train, test.src).items()}
    for mixer in mixers:
        new = [point(workdir, test) for workdir in found if workdir.path.name == mixer]
        by_seed = {one["seed"]: one for one in [*before.get(mixer, []), *new]}
        if by_seed:
            rows[mixer] = [by_seed[seed] for seed in sorted(by_seed)]
    write_text(target, json.dumps(rows, indent=1) + "\n")
    draw(rows, arguments.output.with_suffix(".svg"))
    print(markdown(rows), end="")


if __name__ == "__main__":
    main()
