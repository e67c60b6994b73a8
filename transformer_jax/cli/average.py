"""transformer-jax average --workdir=DIR --last=5 --output=DIR"""

from collections.abc import Sequence
from pathlib import Path

from transformer_jax.cli.arguments import WORKDIR, Parser


def main(argv: Sequence[str]) -> int:
    """Write the mean of the last N checkpoints into a new work directory."""
    parser = Parser(
        "Average the last N checkpoints and save the result as the only checkpoint of a new work\n"
        "directory, which eval.py and translate accept like any other."
    )
    parser.add_argument("--workdir", required=True, help=WORKDIR)
    parser.add_argument("--last", type=int, default=5, metavar="N", help="default: 5")
    parser.add_argument("--output", required=True, help="the new work directory")
    arguments = parser.parse_args(list(argv))

    from transformer_jax.api import save_average

    steps = save_average(arguments.workdir, arguments.last, arguments.output)
    print(f"mean of steps {', '.join(map(str, steps))} in {Path(arguments.output).absolute()}")
    return 0
