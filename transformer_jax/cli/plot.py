"""transformer-jax plot PICTURE ..."""

from collections.abc import Sequence

from transformer_jax.cli.arguments import run_command

PICTURES = {
    "attention": "cross-attention of a translation",
    "curves": "training curves",
    "forecast": "forecast of a time series",
    "sweep": "scores of a sweep against the fields that it varies",
}


def main(argv: Sequence[str]) -> int:
    """Draw a picture, and return the exit code."""
    return run_command("transformer-jax plot", PICTURES, argv)
