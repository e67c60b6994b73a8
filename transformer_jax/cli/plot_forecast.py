"""transformer-jax plot forecast --workdir=DIR --output=FILE"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import CHECKPOINTS, Parser
from transformer_jax.plots.picture import check_suffix, save
from transformer_jax.runs.workdir import WorkDir


def main(argv: Sequence[str]) -> int:
    """Draw a forecast and the actual values, and return the exit code."""
    parser = Parser("Draw a forecast for a split of a time series, and the actual values.")
    add = parser.add_argument
    add("--workdir", required=True)
    add("--checkpoint", help=CHECKPOINTS)
    add("--split", default="test", choices=("train", "validation", "test"))
    add("--window", type=int, default=0, metavar="N", help="index in the split, from 0; default: 0")
    add("--output", required=True, type=Path, help="a .svg, .pdf or .png file")
    arguments = parser.parse_args(list(argv))
    check_suffix(arguments.output, "--output")
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
    found = trained.forecast(shown[: objective.window], deciles=several)
    point, deciles = found if several else (found, None)
    last = min(objective.window, 2 * objective.horizon)
    figure = draw(shown, point, deciles, last, shown.columns, shown.dates)
    save(figure, arguments.output)
    print(f"written to {arguments.output.absolute()}")
    return 0
