"""transformer-jax pictures COMMAND: pictures as words, and back."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from transformer_jax.base.disk import writing
from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import Main, Parser, run_command
from transformer_jax.data.codecs.codebook import Codebook, as_lines, grid, shrunk
from transformer_jax.data.sources.array_files import read_arrays
from transformer_jax.data.sources.files import read_lines

if TYPE_CHECKING:
    from transformer_jax.decoding.pictures import PictureCodes

CODEBOOK = "a file of pictures codebook, or the work directory of an autoencoder"


def codebook(argv: Sequence[str]) -> int:
    """Write a codebook, and return the exit code."""
    parser = Parser(
        "Find codes for patches of pictures by k-means. With --patch-size=1 they are a palette\n"
        "of colours."
    )
    parser.add_argument("file", type=Path, help="an .npz file with an array of pictures")
    parser.add_argument("--array", default="images", help="name of the array; default: images")
    parser.add_argument("--codes", type=int, default=256, help="number of codes; default: 256")
    parser.add_argument("--patch-size", type=int, default=4, help="pixels per side; default: 4")
    parser.add_argument("--reduce", type=int, default=1, help="first merge N x N pixels into one")
    parser.add_argument("--output", type=Path, required=True, help="the codebook, .npz")
    arguments = parser.parse_args(list(argv))
    for name in ("codes", "patch_size", "reduce"):
        if not 1 <= getattr(arguments, name) <= 2**16:
            parser.error(f"--{name.replace('_', '-')}: must be at least 1 and at most 65536")
    pictures = read_arrays(arguments.file, [arguments.array])[arguments.array]
    book = Codebook.of(pictures, arguments.codes, arguments.patch_size, arguments.reduce)
    some = pictures[: min(len(pictures), 1000)]
    small = book.decode(book.encode(some)).astype(np.float64)
    error = np.square(small - shrunk(some, book.reduced)).mean() ** 0.5
    book.save(arguments.output)
    print(
        f"{len(book.vectors)} codes, {book.form.patches} per picture of {book.form.height} x "
        f"{book.form.width}; root-mean-square error {error:.1f} of 255; written to "
        f"{arguments.output}"
    )
    return 0


def encode(argv: Sequence[str]) -> int:
    """Write pictures as text, or as latents, and return the exit code."""
    parser = Parser(
        "Write pictures as text: one per line, its codes separated by spaces. With a variational\n"
        "autoencoder, write their latents in place of the array, beside labels and names."
    )
    parser.add_argument("file", type=Path, help="an .npz file with an array of pictures")
    parser.add_argument("--array", default="images", help="name of the array; default: images")
    parser.add_argument("--codebook", type=Path, required=True, help=CODEBOOK)
    parser.add_argument("--output", type=Path, help="of latents, and only of these: FILE.npz")
    arguments = parser.parse_args(list(argv))
    book, output = codebook_at(arguments.codebook), arguments.output
    digest = getattr(book, "digest", None)  # of an autoencoder with latents
    if (digest is None) != (output is None) or (output is not None and output.suffix != ".npz"):
        raise UserError(
            f"--output={output}: {arguments.codebook} has "
            + ("codes, which are written to standard output; leave it out" if digest is None else
               "latents; give a file that ends with .npz")
        )  # fmt: skip
    beside = ["labels", "names"]
    arrays = read_arrays(arguments.file, [arguments.array], beside)
    encoded = book.encode(arrays.pop(arguments.array))
    if output is None:
        for line in as_lines(encoded):
            sys.stdout.write(f"{line}\n")
        return 0
    with writing(str(output), output.parent):
        arrays |= {arguments.array: encoded, "autoencoder": np.array([digest])}
        np.savez(output, **arrays)  # type: ignore[arg-type]
    print(f"latents of {len(encoded):,} pictures, {encoded.shape[1:]}; written to {output}")
    return 0


def decode(argv: Sequence[str]) -> int:
    """Draw lines of codes, or latents, and return the exit code."""
    parser = Parser(
        "Make pictures from lines of codes: one sheet of them, .png, or an array `images`, .npz.\n"
        "A line that is not a whole picture becomes an empty one, and is counted."
    )
    parser.add_argument("file", type=Path, help="lines of codes; or latents, `images` in FILE.npz")
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
    lines: list[np.ndarray | None]
    if arguments.file.suffix == ".npz":
        if not hasattr(book, "digest"):
            raise UserError(
                f"{arguments.file}: {arguments.codebook} has codes, not latents; give lines of them"
            )
        lines = [*read_arrays(arguments.file, ["images"])["images"]]
    else:
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
    decoded = iter(book.decode(np.stack(whole)) if whole else [])
    empty = np.zeros(book.form[:3], np.uint8)
    pictures = [empty if line is None else next(decoded) for line in lines]
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


def codebook_at(path: Path) -> Union[Codebook, "PictureCodes"]:
    """Return what encodes pictures: from a file, or from a work directory.

    Raises:
      UserError: if it is neither.
    """
    if not path.is_dir():
        return Codebook.load(path)
    from transformer_jax.api import load

    return load(path).picture_codes


COMMANDS: dict[str, tuple[str, Main]] = {
    "codebook": ("find codes for patches of pictures by k-means", codebook),
    "encode": ("write pictures as lines of codes", encode),
    "decode": ("draw lines of codes", decode),
}


def main(argv: Sequence[str]) -> int:
    """Run a sub-command, and return its exit code."""
    return run_command("transformer-jax pictures", COMMANDS, argv)
