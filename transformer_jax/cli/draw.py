"""transformer-jax draw --workdir=DIR --text="a seven" [--guidance=4] [--output=FILE.png]"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.base.disk import writing
from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import WORKDIR, Parser
from transformer_jax.cli.model import adjusted, load_adjusted, prepare_process
from transformer_jax.runs.workdir import WorkDir

_HELP = """\
Draw pictures with a diffusion model: of each --text, which is a class if the model was trained with
classes, or else of each class. An empty text says nothing, and the picture is of anything.

The fields of decoding can be changed; --guidance, --steps, --num-samples and --seed are short for
those of decoding."""
_SHORT = {"guidance": "guidance", "steps": "sampling_steps", "num_samples": "num_samples",
          "seed": "seed", "search": "search"}  # fmt: skip


def main(argv: Sequence[str]) -> int:
    """Draw, and return the exit code."""
    arguments, overrides = _parser().read(argv)
    short = [
        (f"decoding.{field}", getattr(arguments, name))
        for name, field in _SHORT.items()
        if getattr(arguments, name) is not None
    ]
    experiment = adjusted(WorkDir(arguments.workdir).experiment(), [*overrides, *short])
    if not experiment.objective.record.diffuses:
        raise UserError(
            f"draw: --workdir={arguments.workdir} was trained with config.objective.name="
            f"{experiment.objective.name!r}; name a diffusion model"
        )
    if arguments.output.suffix not in (".png", ".npz"):
        raise UserError(f"--output={arguments.output}: must end with .png or .npz")
    if arguments.columns is not None and arguments.columns < 1:
        raise UserError(f"--columns={arguments.columns}: must be at least 1")

    from transformer_jax.data.codecs.codebook import grid
    from transformer_jax.data.sources.files import read_lines

    prepare_process()
    checkpoint = arguments.checkpoint or experiment.evaluation.checkpoint
    trained: Any = load_adjusted([arguments.workdir], checkpoint, experiment)
    said = [*(arguments.text or [])]
    if arguments.texts is not None:
        said += read_lines(arguments.texts)
    if not said:
        said = _classes(trained)
    pictures = trained.draw(said)
    each = experiment.decoding.num_samples
    labels = np.repeat(np.array(said), each)
    with writing(str(arguments.output), arguments.output.parent):
        if arguments.output.suffix == ".npz":
            np.savez(arguments.output, images=pictures, labels=labels)
        else:
            from PIL import Image

            columns = arguments.columns or (each if each > 1 else min(len(said), 10))
            sheet = grid(list(pictures), columns)
            Image.fromarray(sheet[..., 0] if sheet.shape[2] == 1 else sheet).save(arguments.output)
    print(f"{len(pictures):,} pictures; written to {arguments.output}")
    return 0


def _parser() -> Parser:
    parser = Parser(_HELP)
    add = parser.add_argument
    add("--workdir", required=True, help=WORKDIR)
    add("--checkpoint", help="best, last, a step or average:N; default: the config's")
    add("--text", action="append", help="what to draw; may be repeated")
    add("--texts", type=Path, metavar="FILE", help="a file with what to draw, a line for each")
    add("--guidance", metavar="W", help="how much what is said counts; 1: as in training")
    add("--steps", metavar="N", help="steps from noise to picture")
    add("--search", metavar="WORD", help="euler, heun or ancestral")
    add("--num-samples", metavar="N", help="pictures for each text")
    add("--seed", metavar="N", help="of the noise")
    add("--columns", type=int, help="of the sheet; default: the pictures of one text, or 10")
    add(
        "--output",
        type=Path,
        default=Path("drawn.png"),
        metavar="FILE",
        help="a sheet of pictures, .png, or arrays `images` and `labels`, .npz; default: drawn.png",
    )
    return parser


def _classes(trained: Any) -> list[str]:
    """Return the classes that a model knows.

    Raises:
      UserError: if it reads texts.
    """
    codec = trained.tokenizers.tgt
    if trained.experiment.model.condition != "class":
        raise UserError("--text: is missing; say what to draw, as in --text='a seven'")
    return codec.pieces(range(codec.size))
