"""Predictions as text for people, as CSV and as JSON lines."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, Any

import numpy as np

Row = dict[str, Any]
Write = Callable[[Sequence[Row], Sequence[Row]], None]  # of places and what was predicted there

_BAND = (0, 8)  # the deciles of a forecast in a table: the first and the last


def writer_of(verb: str, form: str, target: IO[str]) -> Write:
    """Return a function that writes predictions, rows of `decoding.predict`, in a format: "text",
    "csv" or "jsonl". A place has the first columns of a row: "file", "line" and "input".
    """
    if form == "jsonl":
        return lambda places, rows: _write_json(target, places, rows)
    if form == "csv":
        return _Table(verb, target).write
    return lambda places, rows: _write_text(verb, target, places, rows)


def _write_json(target: IO[str], places: Sequence[Row], rows: Sequence[Row]) -> None:
    for place, row in zip(places, rows, strict=True):
        print(json.dumps(place | row, ensure_ascii=False), file=target)


class _Table:
    """CSV with a header: a line for each input, for each word of a tagged text, or for each row of
    a forecast.
    """

    def __init__(self, verb: str, target: IO[str]) -> None:
        self._flat = _FLAT.get(verb, lambda row: iter([row]))
        self._target = target
        self._writer: csv.DictWriter | None = None

    def write(self, places: Sequence[Row], rows: Sequence[Row]) -> None:
        """Write some rows, after the header if they are the first."""
        for place, row in zip(places, rows, strict=True):
            for line in self._flat(row):
                whole = place | line
                if self._writer is None:
                    self._writer = csv.DictWriter(self._target, [*whole], lineterminator="\n")
                    self._writer.writeheader()
                self._writer.writerow(whole)


def _of_classes(row: Row) -> Iterator[Row]:
    fields: Row = {}
    for rank, (name, share) in enumerate(row["probabilities"].items(), 1):
        number = f"_{rank}" if rank > 1 else ""
        fields |= {f"class{number}": name, f"probability{number}": share}
    yield fields


def _of_words(row: Row) -> Iterator[Row]:
    columns = row["words"], row["labels"], row["probabilities"]
    for number, (word, label, share) in enumerate(zip(*columns, strict=True), 1):
        yield {"number": number, "word": word, "label": label, "probability": share}


def _of_series(row: Row) -> Iterator[Row]:
    names = row["columns"]
    for number, values in enumerate(row["forecast"]):
        line = {"date": _date(row, number), **dict(zip(names, values, strict=True))}
        for level in _BAND if "deciles" in row else ():
            ends = [channel[level] for channel in row["deciles"][number]]
            titles = [f"{name} {10 * (level + 1)} %" for name in names]
            line |= dict(zip(titles, ends, strict=True))
        yield line


def _date(row: Row, number: int) -> str:
    """Return the date of a forecast row, or how many rows behind the end it is."""
    return row["dates"][number] if row["dates"] else f"+{number + 1}"


# What a row becomes in a table, if not one line with its own columns.
_FLAT: dict[str, Callable[[Row], Iterator[Row]]] = {
    "classify": _of_classes, "tag": _of_words, "forecast": _of_series,
}  # fmt: skip


_TABLES = "forecast", "distances"  # several lines as text


def _write_text(verb: str, target: IO[str], places: Sequence[Row], rows: Sequence[Row]) -> None:
    """Write a line for each input, after the name of its file if that is all of the input; several
    lines for a table.
    """
    said = _SAID.get(verb, lambda row: [row["text"]])
    for place, row in zip(places, rows, strict=True):
        of_file = "line" not in place
        if verb in _TABLES and of_file:
            print(f"# {place['file']}", file=target)
        for line in said(row):
            named = f"{place['file']}\t" if of_file and verb not in _TABLES else ""
            print(f"{named}{line}", file=target)


def _table_of(row: Row) -> Iterable[str]:
    yield "\t".join(["date", *row["columns"]])
    for number, values in enumerate(row["forecast"]):
        yield "\t".join([_date(row, number), *(f"{value:.6g}" for value in values)])


_SAID: dict[str, Callable[[Row], Iterable[str]]] = {
    "classify": lambda row: [", ".join(f"{k} {p:.3f}" for k, p in row["probabilities"].items())],
    "tag": lambda row: [" ".join(row["labels"])],
    "answer": lambda row: [row["answer"]],
    "value": lambda row: [f"{row['value']:.6g}"],
    "reward": lambda row: [f"{row['reward']:.6g}"],
    "act": lambda row: [" ".join(f"{x:.6g}" for x in np.atleast_1d(row["action"]))],
    "forecast": _table_of,
    "distances": lambda row: ["\t".join(f"{x:.6g}" for x in line) for line in row["distances"]],
}
