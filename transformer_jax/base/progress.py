"""Progress over lines of input: a bar on a terminal, an occasional line elsewhere."""

import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

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

T = TypeVar("T")

_FIRST, _EVERY = 10.0, 30.0  # seconds until the first line, and between lines


class LineProgress:
    """Lines done, lines per second and time left, on standard error.

    `total` is None if unknown. `hidden` shows nothing. The first `begin` lines were done earlier.
    `noun` is what is counted, if not lines.
    """

    def __init__(
        self, total: int | None, hidden: bool = False, begin: int = 0, noun: str = "line"
    ) -> None:
        console = Console(stderr=True)
        self._nouns = f"{noun}s"
        self._total, self._began = total, time.monotonic()
        self._begin = self._done = begin
        self._bar = Progress(
            BarColumn(), MofNCompleteColumn(), _Rate(self._nouns), TimeRemainingColumn(),
            console=console, transient=True, redirect_stdout=False,
            disable=hidden or not console.is_terminal,
        )  # fmt: skip
        self._task = self._bar.add_task("lines", total=total, completed=begin)
        self._writes = not hidden and not console.is_terminal
        self._ended = threading.Event()
        # A thread, so that a line appears even while the first program compiles.
        self._writer = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> "LineProgress":
        self._bar.start()
        if self._writes:
            self._writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        self._ended.set()
        if self._writes:
            self._writer.join()

    def watch(self, finished: Iterable[T]) -> Iterator[T]:
        """Yield the items unchanged, and count them."""
        for item in finished:
            yield item
            self._count(self._done + 1)

    def reached(self, line: int) -> None:
        """Set the total number of lines done, including empty ones."""
        self._count(line)

    def _count(self, done: int) -> None:
        self._done = done
        self._bar.update(self._task, completed=done)

    def _write(self) -> None:
        last = 0 if self._total is None else -1  # a pipe may be idle for long: print no repeats
        pause = _FIRST
        while not self._ended.wait(pause):
            pause = _EVERY
            if self._done != last:
                last = self._done
                print(self._line(last), file=sys.stderr, flush=True)

    def _line(self, done: int) -> str:
        rate = (done - self._begin) / (time.monotonic() - self._began)
        of = "" if self._total is None else f" of {self._total:,}"
        parts = [f"{done:,}{of} {self._nouns}"]
        if rate:
            parts.append(f"{rate:,.1f} {self._nouns}/s")
            if self._total is not None:
                parts.append(f"{_duration((self._total - done) / rate)} left")
        return ", ".join(parts)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class _Rate(ProgressColumn):
    def __init__(self, nouns: str) -> None:
        super().__init__()
        self._nouns = nouns

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        said = f"{speed:,.1f} {self._nouns}/s" if speed else ""
        return Text(said, style="progress.data.speed")
