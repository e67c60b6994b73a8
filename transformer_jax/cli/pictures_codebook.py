"""transformer-jax pictures codebook FILE.npz --codes=N --output=FILE.npz"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from transformer_jax.cli.arguments import Parser
from transformer_jax.data.codecs.codebook import Codebook, shrunk
from transformer_jax.data.sources.array_files import read_arrays


def main(argv: Sequence[str]) -> int:
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
