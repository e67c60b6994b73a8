"""transformer-jax sweep --config=configs/NAME.py --grid FIELD=VALUES ... --workdir=DIR"""

import argparse
import fnmatch
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import Parser, load_config, load_variants
from transformer_jax.config import Experiment
from transformer_jax.config.convert import parse
from transformer_jax.plots.picture import check_suffix
from transformer_jax.plots.sweep import draw_rows
from transformer_jax.sweeps.grid import draw, grid, read_axis
from transformer_jax.sweeps.points import Point, make_points

_HELP = """\
Train every combination of the values of some fields, each in its own work directory below
--workdir, and tabulate the results. Run the same command again to resume.

  --grid model.d_ff=256,512 --grid seed=1,2,3     every combination; mean and spread over seeds
  --grid 'optimizer.learning_rate=geomspace(1e-4,1e-2,5)'          5 geometrically spaced values
  --random 20 --grid 'optimizer.learning_rate=loguniform(1e-4,1e-2)' \\
    --grid 'model.dropout_rate=uniform(0,0.3)' --grid model.d_ff=256,512   20 random points
  --halve 3 --random 27 --grid ...                all points train for a 27th of their updates,
    the best third of them goes on to three times as many, and so on
  --config=configs/table3.py --variants=all       every variant that the file lists

Other --config.FIELD=VALUE apply to all points. With --jobs=N, the GPUs in CUDA_VISIBLE_DEVICES are
shared among the jobs."""


def main(argv: Sequence[str]) -> int:
    """Run a sweep or show its points or table, and return the exit code."""
    parser = _parser()
    arguments, overrides = parser.read(argv)
    directory = Path(arguments.workdir).absolute()
    if arguments.config is None:
        return _table_of(directory, arguments, overrides)
    published = load_variants(arguments.config)
    points = _points(arguments, overrides, directory, list(published))
    if arguments.halve is not None:
        from transformer_jax.sweeps import halving

        halving.check(points, arguments.halve)
        if arguments.print_commands or arguments.dry_run:
            raise UserError(f"--halve={arguments.halve}: which points go on shows as they train; "
                            "leave out --dry-run and --print-commands")  # fmt: skip
    if arguments.print_commands:
        for point in points:
            programs = [point.train_command()]
            if arguments.evaluate:
                programs.append(point.evaluate_command(arguments.evaluate))
            print(" && ".join(map(shlex.join, programs)))
        return 0
    if arguments.dry_run:
        return _dry_run(points, directory)

    from transformer_jax.cli.sweep_progress import progress
    from transformer_jax.sweeps import halving, sweep, table

    _create(directory)
    code, said = 0, []
    if not arguments.table:
        factor = arguments.halve
        further = 0 if factor is None else halving.further(len(points), factor)
        with progress(points, directory, arguments.evaluate, further) as watcher:
            common = directory, arguments.jobs
            if factor is None:
                code = sweep.run(points, *common, arguments.evaluate, watcher)
            else:
                code, account = halving.run(points, *common, factor, arguments.evaluate, watcher)
                said = [*account.lines(len(points))]
    rows = table.tabulate(points, directory, arguments.evaluate, published)
    plot = arguments.plot if code != sweep.INTERRUPTED else None
    _show(rows, directory, arguments.evaluate, plot)
    for line in said:
        print(line)
    return code


def _table_of(directory: Path, arguments: argparse.Namespace, overrides: Sequence) -> int:
    """Tabulate the points in a sweep's directory."""
    if not arguments.table or overrides or arguments.grid or arguments.variants:
        raise UserError("--config: missing; only --table, by itself, works without; see --help")
    if arguments.plot is not None:
        check_suffix(arguments.plot, "--plot")

    from transformer_jax.reports import sweep_rows
    from transformer_jax.reports.evaluations import scored_split

    if not sweep_rows.is_sweep(directory):
        raise UserError(f"--workdir={directory}: holds no work directories of a sweep")
    points = sweep_rows.points(directory)
    split = arguments.evaluate or scored_split([point.workdir for point in points])
    _show(sweep_rows.tabulated(directory, split), directory, split, arguments.plot)
    return 0


def _show(rows: Sequence[Any], directory: Path, split: str | None, plot: Path | None) -> None:
    from transformer_jax.reports import sweep_rows
    from transformer_jax.sweeps import table

    sweep_rows.compare(rows, split)
    table.write(rows, directory)
    print(table.as_text(rows), end="")
    if plot is not None:
        draw_rows(rows, plot)


def _create(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--workdir={directory}: cannot be created ({error.strerror})") from None


def _parser() -> Parser:
    parser = Parser(_HELP)
    add = parser.add_argument
    add("--config", help="configs/NAME.py or configs/NAME.py:VARIANT; not needed with --table")
    add("--workdir", required=True, help="the sweep's directory; each point has its own in it")
    add("--grid", action="append", default=[], metavar="FIELD=VALUES", help="one axis")
    add("--variants", metavar="A,B", help="variants of the config file, C-* or all")
    add("--random", type=int, metavar="N", help="N random points instead of all combinations")
    add("--random-seed", type=int, default=0, metavar="S", help="of the random points; default: 0")
    add(
        "--halve", type=int, metavar="N", help="stop all but the best of N points, in several steps"
    )
    add("--jobs", type=int, default=1, metavar="N", help="points trained at a time; default: 1")
    add("--evaluate", metavar="SPLIT", choices=("train", "validation", "test"),
        help="score each point's default checkpoint on this split, as eval.py does")  # fmt: skip
    add("--plot", type=Path, metavar="FILE", help="draw the table: .svg, .pdf or .png")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--dry-run", action="store_true", help="list the points and their cost")
    only.add_argument(
        "--print-commands", action="store_true", help="print a command for each point, run nothing"
    )
    only.add_argument("--table", action="store_true", help="tabulate existing results, run nothing")
    return parser


def _points(arguments, overrides, directory: Path, known: list[str]) -> list[Point]:
    for name, least in (("jobs", 1), ("random", 1), ("random-seed", 0)):
        value = getattr(arguments, name.replace("-", "_"))
        if value is not None and value < least:
            raise UserError(f"--{name}={value}: must be at least {least}")
    if arguments.plot is not None:
        check_suffix(arguments.plot, "--plot")
    if (directory / "config.json").exists():
        raise UserError(f"--workdir={directory}: holds a run; name another directory for the sweep")
    axes = [read_axis(text) for text in arguments.grid]
    if not axes and arguments.variants is None:
        raise UserError("nothing to sweep over; give --grid FIELD=VALUES or --variants=A,B")
    drawn = arguments.random
    settings = grid(axes) if drawn is None else draw(axes, drawn, arguments.random_seed)
    return make_points(
        arguments.config,
        _variants(arguments.variants, known),
        overrides,
        settings,
        directory,
        _load,
    )


def _variants(asked: str | None, known: list[str]) -> list[str]:
    if asked is None:
        return [""]
    chosen = []
    for name in asked.split(","):
        pattern = "*" if name == "all" else name
        matching = fnmatch.filter(known, pattern) if "*" in pattern else [name]
        if not matching:
            names = f"VARIANTS like that: {', '.join(known)}" if known else "VARIANTS"
            raise UserError(f"--variants={name}: the config file names no {names}; list yours")
        chosen += matching
    return list(dict.fromkeys(chosen))


def _load(config: str, overrides: Sequence[tuple[str, str]]) -> Experiment:
    return parse(load_config(config, overrides))


def _dry_run(points: Sequence[Point], directory: Path) -> int:
    from transformer_jax.sweeps import estimate, table
    from transformer_jax.sweeps.state import state_of
    from transformer_jax.sweeps.sweep import Record

    record = Record(directory)
    width = max(len(point.name) for point in points)
    estimates = estimate.minutes(points, directory)
    for point, minutes in zip(points, estimates, strict=True):
        state = state_of(point, record, None) or "finished"
        cost = f"{table.parameters(point):>13,} parameters  about {minutes:7.1f} minutes"
        print(f"{point.name:<{width}}  {cost}  {state}")
    print(f"{len(points)} points, about {sum(estimates):.0f} minutes of training in sequence")
    return 0
