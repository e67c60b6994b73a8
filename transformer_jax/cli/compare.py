"""transformer-jax compare RUN[@CHECKPOINT] RUN[@CHECKPOINT] ... [--split=test]"""

import argparse
import json
import math
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import Parser
from transformer_jax.data import sources
from transformer_jax.data.sources import files
from transformer_jax.reports.compare import (
    TITLES,
    Result,
    differences,
    paired_tests,
    shown_p,
    testable,
)
from transformer_jax.reports.evaluations import decoding_differences
from transformer_jax.reports.paired import TESTS
from transformer_jax.reports.systems import System, check, read_system
from transformer_jax.reports.units import units
from transformer_jax.runs.workdir import WorkDir, run_and_checkpoint
from transformer_jax.sweeps.scores import spelled


def main(argv: Sequence[str]) -> int:
    """Test whether runs differ, show where, and return the exit code."""
    parser = Parser(
        "Test whether the scores of runs on a split differ, the first against each other, from\n"
        "what eval.py wrote in each --workdir: with McNemar's exact test where a text is right or\n"
        "wrong, else with the paired bootstrap and approximate randomisation, as sacrebleu does."
    )
    add = parser.add_argument
    add("run", nargs="+", metavar="RUN[@CHECKPOINT]",
        help="work directories, the baseline first; checkpoint: best, last, a step or average:N, "
        "default: the config's; with settings of eval.py, best,decoding.alpha=0.6")  # fmt: skip
    add("--split", default="test", help="train, validation, test (default), or a file's name")
    add("--reference", type=Path, help="the references; default: the split's own")
    add("--metric", metavar="A,B", help="BLEU, accuracy ...; default: those of eval.py")
    add("--test", choices=tuple(TESTS), help="only bs or only ar; default: both")
    add("--samples", type=int, default=0, metavar="N", help="default: bs 1000, ar 10000")
    add("--show", type=int, default=3, metavar="N", help="largest gains and losses to show")
    add("--json", action="store_true", help="print the tests as JSON")
    arguments = parser.parse_args(list(argv))
    for name in ("samples", "show"):
        if getattr(arguments, name) < 0:
            raise UserError(f"--{name}={getattr(arguments, name)}: must be at least 0")
    if len(arguments.run) < 2:
        raise UserError(f"{arguments.run[0]}: compared with what? name two work directories")
    places = [place_of(text) for text in arguments.run]
    systems = [read_system(*place, arguments.split) for place in places]
    references = None
    if systems[0].translates:
        references = _references(arguments.run[0], arguments.split, arguments.reference)
    elif arguments.reference is not None:
        raise UserError("--reference: eval.py stores the references of such models; leave it out")
    check(systems, references)
    metrics = arguments.metric.split(",") if arguments.metric else testable(systems[0])
    tests = (arguments.test,) if arguments.test else tuple(TESTS)
    _check_drawn(systems[0], metrics, arguments)
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
        print(f"Differing settings: {listed}")
    for result in results:
        _print_result(result)
    for other in systems[1:] if systems[0].hypotheses is not None else ():
        _print_sentences(systems[0], other, references, metrics[0], arguments.show)
    return 0


def _check_drawn(system: System, metrics: Sequence[str], arguments: argparse.Namespace) -> None:
    """Refuse settings of resampling where nothing is resampled."""
    known = units(system.kind, system.evaluation)
    if all(name in known and known[name].right_or_wrong for name in metrics):
        for name in ("test", "samples"):
            if getattr(arguments, name):
                raise UserError(
                    f"--{name}: {', '.join(metrics)}: compared by McNemar's exact test, which "
                    "draws nothing; leave it out"
                )


def place_of(text: str) -> tuple[WorkDir, str | None]:
    """Read RUN or RUN@CHECKPOINT."""
    workdir, checkpoint = _parts(text)
    if checkpoint is None:
        return workdir, None
    return workdir, spelled(checkpoint, workdir.experiment())[0]


def _parts(text: str) -> tuple[WorkDir, str | None]:
    path, checkpoint = run_and_checkpoint(text)
    return WorkDir(path), checkpoint


def _references(run: str, split: str, file: Path | None) -> list[str]:
    if file is not None:
        return files.read_lines(file)
    if split not in typing.get_args(sources.Split):
        raise UserError(f"--split={split}: is not a split; give --reference too")
    workdir, checkpoint = _parts(run)
    experiment = workdir.experiment()
    if checkpoint is not None:
        _, experiment = spelled(checkpoint, experiment)
    return list(sources.load(experiment.data, cast(sources.Split, split)).tgt)


def _print_result(result: Result) -> None:
    form = ".2f" if abs(result.score) >= 10 else ".4f"  # percentages, and other scores
    line = f"{result.metric:<5} {result.score:6{form}} ± {result.interval:{form}}  {result.system}"
    for test, p in result.p_values.items():
        line += f"  {TITLES[test]} {shown_p(p)}"
    if result.difference is not None:
        seen, low, high = (f"{x:+{form}}" for x in result.difference)
        line += f"  difference {seen}, 95 % interval {low} to {high}"
    if result.p_values:
        line += "  different" if result.different else "  no difference shown"
    print(line)


def _print_sentences(
    one: System, other: System, references: Sequence[str] | None, metric: str, count: int
) -> None:
    rows = differences(one, other, references, metric)
    if any(math.isnan(row.gain) for row in rows):
        return  # a correlation needs several
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
