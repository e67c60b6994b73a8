"""Time series in CSV files: a header, a date in the first column, a number in each other column."""

import csv
import io
import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from transformer_jax.base.disk import user_path
from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig
from transformer_jax.data.sources.chosen import Chosen


class Rows(np.ndarray):
    """A series [rows channels], with its file, the names of its columns and the dates of its rows;
    what is cut out of it, other than by `between`, has no dates.
    """

    path: str
    columns: tuple[str, ...]
    dates: tuple[str, ...]

    @classmethod
    def of(cls, values: np.ndarray, path: str, columns: list[str], dates: list[str]) -> "Rows":
        """Return values with their origin."""
        rows = values.view(cls)
        rows.path, rows.columns, rows.dates = path, tuple(columns), tuple(dates)
        return rows

    def __array_finalize__(self, whole: Any) -> None:
        self.path, self.columns = getattr(whole, "path", ""), getattr(whole, "columns", ())
        self.dates = ()

    def between(self, first: int, last: int) -> "Rows":
        """Return some of the rows, with their dates."""
        rows: Rows = self[first:last].view(Rows)
        rows.dates = self.dates[first:last]
        return rows


def named(rows: np.ndarray, column: int) -> str:
    """Return what a message calls a column: by its name and file if they are known."""
    if not isinstance(rows, Rows) or len(rows.columns) != rows.shape[1]:
        return f"channel {column + 1}"
    return f"column {rows.columns[column]!r} of {rows.path}"


def load(config: DataConfig, split: str, context: int) -> tuple[list[str], list[np.ndarray]]:
    """Return no sources, and a series for each part of a split, float64 [rows channels].

    A part "NAME[FIRST:LAST]" is those rows of NAME.csv, from 0 or if negative from the end, and
    excluding LAST, as in Python. In validation and test only these rows are predicted; up to
    `context` preceding rows are included as input.

    Raises:
      UserError: if a file is missing or malformed, or a part chooses rows that it does not have, or
        that do not follow each other; names the line.
    """
    windows: list[np.ndarray] = []
    for part in getattr(config, split):
        chosen = Chosen.read(part, f"config.data.{split}")
        rows = chosen.rows or slice(None)
        path = user_path(config.directory or ".") / f"{chosen.name}.csv"
        _check_exists(path, config, split)
        values = read(path)
        begin, end, step = rows.indices(len(values))
        if not begin < end or max(rows.start or 0, rows.stop or 0) > len(values):
            raise UserError(
                f"config.data.{split}={part!r}: {path} has rows 0 to {len(values) - 1}; choose "
                f"among them, as in {chosen.name}[0:{len(values)}]"
            )
        if step != 1 or chosen.others:
            raise UserError(
                f"config.data.{split}={part!r}: the rows of a series must follow each other, as in "
                f"{chosen.name}[{begin}:{end}]"
            )
        before = 0 if split == "train" else min(context, begin)
        windows.append(values.between(begin - before, end))
    return [], windows


def _check_exists(path: Path, config: DataConfig, split: str) -> None:
    if not path.is_file():
        raise UserError(
            f"config.data.{split}: there is no {path.absolute()}; set --config.data.directory to "
            f"its location, or --config.data.{split} to the name of a file without .csv"
            + (f". Get it with: {config.how_to_get}" if config.how_to_get else "")
        )


def read(path: Path) -> Rows:
    """Return the numbers of a file, float64 [rows channels].

    Raises:
      UserError: if it is missing or malformed; names the line.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return _read(file, str(path))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path}: cannot be read as comma-separated values ({reason})") from None


def parsed(content: bytes, name: str) -> Rows:
    """Return the numbers in the content of a file, as `read` does; `name` is for messages."""
    try:
        return _read(io.StringIO(content.decode(), newline=""), name)
    except (UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{name}: cannot be read as comma-separated values ({error})") from None


def _read(file: Iterable[str], path: str) -> Rows:
    lines = csv.reader(file)
    header = next(lines, [])
    dates, rows = [], []
    for row in lines:
        rows.append(_numbers(path, lines.line_num, header, row))
        dates += row[:1]
    if len(header) < 2 or not rows:
        raise UserError(
            f"{path}: contains no series; it needs a header, and lines of a date and a number for "
            "each channel"
        )
    return Rows.of(np.array(rows), path, header[1:], dates)


def _numbers(path: str, line: int, header: list[str], row: list[str]) -> list[float]:
    if len(row) != len(header):
        raise UserError(f"{path}:{line}: has {len(row)} columns, but the header {len(header)}")
    values = []
    for name, text in zip(header[1:], row[1:], strict=True):
        try:
            values.append(float(text))
        except ValueError:
            values.append(math.nan)
        if not math.isfinite(values[-1]):
            raise UserError(
                f"{path}:{line}: {name} is {text!r}, not a finite number; fill in missing values"
            )
    return values


# Forms of dates, and what writes one in the same form; weeks, quarters and the like are not dates.
_FORMS = tuple(
    f"{day}{time}"
    for day in ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%Y-%m")
    for time in ("", " %H:%M", " %H:%M:%S", "T%H:%M", "T%H:%M:%S")
)
_LOOKED_AT = 1000  # dates
_DAY = timedelta(days=1)


def following(dates: Sequence[str], count: int) -> tuple[str, ...]:
    """Return the `count` dates after the given ones, in their form: days and times a constant step
    apart, the same day of months a constant number apart, or whole numbers. None if they are
    anything else, or the last 1,000 have no constant step.
    """
    last = list(dates[-_LOOKED_AT:])
    if len(last) < 2:
        return ()
    if all(re.fullmatch(r"-?(0|[1-9]\d*)", date) for date in last):
        return _stepped([int(date) for date in last], count, str)
    for form in _FORMS:
        try:
            times = [datetime.strptime(date, form) for date in last]
        except ValueError:
            continue

        def write(time: datetime, form: str = form) -> str:
            return time.strftime(form)

        if [*map(write, times)] != last:
            continue
        return _months(times, count, write) or _stepped(times, count, write)
    return ()


def _stepped(places: Sequence[Any], count: int, write: Callable[[Any], str]) -> tuple[str, ...]:
    """Return what follows places that are all one step apart."""
    step = places[1] - places[0]
    if not step or any(b - a != step for a, b in itertools.pairwise(places)):
        return ()
    try:
        return tuple(write(places[-1] + number * step) for number in range(1, count + 1))
    except (OverflowError, ValueError):  # beyond the year 9999
        return ()


def _months(
    times: Sequence[datetime], count: int, write: Callable[[datetime], str]
) -> tuple[str, ...]:
    """Return what follows the same day and time, or the last day, of months one step apart."""
    last = times[-1]
    ends = all((time + _DAY).day == 1 for time in times)
    same = len({time.day for time in times}) == 1 and last.day <= 28
    if len({time.time() for time in times}) > 1 or not (same or ends):
        return ()

    def written(month: int) -> str:
        behind = month + ends
        first = last.replace(year=behind // 12, month=behind % 12 + 1, day=1)
        return write(first - _DAY if ends else first.replace(day=last.day))

    return _stepped([12 * time.year + time.month - 1 for time in times], count, written)
