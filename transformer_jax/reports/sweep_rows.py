"""The points of a sweep, read from its directory, and their table."""

import contextlib
import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.config import Experiment
from transformer_jax.config.convert import differences, value_at
from transformer_jax.config.metrics import validation
from transformer_jax.reports import runs
from transformer_jax.reports.compare import against_first
from transformer_jax.reports.runs import Run
from transformer_jax.reports.systems import read_scored
from transformer_jax.reports.verdict import verdict
from transformer_jax.runs.workdir import WorkDir
from transformer_jax.sweeps import table
from transformer_jax.sweeps.points import Point, shown
from transformer_jax.sweeps.scores import is_scored, read_scores, score_file
from transformer_jax.sweeps.state import unscored
from transformer_jax.sweeps.sweep import Record

_SELDOM_SWEPT = ("data.directory", "data.how_to_get", "profile.", "mesh.")
_DRAWS = 1000  # for both tests: tables have many rows


def is_sweep(directory: Path) -> bool:
    """Say whether a directory holds work directories and is not one itself."""
    return not (directory / "config.json").exists() and any(directory.glob("*/config.json"))


def points(directory: Path) -> list[Point]:
    """Return a sweep's points, with the fields that differ between them as their settings.

    If directories are named after variants of the config file, the fields of a variant are not
    settings; only those that differ within one are.

    Raises:
      UserError: if a point's config.json is damaged.
    """
    places = [WorkDir(path.parent) for path in sorted(directory.glob("*/config.json"))]
    experiments = [place.experiment() for place in places]
    heads = [place.path.name.partition(",")[0] for place in places]
    variants = [""] * len(heads) if any("=" in head for head in heads) else heads
    of_variant: dict[str, list[tuple[WorkDir, Experiment]]] = {}
    for variant, place, experiment in zip(variants, places, experiments, strict=True):
        of_variant.setdefault(variant, []).append((place, experiment))
    differing = sorted({path for same in of_variant.values() for path in _differing(same)})
    return [
        Point(
            variant, {path: value_at(experiment, path) for path in differing}, experiment, place, ()
        )
        for variant, experiment, place in zip(variants, experiments, places, strict=True)
    ]


def _differing(found: Sequence[tuple[WorkDir, Experiment]]) -> list[str]:
    """Return the paths of the fields that differ and either are in a name, or may affect scores."""
    first, names = found[0][1], [place.path.name for place, _ in found]
    paths = {path for _, other in found for path in differences(first, other)}
    return sorted(
        path for path in paths
        if not path.startswith(_SELDOM_SWEPT) or any(f"{path}=" in name for name in names)
    )  # fmt: skip


def published(directory: Path) -> dict[str, dict[str, float | None]]:
    """Return the published figures of the variants from table.csv, if it exists."""
    scores: dict[str, dict[str, float | None]] = {}
    with contextlib.suppress(OSError), open(directory / "table.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            scores[row.get("variant", "")] = {
                name.removeprefix("published "): float(text)
                for name, text in row.items()
                if name.startswith("published ") and text
            }
    return scores


def tabulated(directory: Path, split: str | None) -> list[table.Row]:
    """Return the current table of a sweep's directory, with means over seeds."""
    return table.tabulate(points(directory), directory, split, published(directory))


def compare(tabled: Sequence[table.Row], split: str | None) -> None:
    """Test each row of a table against the first on what eval.py stored for a split, comparing
    points with the same seed, and record in the rows the p-values of scores that were tested with
    every seed of both.
    """
    base = {point.experiment.seed: point for row in tabled[:1] for point in row.points}
    for row in tabled[1:]:
        own = {point.experiment.seed: point for point in row.points}
        each = [_p_values(base.get(seed), own.get(seed), split) for seed in base | own]
        for column in each[0]:
            if all(column in p_values for p_values in each):
                row.p_values[column] = max(p_values[column] for p_values in each)


def _p_values(one: Point | None, other: Point | None, split: str | None) -> dict[str, float]:
    """Return the largest p-value of each score's tests; {} unless there are both points, scored."""
    if one is None or other is None or split is None:
        return {}
    if not (is_scored(one, split) and is_scored(other, split)):
        return {}
    try:
        systems = [
            read_scored(str(score_file(point, split).with_suffix("")),
                        point.experiment.objective.kind, point.name, "")
            for point in (one, other)
        ]  # fmt: skip
    except UserError:  # written by an older version
        return {}
    searched = systems[1].decoding is not None
    return {
        table.column_of(split, result.metric, searched): max(result.p_values.values())
        for result in against_first(systems, _DRAWS)
        if result.metric in read_scores(other, split)["scores"]
    }


def rows(
    found: Sequence[Point], directory: Path, split: str | None
) -> tuple[dict[str, Any], list[Run]]:
    """Return the table of a sweep, a row per point, the best validation first, and the runs that
    have metrics, in the same order.

    Raises:
      UserError: if no point has metrics yet.
    """
    figures = published(directory)
    differing = _differing([(point.workdir, point.experiment) for point in found])
    listed, record = [], Record(directory)
    for point in found:
        checkpoint = point.experiment.evaluation.checkpoint
        run = Run(point.name, point.workdir, point.experiment, checkpoint)
        row = _row(point, run, record, differing, split)
        known = figures.get(point.variant, {})
        listed.append((run, row | {"published": {f"published {k}": v for k, v in known.items()}}))
    first = found[0].experiment
    best_by = validation(first.checkpoint.best_by, first.objective.kind)
    by = f"validation {best_by.title}"
    listed.sort(key=lambda item: best_by.rank(item[1]["measured"].get(by)))
    places = {point.name: point for point in found}
    base = places[listed[0][1]["name"]]
    for _, row in listed[1:]:
        p_values = _p_values(base, places[row["name"]], split)
        row["measured"] |= {f"{column} p": p for column, p in p_values.items()}
    columns = {
        kind: list(dict.fromkeys(key for _, row in listed for key in row[kind]))
        for kind in ("settings", "measured", "published")
    }
    seen = [run for run, _ in listed if run.metrics]
    if not seen:
        raise UserError(f"{directory}: no point has metrics yet; wait for the first rows")
    sweep = {"directory": str(directory), "fields": columns["settings"],
             "scores": columns["measured"], "published": columns["published"], "by": by,
             "greater_is_better": best_by.greater_is_better,
             "verdict": verdict([row for _, row in listed], by, best_by),
             "rows": [row for _, row in listed]}  # fmt: skip
    return sweep, seen


def _row(
    point: Point, run: Run, record: Record, differing: Sequence[str], split: str | None
) -> dict[str, Any]:
    settings = {"variant": point.variant} if point.variant else {}
    settings |= {path: _plain(value_at(point.experiment, path)) for path in differing}
    measured: dict[str, float | None] = {}
    for column, value in table.measure(point, split).items():
        measured[column] = _finite(value)
        if column == "minutes" and (seconds := runs.seconds(run)):
            measured["minutes in all"] = sum(seconds.values()) / 60
    state = runs.state(run)
    trained = state == "finished"
    if trained:
        state = unscored(point, record, split) or state
    return {"name": point.name, "settings": settings, "measured": measured,
            "state": state, "trained": trained, "command": runs.facts(run)["command"]}  # fmt: skip


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str) else shown(value)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
