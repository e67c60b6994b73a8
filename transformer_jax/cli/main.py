"""The console script transformer-jax: a sub-command and its arguments."""

import importlib
from collections.abc import Sequence

from transformer_jax.choices import pick
from transformer_jax.cli.arguments import program

COMMANDS = {
    "average": "save the mean of the last checkpoints",
    "compare": "test whether one run translates better than another",
    "export": "write a trained model for another engine",
    "inspect": "show what a work directory holds",
    "plan": "tell what a run would take, without training",
    "score": "print log-probabilities of given translations",
    "sweep": "train every combination of some settings, and table the scores",
    "translate": "translate standard input line by line",
}


def dispatch(argv: Sequence[str]) -> int:
    """Run a sub-command, and return its exit code."""
    if not argv or argv[0] in ("-h", "--help"):
        print("usage: transformer-jax COMMAND [--help] ...\n")
        for name, what in COMMANDS.items():
            print(f"  {name:<12} {what}")
        return 0 if argv else 2
    pick(COMMANDS, argv[0], "transformer-jax")
    module = importlib.import_module(f"transformer_jax.cli.{argv[0]}")
    return module.main(argv[1:])


main = program(dispatch)

if __name__ == "__main__":
    main()
