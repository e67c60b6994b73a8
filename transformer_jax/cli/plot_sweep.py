"""transformer-jax plot sweep --workdir=DIR --output=FILE"""

from collections.abc import Sequence
from pathlib import Path

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import Parser
from transformer_jax.plots.picture import check_suffix
from transformer_jax.plots.sweep import draw_rows


def main(argv: Sequence[str]) -> int:
    """Draw the scores of a sweep, and return the exit code."""
    parser = Parser("Draw the scores of a sweep against the fields that differ.")
    add = parser.add_argument
    add("--workdir", required=True, type=Path, help="the sweep's directory")
    add("--split", default="test", help="whose scores to draw, if any; default: test")
    add("--output", required=True, type=Path, help="a .svg, .pdf or .png file")
    arguments = parser.parse_args(list(argv))
    check_suffix(arguments.output, "--output")

    from transformer_jax.reports.sweep_rows import is_sweep, tabulated

    if not is_sweep(arguments.workdir):
        raise UserError(f"--workdir={arguments.workdir}: holds no work directories of a sweep")
    draw_rows(tabulated(arguments.workdir, arguments.split), arguments.output)
    print(f"written to {arguments.output.absolute()}")
    return 0
