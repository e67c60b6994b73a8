"""transformer-jax plot curves RUN ... --output=FILE"""

from collections.abc import Sequence
from pathlib import Path

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import Parser
from transformer_jax.config.metrics import in_nats
from transformer_jax.config.registry import pick
from transformer_jax.plots.curves import ACROSS, TITLES, draw
from transformer_jax.plots.picture import check_suffix
from transformer_jax.runs.workdir import WorkDir


def main(argv: Sequence[str]) -> int:
    """Draw the curves of runs, and return the exit code."""
    parser = Parser("Draw training curves of each --workdir, also fit for black-and-white print.")
    add = parser.add_argument
    add("run", nargs="+", help="work directories")
    add("--measures", metavar="A,B",
        help=f"of {', '.join(TITLES)}; default: the loss and the validation scores")  # fmt: skip
    add("--across", choices=tuple(ACROSS), default="step", help="default: step")
    add("--log", action="store_true", help="logarithmic vertical axis")
    add("--output", required=True, type=Path, help="a .svg, .pdf or .png file")
    arguments = parser.parse_args(list(argv))
    check_suffix(arguments.output, "--output")
    measures = arguments.measures.split(",") if arguments.measures else None
    for measure in measures or ():
        pick(TITLES, measure, "--measures")

    from transformer_jax.reports import report, runs
    from transformer_jax.reports.curves import curves as curves_of

    found = report.named([runs.read(WorkDir(path)) for path in arguments.run])
    curves = {run.name: curves_of(run.metrics, run.timings) for run in found}
    known = {
        measure
        for run in curves.values() for group in run.values() for measure, column in group.items()
        if any(value is not None for value in column)
    }  # fmt: skip
    for measure in measures or ():
        if measure not in known:
            raise UserError(f"--measures={measure}: no run has it yet; leave it out")
    if measures is None:
        shown = [name for name in TITLES if name == "loss" or name.startswith("validation_")]
        measures = [name for name in shown if name in known]
    nats = all(in_nats(run.experiment.objective.kind) for run in found)
    draw(curves, arguments.output, measures, arguments.across, arguments.log, nats)
    print(f"written to {arguments.output.absolute()}")
    return 0
