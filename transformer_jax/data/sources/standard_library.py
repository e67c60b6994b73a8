"""Python's standard library: source code that every machine with this package has."""

import logging
import sysconfig
import tokenize
import zlib
from functools import cache
from pathlib import Path

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig

log = logging.getLogger("transformer_jax")

# Tests repeat one another; the others are programs, or are not the library's own.
_LEFT_OUT = {"test", "tests", "idlelib", "idle_test", "lib2to3", "site-packages", "dist-packages"}
_IN = 20  # files, of which one is for validation and one for the test
_HELD = {0: "validation", 1: "test"}


def load(config: DataConfig, split: str) -> tuple[list[str], list[str]]:
    """Return no sources, and the files of a split, each as one text, in the order of their paths.

    A file's split depends on its path in the library alone. Other versions of Python have other
    files.

    Raises:
      UserError: if this Python has no library of source files.
    """
    place = Path(sysconfig.get_path("stdlib"))
    files = [text for path, text in _files(place) if _split_of(path) == split]
    if not files:
        raise UserError(
            f"config.data.source='standard_library': there are no source files in {place}; use a "
            "Python that has them, or source='text' with a folder of your own"
        )
    return [], files


def _split_of(path: str) -> str:
    return _HELD.get(zlib.crc32(path.encode()) % _IN, "train")


@cache
def _files(place: Path) -> list[tuple[str, str]]:
    """Return the path in the library and the text of each file that can be read."""
    files = []
    for path in sorted(place.rglob("*.py")):
        name = path.relative_to(place)
        if _LEFT_OUT.isdisjoint(name.parts):
            try:
                with tokenize.open(path) as file:
                    text = file.read()
            except (OSError, SyntaxError, UnicodeError) as error:
                log.warning("standard library: %s is left out: %s", name, error)
                continue
            if text.strip():
                files.append((name.as_posix(), text))
    return files
