"""Logging to the terminal and train.log."""

import logging
import sys
from contextlib import suppress
from pathlib import Path

from transformer_jax.base.messages import Formatter

log = logging.getLogger("transformer_jax")


def log_to(path: Path | None) -> None:
    """Send messages to the terminal and, if given, to a file."""
    log.setLevel(logging.DEBUG)
    log.propagate = False
    for handler in list(log.handlers):
        log.removeHandler(handler)
        handler.close()
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    handlers[0].setLevel(logging.INFO)
    handlers[0].setFormatter(Formatter())
    if path is not None:
        handlers.append(_FileHandler(path, encoding="utf-8", delay=True))
        handlers[1].setFormatter(Formatter("%(asctime)s "))
    for handler in handlers:
        log.addHandler(handler)


class _FileHandler(logging.FileHandler):
    def emit(self, record: logging.LogRecord) -> None:
        """Drop a line if the file cannot even be opened."""
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Drop a line that a full disk does not take; the terminal has it."""
