"""transformer-jax pictures decode FILE --codebook=FILE.npz|WORKDIR --output=FILE.png"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.base.disk import writing
from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import Parser
from transformer_jax.cli.pictures import CODEBOOK, codebook_at
from transformer_jax.data.codecs.codebook import grid
from transformer_jax.data.sources.files import read_lines


def main(argv: Sequence[str]) -> int:
    """Draw lines of codes, and return the exit code."""
    parser = Parser(
        "Make pictures from lines of codes: one sheet of them, .png, or an array `images`, .npz.\n"
        "A line that is not a whole picture becomes an empty one, and is counted."
    )
    parser.add_argument("file", type=Path, help="lines of codes")
    parser.add_argument("--codebook", type=Path, required=True, help=CODEBOOK)
    parser.add_argument("--columns", type=int, default=10, help="of the sheet; default: 10")
    parser.add_argument("--labels", type=Path, help="one label per line, for the .npz, on which "
                        "a classifier can then be scored")  # fmt: skip
    parser.add_argument("--output", type=Path, required=True, help="FILE.png or FILE.npz")
    arguments = parser.parse_args(list(argv))
    if arguments.output.suffix not in (".png", ".npz"):
        raise UserError(f"--output={arguments.output}: must end with .png or .npz")
    if arguments.labels is not None and arguments.output.suffix != ".npz":
        raise UserError("--labels: are written into .npz; give an --output of that kind")
    if arguments.columns < 1:
        raise UserError(f"--columns={arguments.columns}: must be at least 1")
    book = codebook_at(arguments.codebook)
    lines = [book.read(line) for line in read_lines(arguments.file)]
    if not lines:
        raise UserError(f"{arguments.file}: holds no lines")
    labels: dict[str, Any] = {}
    if arguments.labels is not None:
        labels = {"labels": np.array(read_lines(arguments.labels))}
        if len(labels["labels"]) != len(lines):
            raise UserError(
                f"{arguments.labels}: {len(labels['labels'])} labels for {len(lines)} pictures"
            )
    whole = [line for line in lines if line is not None]
    found = iter(book.decode(np.stack(whole)) if whole else [])
    empty = np.zeros(book.form[:3], np.uint8)
    pictures = [empty if line is None else next(found) for line in lines]
    with writing(str(arguments.output), arguments.output.parent):
        if arguments.output.suffix == ".npz":
            np.savez(arguments.output, images=np.stack(pictures), **labels)
        else:
            from PIL import Image

            sheet = grid(pictures, arguments.columns)
            Image.fromarray(sheet[..., 0] if sheet.shape[2] == 1 else sheet).save(arguments.output)
    print(
        f"{len(lines):,} pictures, {len(lines) - len(whole):,} of them broken lines; written to "
        f"{arguments.output}"
    )
    return 0
