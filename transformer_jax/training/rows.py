"""metrics.jsonl and timings.jsonl at a start: brought into line with the checkpoint."""

import logging
from collections.abc import Mapping
from typing import Any

from transformer_jax.runs.workdir import WorkDir, read_rows, write_rows

log = logging.getLogger("transformer_jax")

Rows = list[dict[str, Any]]
Scored = Mapping[int, dict[str, float]]  # validation scores by step


def validation_row(step: int, scores: dict[str, float]) -> dict[str, Any]:
    """Return the row of a validation."""
    return {"step": step, **{f"validation_{key}": value for key, value in scores.items()}}


def take_up(workdir: WorkDir, state: dict[str, Any], scored: Scored, log_every: int) -> int:
    """Align the rows with a checkpoint of this `state`, and return how many metrics.jsonl has.

    Rows after its step are dropped, and its own validation unless it is `scored`. Lost validations
    are restored from `scored`; a warning names whatever else was lost.
    """
    start = int(state.get("step", 0))

    def keep(row: dict[str, Any]) -> bool:
        return row["step"] < start + (start in scored or not _is_validation(row))

    for path in (workdir.metrics, workdir.timings, *workdir.reports.values()):
        rows = [row for row in read_rows(path) if keep(row)]
        if path == workdir.metrics:
            rows = _restored(rows, {step: scored[step] for step in scored if step <= start})
            _warn_of_missing(rows, state, start in scored, log_every)
            count = len(rows)
        if rows or path.exists():
            write_rows(path, rows)
    return count


def _restored(rows: Rows, scored: Scored) -> Rows:
    there = {row["step"] for row in rows if _is_validation(row)}
    lost = sorted(scored.keys() - there)
    if lost:
        named = ", ".join(map(str, lost))
        log.warning("metrics.jsonl: validation of step %s restored from the checkpoint", named)
    new = [validation_row(step, scored[step]) for step in lost]
    # A step's validation comes after its other row.
    return sorted([*rows, *new], key=lambda row: (row["step"], _is_validation(row)))


def _warn_of_missing(rows: Rows, state: dict[str, Any], validated: bool, log_every: int) -> None:
    expected = state.get("rows", len(rows) - validated) + validated  # older ones have none
    if len(rows) >= expected:
        return
    trained = {row["step"] for row in rows if not _is_validation(row)}
    steps = [n for n in range(log_every, int(state["step"]) + 1, log_every) if n not in trained]
    # They are known if `training.log_every` never changed.
    named = f" (steps {', '.join(map(str, steps))})" * (len(steps) == expected - len(rows))
    log.warning(
        "metrics.jsonl: %d of %d rows up to step %d were lost%s and cannot be restored; the "
        "checkpoint is intact and training resumes from it",
        expected - len(rows), expected, state["step"], named,
    )  # fmt: skip


def _is_validation(row: dict[str, Any]) -> bool:
    return "validation_loss" in row
