"""The progress of a sweep: a bar for all points and one for each running point."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from transformer_jax.runs.workdir import TAKEN, read_rows
from transformer_jax.sweeps.points import Point
from transformer_jax.sweeps.sweep import DIVERGED, FINISHED, INTERRUPTED, Record
from transformer_jax.sweeps.table import best_validation, training_minutes
from transformer_jax.training.heartbeat import progress_line

_EVERY = 60.0  # seconds between lines for a point without a terminal
_ENDS = {FINISHED: "finished", DIVERGED: "diverged", INTERRUPTED: "saved, to be resumed"}


class Bars:
    """Progress: bars on a terminal, lines anywhere else."""

    def __init__(
        self, bars: Progress, points: Sequence[Point], done: int, record: Record, rungs: int = 0
    ) -> None:
        """`rungs` is how often points are trained beyond the first time."""
        self._bars, self._record = bars, record
        self._ended, self._count = done, len(points) + rungs
        self._tasks: dict[str, TaskID] = {}
        self._said: dict[str, float] = {}  # when each running point last printed a line
        self._all = bars.add_task("all points", total=self._count, completed=done, status="")
        bars.console.print(f"{len(points)} points, {done} already finished")

    def started(self, point: Point, program: str) -> None:
        """Report that a program of a point starts."""
        self._said[point.name] = time.monotonic()
        self._bars.console.print(f"{program}  {escape(point.name)}", highlight=False)
        if point.name not in self._tasks:
            total = point.experiment.training.steps
            self._tasks[point.name] = self._bars.add_task(
                escape(point.name), total=total, status=""
            )

    def waits(self, point: Point) -> None:
        """Report that another trainer has the directory of a point."""
        line = f"waits    {point.name}: {TAKEN}"
        self._bars.console.print(escape(line), highlight=False, soft_wrap=True)

    def running(self, points: Sequence[Point]) -> None:
        """Update the bars, or print the progress of each point from time to time."""
        for point in points if self._bars.disable else ():
            since = self._said.setdefault(point.name, time.monotonic())  # it may only wait as yet
            if time.monotonic() - since >= _EVERY:
                self._said[point.name] = time.monotonic()
                self._bars.console.print(escape(_place(point)), highlight=False, soft_wrap=True)
        if self._bars.disable:
            return
        for point in points:
            if point.name in self._tasks:
                status = _status(point)
                self._bars.update(self._tasks[point.name], completed=point.step(), status=status)

    def ended(self, point: Point, code: int, last_line: str) -> None:
        """Report how a point ended."""
        self._ended += code in (FINISHED, DIVERGED)
        if point.name in self._tasks:
            self._bars.remove_task(self._tasks.pop(point.name))
        self._bars.update(self._all, completed=self._ended)
        how = (
            _ENDS.get(code)
            or f"failed, exit code {code}: {last_line}; see {self._record.log(point)}"
        )
        line = f"{self._ended}/{self._count}  {point.name}  {how}  {_status(point)}"
        self._bars.console.print(escape(line.rstrip()), highlight=False, soft_wrap=True)


@contextmanager
def progress(
    points: Sequence[Point], directory: Path, split: str | None, rungs: int = 0
) -> Iterator[Bars]:
    """Show the progress of a sweep while it runs; `rungs` is how often points are trained beyond
    the first time.
    """
    record = Record(directory)
    done = sum(not record.due(point, split) for point in points)
    bars = Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"),
        TextColumn("{task.fields[status]}"), TimeElapsedColumn(), console=Console(stderr=True),
        transient=True, disable=not sys.stderr.isatty(),
    )  # fmt: skip
    with bars:
        yield Bars(bars, points, done, record, rungs)


def _place(point: Point) -> str:
    """Return "NAME  step 120 of 1000  0.5 steps/s  29 min left", with its latest rate."""
    rates = [row["steps_per_s"] for row in read_rows(point.workdir.timings)[-1:]]
    seconds = 60 * training_minutes(point)
    line = progress_line(point.step(), point.experiment.training, sum(rates, 0.0), seconds, None)
    return f"{point.name}  {line}"


def _status(point: Point) -> str:
    scores = best_validation(point)
    return "  ".join(f"validation {key} {value:.4g}" for key, value in scores.items())
