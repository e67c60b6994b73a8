"""transformer-jax plot PICTURE ..."""

from collections.abc import Sequence

from transformer_jax.cli.arguments import run_command

PICTURES = {
    "attention": "where a translation looks in its source",
    "curves": "how training went",
    "forecast": "what a model says comes next in a time series",
    "sweep": "scores against the fields that a sweep varies",
}


def main(argv: Sequence[str]) -> int:
    """Draw a picture, and return the exit code."""
    return run_command("transformer-jax plot", PICTURES, argv)
