"""transformer-jax pictures COMMAND: pictures as words, and back."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Union

from transformer_jax.cli.arguments import run_command
from transformer_jax.data.codecs.codebook import Codebook

if TYPE_CHECKING:
    from transformer_jax.decoding.pictures import PictureCodes

COMMANDS = {
    "codebook": "find codes for patches of pictures by k-means",
    "encode": "write pictures as lines of codes",
    "decode": "draw lines of codes",
}
CODEBOOK = "a file of pictures codebook, or the work directory of an autoencoder"


def main(argv: Sequence[str]) -> int:
    """Run a sub-command, and return its exit code."""
    return run_command("transformer-jax pictures", COMMANDS, argv)


def codebook_at(path: Path) -> Union[Codebook, "PictureCodes"]:
    """Return what encodes pictures: from a file, or from a work directory.

    Raises:
      UserError: if it is neither.
    """
    if not path.is_dir():
        return Codebook.load(path)
    from transformer_jax.api import load

    return load(path).picture_codes
