"""How messages look, on a terminal and in train.log, whichever command they come from."""

import logging
import sys
from pathlib import Path
from typing import Literal

log = logging.getLogger("transformer_jax")


_SCRIPTS = {"train": "train.py", "evaluate": "eval.py"}


def program(name: Literal["train", "evaluate"]) -> str:
    """Return how to call a program here: by its script in a checkout, else as installed."""
    script = _SCRIPTS[name]
    beside = Path(__file__).parents[1] / script
    return f"python {script}" if beside.is_file() else f"transformer-jax {name}"


class Formatter(logging.Formatter):
    """Writes "warning: " before a warning, "error: " before an error, nothing before the rest."""

    def __init__(self, head: str = "") -> None:
        """Begin each line with `head`, a format of `logging`."""
        super().__init__(f"{head}%(kind)s%(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        plain = record.levelno < logging.WARNING
        record.kind = "" if plain else f"{record.levelname.lower()}: "
        return super().format(record)


def warn_on_stderr() -> None:
    """Send warnings to standard error, in place of where messages went before."""
    for handler in list(log.handlers):
        log.removeHandler(handler)
        handler.close()
    log.propagate = False  # libraries set up handlers of the root, in a form of their own
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(Formatter())
    log.addHandler(handler)
