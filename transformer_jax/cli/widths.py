"""transformer-jax widths --config=configs/NAME.py --widths=64,128,256 [--config.FIELD=VALUE ...]"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import Parser, load_config
from transformer_jax.config.convert import parse
from transformer_jax.plots.picture import check_suffix


def main(argv: Sequence[str]) -> int:
    """Measure how much a few updates change models of several sizes."""
    parser = Parser(
        "Check whether a learning rate suits models of other sizes: how much a few updates on one\n"
        "batch change the outputs of maps, the stream and the logits, by width or depth. With\n"
        "model.parametrization=mup (widths) or completep (depths, too) none grows with the size."
    )
    parser.add_argument(
        "--config", required=True, help="a file, or a NAME of configs/; FILE:VARIANT, NAME:VARIANT"
    )
    axis = parser.add_mutually_exclusive_group(required=True)
    axis.add_argument("--widths", metavar="N,N", help="values of d_model, in proportion to which "
                      "d_ff and num_heads change")  # fmt: skip
    axis.add_argument("--depths", metavar="N,N", help="numbers of layers of each stack")
    parser.add_argument("--steps", type=int, default=4, help="updates; default: 4")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw it: .svg, .pdf or .png")
    arguments, overrides = parser.read(argv)
    along: Any = "width" if arguments.widths else "depth"
    sizes = _sizes(f"{along}s", arguments.widths or arguments.depths)
    if not 1 <= arguments.steps <= 1000:
        raise UserError(f"--steps={arguments.steps}: must be at least 1 and at most 1000")
    if arguments.plot is not None:
        check_suffix(arguments.plot, "--plot")
    experiment = parse(load_config(arguments.config, overrides))

    from transformer_jax.experiments.widths import check, lines

    found = check(experiment, along, sizes, arguments.steps)
    for line in lines(along, found):
        print(line)
    if arguments.plot is not None:
        from transformer_jax.plots.widths import draw

        draw({f"{experiment.model.parametrization}": found}, along, arguments.plot)
    return 0


def _sizes(option: str, text: str) -> list[int]:
    """Return at least two different sizes, rising."""
    try:
        sizes = sorted({int(word) for word in text.split(",")})
    except ValueError:
        sizes = []
    if len(sizes) < 2 or not 1 <= sizes[0] <= sizes[-1] <= 2**20:
        raise UserError(f"--{option}={text}: must be two or more sizes, as in 64,128,256")
    return sizes
