"""transformer-jax pictures COMMAND: pictures as words, and back."""

from collections.abc import Sequence

from transformer_jax.cli.arguments import run_command

COMMANDS = {
    "codebook": "find the codes that patches of pictures are nearest to",
    "encode": "write pictures as lines of codes",
    "decode": "draw lines of codes",
}


def main(argv: Sequence[str]) -> int:
    """Run a sub-command, and return its exit code."""
    return run_command("transformer-jax pictures", COMMANDS, argv)
