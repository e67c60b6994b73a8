"""transformer-jax report RUN[@CHECKPOINT] ... [--output=report.html]"""

from collections.abc import Sequence
from pathlib import Path

from transformer_jax.base.disk import write_text, writing
from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import Parser
from transformer_jax.cli.compare import place_of


def main(argv: Sequence[str]) -> int:
    """Write one page that shows one or more runs or a sweep, and return the exit code."""
    parser = Parser(
        "Write one page, for any browser and without a network, that shows what train.py and\n"
        "eval.py left in each --workdir: what was trained, curves, scores, sentences. Several\n"
        "runs, or the points of a sweep, are compared. A run may still be in progress."
    )
    add = parser.add_argument
    add("run", nargs="+", metavar="RUN[@CHECKPOINT]",
        help="work directories, or the directory of one sweep; checkpoint: best, last, a step or "
        "average:N, default: the config's")  # fmt: skip
    add("--split", help="whose sentences to show; default: test, if it was scored")
    add("--output", type=Path, default=Path("report.html"), help="default: report.html")
    arguments = parser.parse_args(list(argv))
    output: Path = arguments.output
    if output.is_dir():
        raise UserError(f"--output={output}: is a directory; name a file")

    from transformer_jax.plots.page import render
    from transformer_jax.reports.report import gather

    page = render(gather([place_of(text) for text in arguments.run], arguments.split))
    with writing(f"--output={output}", output.absolute().parent):
        output.parent.mkdir(parents=True, exist_ok=True)
        write_text(output, page)
    print(f"written to {output.absolute()}, {len(page.encode()) / 1e6:.1f} MB")
    return 0
