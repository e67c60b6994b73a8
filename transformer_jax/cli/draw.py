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

_FRAME = 125  # milliseconds
_HELP = """\
Draw pictures with a diffusion model, or clips with one of clips: of each --text, which is a class
if the model was trained with classes, or else of each class. An empty text says nothing, and the
picture is of anything.

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
    moves = experiment.src.codec == "tubelets"
    if arguments.output.suffix not in (".png", ".npz", *(".gif",) * moves):
        named = ".png, .gif or .npz" if moves else ".png or .npz"
        raise UserError(f"--output={arguments.output}: must end with {named}")
    if arguments.columns is not None and arguments.columns < 1:
        raise UserError(f"--columns={arguments.columns}: must be at least 1")

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
            columns = arguments.columns or (each if each > 1 else min(len(said), 10))
            _save(pictures, columns, arguments.output)
    noun = "clips" if moves else "pictures"
    print(f"{len(pictures):,} {noun}; written to {arguments.output}")
    return 0


def _save(pictures: np.ndarray, columns: int, output: Path) -> None:
    """Write a sheet of pictures [n H W C], or of clips [n T H W C]: an animation of all, or a still
    with the frames of each in a row.
    """
    from PIL import Image

    from transformer_jax.data.codecs.codebook import grid

    if pictures.ndim == 4:
        sheets = [grid(list(pictures), columns)]
    elif output.suffix == ".gif":
        sheets = [grid(list(frames), columns) for frames in pictures.swapaxes(0, 1)]
    else:
        sheets = [grid([frame for clip in pictures for frame in clip], pictures.shape[1])]
    first, *others = (Image.fromarray(x[..., 0] if x.shape[2] == 1 else x) for x in sheets)
    if output.suffix == ".gif":
        first.save(output, save_all=True, append_images=others, duration=_FRAME, loop=0)
    else:
        first.save(output)


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
        help="a sheet of pictures, .png, of clips also .gif, or arrays `images` and `labels`, "
        ".npz; default: drawn.png",
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
