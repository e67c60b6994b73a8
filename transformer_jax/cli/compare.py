"""transformer-jax compare RUN[@CHECKPOINT] RUN[@CHECKPOINT] ... [--split=test]"""

import json
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from transformer_jax.cli.arguments import Parser
from transformer_jax.data import files, sources
from transformer_jax.errors import UserError
from transformer_jax.evaluation.metrics import METRICS
from transformer_jax.reports.compare import (
    TESTS,
    TITLES,
    Result,
    System,
    check,
    differences,
    paired_tests,
    read_system,
    testable,
)
from transformer_jax.reports.evaluations import decoding_differences
from transformer_jax.reports.mcnemar import accuracy_tests
from transformer_jax.sweeps.scores import spelled
from transformer_jax.workdir import WorkDir


def main(argv: Sequence[str]) -> int:
    """Test whether runs differ, show where, and return the exit code."""
    parser = Parser(
        "Test whether runs translate a split differently well, the first against each other one,\n"
        "from what eval.py wrote in each --workdir. The tests are sacrebleu's. Of classifiers,\n"
        "test whether one is right more often."
    )
    add = parser.add_argument
    add("run", nargs="+", metavar="RUN[@CHECKPOINT]",
        help="work directories, the baseline first; checkpoint: best, last, a step or average:N, "
        "default: the config's; with settings of eval.py, best,decoding.alpha=0.6")  # fmt: skip
    add("--split", default="test", help="train, validation, test (default), or a file's name")
    add("--reference", type=Path, help="the references; default: the split's own")
    add("--metric", metavar="A,B", help=f"of {', '.join(METRICS)}; default: those of eval.py")
    add("--test", choices=tuple(TESTS), help="bs or ar alone; default: both")
    add("--samples", type=int, default=0, metavar="N", help="default: bs 1000, ar 10000")
    add("--show", type=int, default=3, metavar="N", help="largest gains and losses shown")
    add("--json", action="store_true", help="print the tests as JSON")
    arguments = parser.parse_args(list(argv))
    if len(arguments.run) < 2:
        raise UserError(f"{arguments.run[0]}: compared with what? name two work directories")
    places = [place_of(text) for text in arguments.run]
    systems = [read_system(*place, arguments.split) for place in places]
    references = _references(places[0][0], arguments.split, arguments.reference)
    check(systems, references)
    if systems[0].classifies:
        for name in ("metric", "test", "samples"):
            if getattr(arguments, name):
                raise UserError(
                    f"--{name}: classifiers are compared by accuracy and McNemar's exact test; "
                    "leave it out"
                )
        metrics, results = ["accuracy"], accuracy_tests(systems, references)
    else:
        metrics = arguments.metric.split(",") if arguments.metric else testable(systems[0])
        tests = (arguments.test,) if arguments.test else tuple(TESTS)
        results = paired_tests(systems, references, metrics, tests, arguments.samples)
    differing = decoding_differences([system.decoding for system in systems])
    if arguments.json:
        search = {
            system.name: {path: values[i] for path, values in differing.items()}
            for i, system in enumerate(systems)
        }
        rows = [{**result._asdict(), "differs_in": search[result.system]} for result in results]
        print(json.dumps(rows, indent=2))
        return 0
    if differing:
        listed = "; ".join(f"{path} {', '.join(values)}" for path, values in differing.items())
        print(f"What differs between them: {listed}")
    for result in results:
        _print_result(result)
    for other in systems[1:]:
        _print_sentences(systems[0], other, references, metrics[0], arguments.show)
    return 0


def place_of(text: str) -> tuple[WorkDir, str | None]:
    """Read RUN or RUN@CHECKPOINT."""
    path, at, checkpoint = text.rpartition("@")
    if not at:
        return WorkDir(text), None
    return WorkDir(path), spelled(checkpoint, WorkDir(path).experiment())


def _references(run: WorkDir, split: str, file: Path | None) -> list[str]:
    if file is not None:
        return files.read_lines(file)
    if split not in typing.get_args(sources.Split):
        raise UserError(f"--split={split}: is no split; name its --reference too")
    return list(sources.load(run.experiment().data, cast(sources.Split, split)).tgt)


def _print_result(result: Result) -> None:
    line = f"{result.metric:<5} {result.score:6.2f} ± {result.interval:.2f}  {result.system}"
    for test, p in result.p_values.items():
        line += f"  {TITLES[test]} p = {p:.4f}"
    if result.difference is not None:
        line += "  difference {:+.2f}, 95 % interval {:+.2f} to {:+.2f}".format(*result.difference)
    if result.p_values:
        line += "  different" if result.different else "  no difference shown"
    print(line)


def _print_sentences(
    one: System, other: System, references: Sequence[str], metric: str, count: int
) -> None:
    rows = differences(one, other, references, metric)
    wins = sum(row.gain > 0 for row in rows)
    losses = sum(row.gain < 0 for row in rows)
    print(f"\n{other.name} against {one.name}, sentence {metric}: "
          f"{wins} better, {losses} worse, {len(rows) - wins - losses} the same")  # fmt: skip
    shown = [row for row in rows[:count] if row.gain > 0]
    shown += [row for row in rows[len(rows) - count :] if row.gain < 0]
    for row in shown:
        print(f"\nline {row.line}  {row.gain:+.1f}")
        for label, text in (("reference", row.reference), ("first", row.one), ("other", row.other)):
            print(f"  {label:<9}  {text}")
