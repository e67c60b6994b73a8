"""Time series in CSV files: a header, a date in the first column, a number in each other column."""

import csv
import math
import re
from pathlib import Path

import numpy as np

from transformer_jax.config import DataConfig
from transformer_jax.disk import user_path
from transformer_jax.errors import UserError

_PART = re.compile(r"(.+?)(?:\[(\d*):(\d*)\])?")


def load(config: DataConfig, split: str, context: int) -> tuple[list[str], list[np.ndarray]]:
    """Return no sources, and a series for each part of a split, float64 [rows channels].

    A part "NAME[FIRST:LAST]" is those rows of NAME.csv, from 0 and excluding LAST, as in Python. In
    validation and test only these rows are predicted; up to `context` preceding rows are included
    as input.

    Raises:
      UserError: if a file is missing or malformed; names the line.
    """
    found: list[np.ndarray] = []
    for part in getattr(config, split):
        name, first, last = _PART.fullmatch(part).groups()  # type: ignore[union-attr]
        path = user_path(config.directory or ".") / f"{name}.csv"
        values = read(path, config, split)
        begin, end = int(first or 0), int(last or len(values))
        if not begin < end <= len(values):
            raise UserError(
                f"config.data.{split}={part!r}: {path} has rows 0 to {len(values) - 1}; choose "
                f"among them, as in {name}[0:{len(values)}]"
            )
        before = 0 if split == "train" else min(context, begin)
        found.append(values[begin - before : end])
    return [], found


def read(path: Path, config: DataConfig, split: str) -> np.ndarray:
    """Return the numbers of a file, float64 [rows channels].

    Raises:
      UserError: see `load`.
    """
    if not path.is_file():
        raise UserError(
            f"config.data.{split}: there is no {path.absolute()}; set --config.data.directory to "
            f"its location, or --config.data.{split} to the name of a file without .csv"
            + (f". Get it with: {config.how_to_get}" if config.how_to_get else "")
        )
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = csv.reader(file)
            header = next(lines, [])
            rows = [_numbers(path, lines.line_num, header, row) for row in lines]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{path}: cannot be read as comma-separated values ({error})") from None
    if len(header) < 2 or not rows:
        raise UserError(
            f"{path}: contains no series; it needs a header, and lines of a date and a number for "
            "each channel"
        )
    return np.array(rows)


def _numbers(path: Path, line: int, header: list[str], row: list[str]) -> list[float]:
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
