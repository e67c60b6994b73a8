"""transformer-jax plot attention --workdir=DIR --source=TEXT --output=FILE"""

from collections.abc import Sequence
from pathlib import Path

from transformer_jax.cli.arguments import Parser
from transformer_jax.plots.picture import check_suffix
from transformer_jax.runs.workdir import WorkDir


def main(argv: Sequence[str]) -> int:
    """Draw the cross-attention of a translation, and return the exit code."""
    parser = Parser("Draw which source pieces each piece of a translation attends to.")
    parser.add_argument("--workdir", required=True)
    parser.add_argument(
        "--checkpoint", help="best, last, a step or average:N; default: the config's"
    )
    parser.add_argument("--source", required=True, metavar="TEXT", help="a sentence")
    parser.add_argument("--target", metavar="TEXT", help="default: its best translation")
    parser.add_argument("--layer", type=int, default=-1, help="from 0; default: the last")
    parser.add_argument("--head", type=int, help="from 0; default: the mean of all")
    parser.add_argument("--output", required=True, type=Path, help="a .svg, .pdf or .png file")
    arguments = parser.parse_args(list(argv))
    check_suffix(arguments.output, "--output")
    experiment = WorkDir(arguments.workdir).experiment()

    from transformer_jax.api import load
    from transformer_jax.experiments.process import use_compilation_cache
    from transformer_jax.plots.attention import draw

    use_compilation_cache()
    trained = load(arguments.workdir, arguments.checkpoint or experiment.evaluation.checkpoint)
    attention = trained.attention(arguments.source, arguments.target)
    draw(attention, arguments.output, arguments.layer, arguments.head)
    print(f"written to {arguments.output.absolute()}")
    return 0
