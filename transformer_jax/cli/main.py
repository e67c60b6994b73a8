"""The console script transformer-jax: a sub-command and its arguments."""

from collections.abc import Sequence

from transformer_jax.cli.arguments import program, run_command

COMMANDS = {
    "average": "save the mean of the last checkpoints",
    "export": "write a trained model for another engine",
    "inspect": "show what a work directory holds",
    "plot": "draw pictures",
    "score": "print log-probabilities of given translations",
    "translate": "translate text line by line",
}


def dispatch(argv: Sequence[str]) -> int:
    """Run a sub-command, and return its exit code."""
    return run_command("transformer-jax", COMMANDS, argv)


main = program(dispatch)
