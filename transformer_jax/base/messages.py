"""Formatting of log messages, on a terminal and in train.log, the same for all commands."""

import io
import logging
import sys
from pathlib import Path
from typing import Literal

log = logging.getLogger("transformer_jax")


_SCRIPTS = {"train": "train.py", "evaluate": "eval.py"}


def program(name: Literal["train", "evaluate"]) -> str:
    """Return the command for a program: its script in a checkout, else the installed command."""
    script = _SCRIPTS[name]
    beside = Path(__file__).parents[2] / script
    return f"python {script}" if beside.is_file() else f"transformer-jax {name}"


class Formatter(logging.Formatter):
    """Prefixes warnings with "warning: " and errors with "error: "; leaves the rest as they are."""

    def __init__(self, head: str = "") -> None:
        """Begin each line with `head`, a format of `logging`."""
        super().__init__(f"{head}%(kind)s%(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as a line."""
        plain = record.levelno < logging.WARNING
        record.kind = "" if plain else f"{record.levelname.lower()}: "
        return super().format(record)


def warn_on_stderr() -> None:
    """Send warnings to standard error, replacing all previous handlers."""
    for handler in list(log.handlers):
        log.removeHandler(handler)
        handler.close()
    log.propagate = False  # libraries add handlers to the root logger, in their own format
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(logging.WARNING)
    handler.setFormatter(Formatter())
    log.addHandler(handler)


def write_any_text() -> None:
    """Have the standard streams take every text, whatever the locale: as UTF-8, like files. A
    terminal of another encoding shows escapes for what it lacks.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            encoding = None if stream.isatty() else "utf-8"
            stream.reconfigure(encoding=encoding, errors="backslashreplace")
