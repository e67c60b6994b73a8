"""Ten-fold cross-validation on labelled texts, comparing two ways of training.

    python benchmarks/studies/folds.py text --reviews=DIR --output=PLACE
    python benchmarks/studies/folds.py table SWEEP --output=results/movie_folds
    python benchmarks/studies/folds.py control PLACE --output=results/movie_control [--words=N]

`text` deals the texts of train.* and validation.* (.text, one text per line, and .label) into
folds, shuffled and stratified by class. In PLACE, fold-K/test.* hold fold K, fold-K/validation.* a
tenth of the others and fold-K/train.* the rest; .txt is a copy of .text. `table` reads what eval.py
wrote for SWEEP/ARM-K and pools the folds of each arm: accuracy, McNemar's exact test against the
second arm, and the difference with its 95 % interval. `control` does the same for naive Bayes on
single words, by presence or frequency (Pang et al. 2002,
https://doi.org/10.3115/1118693.1118704): the baseline that a model should beat. It reads the first
N words of each text, or all.
"""

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from transformer_jax.base.disk import write_text
from transformer_jax.config import EvaluationConfig
from transformer_jax.data.sources.files import read_lines, read_parallel
from transformer_jax.reports.compare import paired_tests
from transformer_jax.reports.systems import System, read_system
from transformer_jax.runs.workdir import WorkDir

Labelled = list[tuple[str, str]]


def deal(texts: Labelled, folds: int) -> list[Labelled]:
    """Return the texts in `folds` folds, whose counts of each class differ by at most one."""
    of_class = defaultdict(list)
    for text, label in texts:
        of_class[label].append((text, label))
    found: list[Labelled] = [[] for _ in range(folds)]
    chance, place = random.Random(0), 0
    for label in sorted(of_class):
        for item in chance.sample(of_class[label], len(of_class[label])):
            found[place % folds].append(item)
            place += 1
    return [chance.sample(fold, len(fold)) for fold in found]


def make_text(arguments: argparse.Namespace) -> None:
    """Write the files of all folds."""
    texts: Labelled = []
    for part in ("train", "validation"):
        files = (arguments.reviews / f"{part}.{ending}" for ending in ("text", "label"))
        texts += zip(*read_parallel(*files), strict=True)
    folds = deal(texts, arguments.folds)
    for number, test in enumerate(folds):
        others = [item for fold in folds if fold is not test for item in fold]
        validation, *learned = deal(others, 10)
        train = [item for fold in learned for item in fold]
        directory = arguments.output / f"fold-{number}"
        directory.mkdir(parents=True, exist_ok=True)
        for split, items in (("train", train), ("validation", validation), ("test", test)):
            written, labels = (
                "".join(f"{line}\n" for line in side) for side in zip(*items, strict=True)
            )
            for ending, text in (("text", written), ("txt", written), ("label", labels)):
                write_text(directory / f"{split}.{ending}", text)


def pool_folds(sweep: Path, arm: str, folds: int) -> tuple[System, list[str]]:
    """Return an arm's predictions on all test folds, as one system, and the labels."""
    said: list[str] = []
    right: list[str] = []
    for fold in range(folds):
        workdir = WorkDir(sweep / f"{arm}-{fold}")
        system = read_system(workdir, None, "test")
        data = workdir.experiment().data
        (part,) = data.test
        said += system.hypotheses or ()
        right += read_lines(Path(data.directory or ".") / f"{part}.{data.target_language}")
    return classifier(arm, said, right, system.evaluation), right


def make_table(arguments: argparse.Namespace) -> None:
    """Write the accuracy of both arms and the test of their difference."""
    arms = [pool_folds(arguments.sweep, arm, arguments.folds) for arm in arguments.arms]
    (_, right), *others = arms
    if any(other != right for _, other in others):
        raise SystemExit(f"{arguments.sweep}: the arms were tested on different texts")
    write_rows([system for system, _ in reversed(arms)], arguments.output)


def classifier(
    name: str, said: Sequence[str], right: Sequence[str], evaluation: EvaluationConfig
) -> System:
    """Return the system that made these predictions for texts with these labels."""
    rows = [{"hypothesis": x, "reference": y} for x, y in zip(said, right, strict=True)]
    return System(name, None, "", evaluation, kind="classify", rows=rows)


def write_rows(systems: Sequence[System], output: Path) -> None:
    """Write the accuracy of each system, and its test against the first."""
    rows = [
        {"arm": found.system, "texts": len(systems[0].rows), "accuracy": found.score,
         "half_interval": found.interval, **found.p_values, "difference": found.difference}
        for found in paired_tests(systems, None, ["accuracy"])
    ]  # fmt: skip
    text = json.dumps(rows, indent=1) + "\n"
    write_text(output.with_suffix(".json"), text)
    print(text, end="")


def naive_bayes(learned: Labelled, tested: Sequence[str], once: bool) -> list[str]:
    """Return the likeliest class of each text by multinomial naive Bayes on its words, by presence
    (`once`) or frequency, with add-one smoothing; unseen words are ignored.
    """
    bags = [Counter(set(words) if once else words) for words in map(_words, tested)]
    of_class = {label: Counter[str]() for label in sorted({label for _, label in learned})}
    for text, label in learned:
        of_class[label].update(set(_words(text)) if once else _words(text))
    place = {word: number for number, word in enumerate(sorted(set().union(*of_class.values())))}
    counts = np.array([[1 + words[word] for word in place] for words in of_class.values()])
    log_probs = np.log(counts / counts.sum(1, keepdims=True))
    texts = Counter(label for _, label in learned)
    prior = np.log([texts[label] / len(learned) for label in of_class])
    said = []
    for bag in bags:
        known = {place[word]: count for word, count in bag.items() if word in place}
        score = prior + log_probs[:, [*known]] @ np.array([*known.values()], float)
        said.append([*of_class][int(score.argmax())])
    return said


def _words(text: str) -> list[str]:
    return text.lower().split()


def make_control(arguments: argparse.Namespace) -> None:
    """Write the accuracy of naive Bayes, trained on the training texts, over all folds."""
    said: dict[str, list[str]] = {"presence": [], "counts": []}
    right: list[str] = []
    for fold in range(arguments.folds):
        learned, tested = (
            read_parallel(*(arguments.place / f"fold-{fold}" / f"{split}.{ending}"
                            for ending in ("text", "label")))
            for split in ("train", "test")
        )  # fmt: skip
        right += tested[1]
        texts, unseen = (
            [" ".join(text.split()[: arguments.words]) for text in part[0]]
            for part in (learned, tested)
        )
        pairs = list(zip(texts, learned[1], strict=True))
        for name, found in said.items():
            found += naive_bayes(pairs, unseen, once=name == "presence")
    systems = [
        classifier(f"naive Bayes, {name}", found, right, EvaluationConfig())
        for name, found in said.items()
    ]
    write_rows(systems, arguments.output)


def main() -> None:
    """Write the text, the table or the control."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    text = commands.add_parser("text")
    text.add_argument("--reviews", type=Path, required=True)
    text.add_argument("--output", type=Path, required=True)
    text.add_argument("--folds", type=int, default=10)
    text.set_defaults(run=make_text)
    table = commands.add_parser("table")
    table.add_argument("sweep", type=Path)
    table.add_argument("--arms", nargs=2, default=("tuned", "scratch"), metavar="ARM")
    table.add_argument("--folds", type=int, default=10)
    table.add_argument("--output", type=Path, required=True, help="without suffix")
    table.set_defaults(run=make_table)
    control = commands.add_parser("control")
    control.add_argument("place", type=Path)
    control.add_argument("--folds", type=int, default=10)
    control.add_argument("--words", type=int, help="words read of each text; default: all")
    control.add_argument("--output", type=Path, required=True, help="without suffix")
    control.set_defaults(run=make_control)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
