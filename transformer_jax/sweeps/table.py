"""The results table of a sweep: a row per setting, means over seeds; as text, CSV and Markdown."""

import csv
import io
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from transformer_jax.base.disk import write_text, writing
from transformer_jax.base.errors import UserError
from transformer_jax.config.metrics import VALIDATION, standing, validation
from transformer_jax.data.codecs.pair import TokenizerPair, expected_sizes
from transformer_jax.runs.workdir import minutes_of, read_rows
from transformer_jax.sweeps.points import Point, shown
from transformer_jax.sweeps.scores import is_scored, read_scores
from transformer_jax.sweeps.state import is_trained, state_of
from transformer_jax.sweeps.sweep import Record
from transformer_jax.training import cost

Published = Mapping[str, Mapping[str, float | None]]  # variant -> {column: value}
_FORMATS = {"parameters": ",.0f", "minutes": ".1f"}


@dataclass(frozen=True)
class Row:
    """A setting, and the measurements for each seed."""

    settings: dict[str, str]  # swept field, or "variant" -> value; without the seed
    measured: dict[str, list[float]] = field(default_factory=dict)  # column -> a value per seed
    published: dict[str, float] = field(default_factory=dict)  # column -> value
    states: list[str] = field(default_factory=list)  # of the points that are not finished
    points: list[Point] = field(default_factory=list)
    # column -> p of the difference from the first row, the largest over tests and seeds
    p_values: dict[str, float] = field(default_factory=dict)

    def mean(self, column: str) -> float:
        """Return the mean over seeds; NaN without any value."""
        values = self.measured.get(column, [])
        return statistics.fmean(values) if values else math.nan

    def spread(self, column: str) -> float | None:
        """Return the sample standard deviation over seeds; None with fewer than two."""
        values = self.measured.get(column, [])
        return statistics.stdev(values) if len(values) > 1 else None


def tabulate(
    points: Sequence[Point], directory: Path, split: str | None, published: Published | None = None
) -> list[Row]:
    """Return the rows, best validation score first; variants keep the given order.

    A point whose training has not come to its end is left out of its row's means, unless the row
    has no other.
    """
    rows: dict[tuple, Row] = {}
    record = Record(directory)
    trained = {point.name for point in points if is_trained(point, record)}
    averaged = {tuple(_settings(point).items()) for point in points if point.name in trained}
    for point in points:
        settings = _settings(point)
        key = tuple(settings.items())
        row = rows.setdefault(key, Row(settings))
        row.published.update(
            (f"published {name}", value)
            for name, value in (published or {}).get(point.variant, {}).items()
            if value is not None
        )
        row.points.append(point)
        left_out = key in averaged and point.name not in trained
        for column, value in ({} if left_out else measure(point, split)).items():
            row.measured.setdefault(column, []).append(value)
        state = state_of(point, record, split)
        if state:
            row.states.append(f"{state}, left out of the mean" if left_out else state)
    if any(point.variant for point in points):
        return list(rows.values())
    first = points[0].experiment
    by = validation(first.checkpoint.best_by, first.objective.kind)
    return sorted(rows.values(), key=lambda row: by.rank(row.mean(f"validation {by.title}")))


def _settings(point: Point) -> dict[str, str]:
    """Return the settings that tell a row from others."""
    settings = {"variant": point.variant} if point.variant else {}
    return settings | {path: shown(v) for path, v in point.settings.items() if path != "seed"}


def measure(point: Point, split: str | None) -> dict[str, float]:
    """Return parameters, minutes of training and scores, if a point's directory has them."""
    measured: dict[str, float] = {"parameters": parameters(point)}
    if not point.belongs():
        return measured
    if minutes := training_minutes(point):  # unknown before the first row of timings
        measured["minutes"] = minutes
    best = best_validation(point)
    for name in VALIDATION:
        if name in best:
            metric = validation(name, point.experiment.objective.kind)
            measured[f"validation {metric.title}"] = metric.shown(best[name])
    if split is not None and is_scored(point, split):
        written = read_scores(point, split)
        for title, score in written["scores"].items():
            measured[column_of(split, title, bool(written.get("decoding", True)))] = score["value"]
    return measured


def column_of(split: str, title: str, searched: bool) -> str:
    """Return the column of a score that eval.py wrote."""
    return f"{split} {title}{', beam' * searched}"


def parameters(point: Point) -> int:
    """Return the number of parameters."""
    experiment = point.experiment
    return cost.parameters(experiment.model, sizes(point), experiment.objective)


def sizes(point: Point) -> cost.Sizes:
    """Return the vocabulary sizes: the expected ones until the tokenizer exists."""
    experiment = point.experiment
    joint, codecs = experiment.tokenizer.joint, experiment.codecs
    try:
        tokenizers = TokenizerPair.load(point.workdir.path, joint, codecs)
    except UserError:  # there is none yet
        return expected_sizes(experiment)
    return tokenizers.src.size, tokenizers.tgt.size


def best_validation(point: Point) -> dict[str, float]:
    """Return the scores of the best validation so far; {} before the first."""
    by = point.experiment.checkpoint.best_by
    prefix = "validation_"
    scores = [
        {key.removeprefix(prefix): value for key, value in row.items()
         if key.startswith(prefix) and value is not None}
        for row in read_rows(point.workdir.metrics)
    ]  # fmt: skip
    known = [row for row in scores if by in row]
    return max(known, key=lambda row: standing(row, by), default={})


def training_minutes(point: Point) -> float:
    """Return the minutes of training so far, excluding validation and saving."""
    return minutes_of(read_rows(point.workdir.timings))[-1]


# --- formats --------------------------------------------------------------------------------------


def write(rows: Sequence[Row], directory: Path) -> None:
    """Write table.txt, table.csv and table.md."""
    with writing(f"{directory}/table.*", directory.absolute()):
        directory.mkdir(parents=True, exist_ok=True)
        for name, form in (("txt", as_text), ("csv", as_csv), ("md", as_markdown)):
            write_text(directory / f"table.{name}", form(rows))


def as_text(rows: Sequence[Row]) -> str:
    """Return aligned columns."""
    cells = _cells(rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    words = [i < len(rows[0].settings) or name == "state" for i, name in enumerate(cells[0])]

    def line(row: list[str]) -> str:
        padded = [
            cell.ljust(width) if word else cell.rjust(width)
            for cell, width, word in zip(row, widths, words, strict=True)
        ]
        return "  ".join(padded).rstrip() + "\n"

    return "".join(map(line, cells)) + _legend(rows)


def as_markdown(rows: Sequence[Row]) -> str:
    """Return a Markdown table."""
    head, *body = _cells(rows)
    marks = ["---" if i < len(rows[0].settings) else "---:" for i in range(len(head))]
    escaped = [[cell.replace("|", r"\|") for cell in row] for row in (head, marks, *body)]
    legend = _legend(rows).replace("*", r"\*")
    return "".join(f"| {' | '.join(row)} |\n" for row in escaped) + f"\n{legend}" * bool(legend)


def _legend(rows: Sequence[Row]) -> str:
    if not any(row.p_values for row in rows):
        return ""
    return "* differs from the first row: p < 0.05 in every paired test, with every seed\n"


def as_csv(rows: Sequence[Row]) -> str:
    """Return plain numbers: a column per mean, and one for its spread if there is one."""
    settings, measured, published = _columns(rows)
    spreads = {column: any(row.spread(column) is not None for row in rows) for column in measured}
    head = [*settings]
    for column in measured:
        head += [column, f"{column} spread"] if spreads[column] else [column]
        head += [f"{column} p"] * any(column in row.p_values for row in rows)
    text = io.StringIO()
    writer = csv.DictWriter(
        text, [*head, *published, "seeds", "state"], restval="", lineterminator="\n"
    )
    writer.writeheader()
    for row in rows:
        values: dict[str, object] = {**row.settings, **row.published}
        for column in row.measured:
            values[column] = f"{row.mean(column):.10g}"
            if row.spread(column) is not None:
                values[f"{column} spread"] = f"{row.spread(column):.10g}"
        values |= {f"{column} p": f"{p:.4g}" for column, p in row.p_values.items()}
        seeds = max(map(len, row.measured.values()))
        writer.writerow({k: v for k, v in values.items() if k in head or k in published}
                        | {"seeds": seeds, "state": "; ".join(row.states)})  # fmt: skip
    return text.getvalue()


def _columns(rows: Sequence[Row]) -> tuple[list[str], list[str], list[str]]:
    """Return the column names of settings, of measurements and of published figures."""
    measured = dict.fromkeys(column for row in rows for column in row.measured)
    published = dict.fromkeys(column for row in rows for column in row.published)
    return list(rows[0].settings), list(measured), list(published)


def _cells(rows: Sequence[Row]) -> list[list[str]]:
    settings, measured, published = _columns(rows)
    state = any(row.states for row in rows)
    cells = [[*settings, *measured, *published, *["state"] * state]]
    for row in rows:
        shown_values = [_shown(row, column) for column in measured]
        known = [f"{row.published[c]:g}" if c in row.published else "" for c in published]
        states = ["; ".join(dict.fromkeys(row.states))] if state else []
        cells.append([*row.settings.values(), *shown_values, *known, *states])
    return cells


def _shown(row: Row, column: str) -> str:
    if column not in row.measured:
        return ""
    form = _FORMATS.get(column, ".2f")
    mean, spread = f"{row.mean(column):{form}}", row.spread(column)
    shown = mean if not spread else f"{mean} ± {spread:{form}} ({len(row.measured[column])})"
    return shown + "*" * (row.p_values.get(column, 1.0) < 0.05)
