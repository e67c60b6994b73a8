"""transformer-jax plot PICTURE --output=FILE ..."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import CHECKPOINTS, Main, Parser, run_command
from transformer_jax.config.metrics import in_nats
from transformer_jax.config.registry import pick
from transformer_jax.plots.curves import ACROSS, TITLES
from transformer_jax.plots.picture import check_suffix, save
from transformer_jax.runs.workdir import WorkDir, read_rows


def attention(argv: Sequence[str]) -> int:
    """Draw the cross-attention of a translation, and return the exit code."""
    parser = Parser("Draw which source pieces each piece of a translation attends to.")
    add = parser.add_argument
    add("--workdir", required=True)
    add("--checkpoint", help="best, last, a step or average:N; default: the config's")
    add("--source", required=True, metavar="TEXT", help="a sentence")
    add("--target", metavar="TEXT", help="default: its best translation")
    add("--layer", type=int, default=-1, help="from 0; default: the last")
    add("--head", type=int, help="from 0; default: the mean of all")
    arguments = _read(parser, argv)
    experiment = WorkDir(arguments.workdir).experiment()

    from transformer_jax.api import load
    from transformer_jax.experiments.process import use_compilation_cache
    from transformer_jax.plots.attention import draw

    use_compilation_cache()
    trained = load(arguments.workdir, arguments.checkpoint or experiment.evaluation.checkpoint)
    weights = trained.attention(arguments.source, arguments.target)
    draw(weights, arguments.output, arguments.layer, arguments.head)
    return _written(arguments.output)


def curves(argv: Sequence[str]) -> int:
    """Draw the curves of runs, and return the exit code."""
    parser = Parser("Draw training curves of each --workdir, also fit for black-and-white print.")
    add = parser.add_argument
    add("run", nargs="+", help="work directories")
    add("--measures", metavar="A,B",
        help=f"of {', '.join(TITLES)}; default: the loss and the validation scores")  # fmt: skip
    add("--across", choices=tuple(ACROSS), default="step", help="default: step")
    add("--log", action="store_true", help="logarithmic vertical axis")
    arguments = _read(parser, argv)
    measures = arguments.measures.split(",") if arguments.measures else None
    for measure in measures or ():
        pick(TITLES, measure, "--measures")

    from transformer_jax.plots.curves import draw
    from transformer_jax.reports import report, runs
    from transformer_jax.reports.curves import curves as curves_of

    selected = report.named([runs.read(WorkDir(path)) for path in arguments.run])
    of_runs = {run.name: curves_of(run.metrics, run.timings) for run in selected}
    known = {
        measure
        for run in of_runs.values() for group in run.values() for measure, column in group.items()
        if any(value is not None for value in column)
    }  # fmt: skip
    for measure in measures or ():
        if measure not in known:
            raise UserError(f"--measures={measure}: no run has it yet; leave it out")
    if measures is None:
        shown = [name for name in TITLES if name == "loss" or name.startswith("validation_")]
        measures = [name for name in shown if name in known]
    nats = all(in_nats(run.experiment.objective.kind) for run in selected)
    draw(of_runs, arguments.output, measures, arguments.across, arguments.log, nats)
    return _written(arguments.output)


def forecast(argv: Sequence[str]) -> int:
    """Draw a forecast and the actual values, and return the exit code."""
    parser = Parser("Draw a forecast for a split of a time series, and the actual values.")
    add = parser.add_argument
    add("--workdir", required=True)
    add("--checkpoint", help=CHECKPOINTS)
    add("--split", default="test", choices=("train", "validation", "test"))
    add("--window", type=int, default=0, metavar="N", help="index in the split, from 0; default: 0")
    arguments = _read(parser, argv)
    experiment = WorkDir(arguments.workdir).experiment()
    objective = experiment.objective
    if not objective.record.forecasts:
        raise UserError(f"config.objective.name={objective.name!r}: such a model forecasts nothing")

    from transformer_jax.api import load
    from transformer_jax.data import sources
    from transformer_jax.plots.forecast import draw

    rows: Any = sources.load(experiment.data, arguments.split, objective).tgt[0]
    count = len(rows) - objective.window - objective.horizon + 1
    if not 0 <= arguments.window < count:
        raise UserError(f"--window={arguments.window}: the split has {count}, from 0 on")
    first = arguments.window
    shown = rows.between(first, first + objective.window + objective.horizon)
    trained = load(arguments.workdir, arguments.checkpoint)
    several = experiment.model.distribution != "point"
    forecasts = trained.forecast(shown[: objective.window], deciles=several)
    point, deciles = forecasts if several else (forecasts, None)
    last = min(objective.window, 2 * objective.horizon)
    figure = draw(shown, point, deciles, last, shown.columns, shown.dates)
    save(figure, arguments.output)
    return _written(arguments.output)


def returns(argv: Sequence[str]) -> int:
    """Draw achieved returns against those asked for, and return the exit code."""
    parser = Parser(
        "Draw the returns that an agent achieved against those that it was asked for, of episodes\n"
        "that eval.py has played."
    )
    add = parser.add_argument
    add("--workdir", required=True)
    add("--checkpoint", help="as it was given to eval.py; default: the config's")
    add("--split", default="test", choices=("train", "validation", "test"))
    arguments = _read(parser, argv)
    workdir = WorkDir(arguments.workdir)
    experiment = workdir.experiment()
    if not experiment.objective.record.acts:
        name = experiment.objective.name
        raise UserError(f"config.objective.name={name!r}: such a model is asked for no return")
    checkpoint = arguments.checkpoint or experiment.evaluation.checkpoint
    path = workdir.eval / f"{arguments.split}.{checkpoint.replace(':', '-')}.jsonl"
    rows = [row for row in read_rows(path, "line") if not row["for_best"]]
    if not rows:
        raise UserError(
            f"{path}: has no episodes for returns asked for; run eval.py, with --split="
            f"{arguments.split}"
        )

    import numpy as np

    from transformer_jax.plots.returns import draw

    asked, achieved = (np.array([row[key] for row in rows]) for key in ("asked", "return"))
    save(draw(asked, achieved, rows[0].get("optimum")), arguments.output)
    return _written(arguments.output)


def sweep(argv: Sequence[str]) -> int:
    """Draw the scores of a sweep, and return the exit code."""
    parser = Parser("Draw the scores of a sweep against the fields that differ.")
    add = parser.add_argument
    add("--workdir", required=True, type=Path, help="the sweep's directory")
    add("--split", default="test", help="whose scores to draw, if any; default: test")
    arguments = _read(parser, argv)

    from transformer_jax.plots.sweep import draw_rows
    from transformer_jax.reports.sweep_rows import is_sweep, tabulated

    if not is_sweep(arguments.workdir):
        raise UserError(f"--workdir={arguments.workdir}: holds no work directories of a sweep")
    draw_rows(tabulated(arguments.workdir, arguments.split), arguments.output)
    return _written(arguments.output)


def _read(parser: Parser, argv: Sequence[str]) -> Any:
    """Return the arguments, one of which is the file of the picture."""
    parser.add_argument("--output", required=True, type=Path, help="a .svg, .pdf or .png file")
    arguments = parser.parse_args(list(argv))
    check_suffix(arguments.output, "--output")
    return arguments


def _written(output: Path) -> int:
    print(f"written to {output.absolute()}")
    return 0


PICTURES: dict[str, tuple[str, Main]] = {
    "attention": ("cross-attention of a translation", attention),
    "curves": ("training curves", curves),
    "forecast": ("forecast of a time series", forecast),
    "returns": ("achieved returns against those an agent was asked for", returns),
    "sweep": ("scores of a sweep against the fields that it varies", sweep),
}


def main(argv: Sequence[str]) -> int:
    """Draw a picture, and return the exit code."""
    return run_command("transformer-jax plot", PICTURES, argv)
