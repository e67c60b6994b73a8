"""Errors that a user can fix. Programs print them on one line and exit with their code."""

import re
import traceback
from pathlib import Path

_DIGEST = re.compile("@sha256:[0-9a-f]{64}")  # of a user-defined part; not for readers


class UserError(ValueError):
    """A mistake in the input: its message names the place, the value and the remedy."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        message = " ".join(message.splitlines())  # values may contain newlines
        super().__init__(_DIGEST.sub("", message))


def explained(path: Path, error: BaseException) -> str:
    """Return a one-line message: which line of a user's file failed at run time, and why."""
    stack = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in stack if frame.filename == str(path)]
    where = f"{path}:{frames[-1].lineno}: {frames[-1].line}" if frames else str(path)
    reason = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
    if isinstance(error, AttributeError | KeyError) and "ml_collections" in stack[-1].filename:
        hint = re.search(r'Did you mean "(\w+)"', reason)  # the rest lists every other field
        reason = f"unknown field{f' (did you mean {hint[1]!r}?)' if hint else ''}"
    return f"{where}: {reason}"
