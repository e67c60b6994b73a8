"""Lines of text in and out: files, pipes and a person at a terminal."""

import gzip
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TimeRemainingColumn,
)
from rich.text import Text

from transformer_jax.disk import writing
from transformer_jax.errors import UserError

T = TypeVar("T")

_CHARACTERS = 1 << 22  # of a block, unless a single line has more


@contextmanager
def read_from(path: Path | None) -> Iterator[IO[str]]:
    """Open a file, plain or .gz, or standard input. Bytes that are no UTF-8 become U+FFFD.

    Raises:
      UserError: if it cannot be opened.
    """
    how = {"encoding": "utf-8-sig", "errors": "replace", "newline": "\n"}
    if path is None:
        stdin: Any = sys.stdin
        stdin.reconfigure(**how)
        yield stdin
        return
    with _open("--input", path, "rt", **how) as file:
        yield file


def count_lines(path: Path) -> int:
    """Return how many lines a file has; the last may lack its end.

    Raises:
      UserError: if it cannot be read to its end.
    """
    with read_from(path) as text:
        try:
            return sum(1 for _ in text)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"--input={path}: cannot be read ({error})") from None


@contextmanager
def write_to(path: Path | None) -> Iterator[IO[str]]:
    """Open a file, plain or .gz, or standard output.

    Raises:
      UserError: if it cannot be opened.
      DiskError: if the disk does not take it all.
    """
    how = {"encoding": "utf-8", "newline": "\n"}
    if path is None:
        stdout: Any = sys.stdout
        stdout.reconfigure(**how)
        yield stdout
        return
    with writing(f"--output={path}", path.parent), _open("--output", path, "wt", **how) as file:
        yield file


def _open(option: str, path: Path, mode: str, **how: Any) -> IO[str]:
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        return opener(path, mode, **how)
    except OSError as error:
        raise UserError(f"{option}={path}: cannot be opened ({error.strerror})") from None


def blocks(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yield lists of lines; a lone CR, U+2028 and the like are part of a line."""
    block: list[str] = []
    characters = 0
    for line in lines:
        block.append(line.removesuffix("\n").removesuffix("\r"))
        characters += len(line)
        if len(block) == size or characters >= _CHARACTERS:
            yield block
            block, characters = [], 0
    if block:
        yield block


def typed() -> Iterator[str]:
    """Yield the lines that a person types, until the end of input (Ctrl-D)."""
    import readline  # noqa: F401  so that `input` knows cursor keys and earlier lines

    prompt = "> " if sys.stdout.isatty() else ""  # which would get in between translations
    while True:
        try:
            yield input(prompt)
        except EOFError:
            if prompt:
                print()
            return


class LineProgress:
    """A bar on standard error: lines done, lines a second, time left."""

    def __init__(self, total: int | None, hidden: bool = False) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            BarColumn(), MofNCompleteColumn(), _Rate(), TimeRemainingColumn(),
            console=console, transient=True, redirect_stdout=False,
            disable=hidden or not console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("lines", total=total)

    def __enter__(self) -> "LineProgress":
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def watch(self, finished: Iterable[T]) -> Iterator[T]:
        """Yield the same, and count."""
        for item in finished:
            yield item
            self._bar.advance(self._task)

    def reached(self, line: int) -> None:
        """Say how many lines are done in all, empty ones included."""
        self._bar.update(self._task, completed=line)


class _Rate(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed:,.1f} lines/s" if speed else "", style="progress.data.speed")
