"""transformer-jax pictures encode FILE.npz --codebook=FILE.npz|WORKDIR > FILE"""

import sys
from collections.abc import Sequence
from pathlib import Path

from transformer_jax.cli.arguments import Parser
from transformer_jax.cli.pictures import CODEBOOK, codebook_at
from transformer_jax.data.codecs.codebook import as_lines
from transformer_jax.data.sources.array_files import read_arrays


def main(argv: Sequence[str]) -> int:
    """Write pictures as text, and return the exit code."""
    parser = Parser("Write pictures as text: one per line, its codes separated by spaces.")
    parser.add_argument("file", type=Path, help="an .npz file with an array of pictures")
    parser.add_argument("--array", default="images", help="name of the array; default: images")
    parser.add_argument("--codebook", type=Path, required=True, help=CODEBOOK)
    arguments = parser.parse_args(list(argv))
    book = codebook_at(arguments.codebook)
    pictures = read_arrays(arguments.file, [arguments.array])[arguments.array]
    for line in as_lines(book.encode(pictures)):
        sys.stdout.write(f"{line}\n")
    return 0
