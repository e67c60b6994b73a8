"""Successive halving (Jamieson and Talwalkar 2016, arXiv:1502.07943): all points of a sweep train
for a part of their updates, the best of them go on from there to several times as many, and so on.

Rungs end at validations, so that a point that goes on is as if it had never stopped; what they
decide follows from metrics.jsonl alone, and the same command resumes anywhere.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.config.metrics import standing
from transformer_jax.runs.workdir import read_rows
from transformer_jax.sweeps import sweep
from transformer_jax.sweeps.points import Point

_PREFIX = "validation_"


@dataclass
class Account:
    """What a halving has done, for its last lines."""

    rungs: list[tuple[int, str]]  # points, and the update to which they were trained
    updates: int = 0
    whole: int = 0  # updates that all points would take
    looks: int = 0  # validations among which the best was chosen
    best: Point | None = None
    score: float = math.nan

    def lines(self, every: int) -> Iterator[str]:
        """Yield what was done, and how far the best score is to be trusted."""
        rungs = ", ".join(f"{count} to update {step}" for count, step in self.rungs)
        done = f"points trained {rungs}" if rungs else "no point trained"
        share = self.updates / max(self.whole, 1)
        yield (
            f"halving: {done}; {self.updates:,} of the {self.whole:,} updates of all points, "
            f"{share:.0%}"
        )
        if self.best is None:
            yield "no point has a validation score"
            return
        by = self.best.experiment.checkpoint.best_by
        yield (
            f"best: {self.best.name}, validation {by} {self.score:.4g}, chosen among {self.looks} "
            f"validations of {every} points; a choice among many flatters its score, so report one "
            "on data that chose nothing, as with --evaluate=test"
        )


def check(points: Sequence[Point], factor: int) -> None:
    """Check that there are points for several rungs, each of which ends at a validation of its own.

    Raises:
      UserError: if not.
    """
    if factor < 2:
        raise UserError(f"--halve={factor}: must be at least 2, of how many points one goes on")
    if len(points) < factor:
        raise UserError(
            f"--halve={factor}: of {len(points)} points none would go on; give at least {factor}, "
            "or leave it out"
        )
    for point in points:
        training = point.experiment.training
        for field in ("max_minutes", "early_stopping", "pause"):
            if (value := getattr(training, field)) is not None:
                raise UserError(
                    f"training.{field}={value}: a point may end before its rung, and --halve="
                    f"{factor} decides who goes on; set it to None"
                )
        rungs = range(_last(len(points), factor) + 1)
        ends = [_end(point, rung, factor, len(points)) for rung in rungs]
        if len({*ends}) < len(ends):
            every = point.experiment.evaluation.every_steps
            first = max(training.steps // factor ** (len(ends) - 1), 1)
            raise UserError(
                f"evaluation.every_steps={every}: points are compared after about {first} of "
                f"{training.steps} updates, in {len(ends)} rungs that would end at {ends}; lower "
                "it, or choose a larger --halve"
            )


def run(
    points: Sequence[Point], directory: Path, jobs: int, factor: int, split: str | None,
    watcher: sweep.Watcher,
) -> tuple[int, Account]:  # fmt: skip
    """Train the points in rungs, and score those of the last on `split` if given; return the exit
    code of `sweep.run` and an account.
    """
    record, alive, count = sweep.Record(directory), list(points), len(points)
    account = Account([], whole=sum(point.experiment.training.steps for point in points))
    reached = {point.name: 0 for point in points}
    code, last = 0, _last(count, factor)
    for rung in range(last + 1):
        ends = {point.name: _end(point, rung, factor, count) for point in alive}
        if rung == last:
            code = sweep.run(alive, directory, jobs, split, watcher)
        else:
            due = [_until(p, ends[p.name]) for p in alive if not _scores(p, ends[p.name], True)]
            due = [point for point in due if record.code(point) != sweep.DIVERGED]
            code = sweep.run(due, directory, jobs, None, watcher)
        if code not in (sweep.FINISHED, sweep.DIVERGED):
            break
        reached |= ends
        steps = sorted({*ends.values()})
        account.rungs.append((len(alive), "-".join(map(str, (steps[0], *steps[1:][-1:])))))
        ranked = [
            point for point in alive
            if _scores(point, ends[point.name]) and record.code(point) != sweep.DIVERGED
        ]  # fmt: skip
        ranked.sort(key=lambda point: _standing(point, ends[point.name]), reverse=True)
        alive = ranked[: max(len(alive) // factor, 1)]
        if not alive:
            break
    account.updates = sum(reached.values())
    account.looks = sum(len(_scores(point, reached[point.name])) for point in points)
    if alive and account.rungs:
        best = alive[0]
        by = best.experiment.checkpoint.best_by
        rows = _scores(best, reached[best.name])
        account.best = best
        account.score = max(rows, key=lambda row: standing(row, by))[by]
    return code, account


def further(count: int, factor: int) -> int:
    """Return how many points go on in all rungs but the first together."""
    return 0 if count < factor else count // factor + further(count // factor, factor)


def _last(count: int, factor: int) -> int:
    """Return the number of the last rung of so many points, the first being 0."""
    return 0 if count < factor else 1 + _last(count // factor, factor)


def _end(point: Point, rung: int, factor: int, count: int) -> int:
    """Return the update at which a rung of a point ends: of the last, that of its training."""
    steps, every = point.experiment.training.steps, point.experiment.evaluation.every_steps
    share = factor ** (_last(count, factor) - rung)
    return steps if share == 1 else min(math.ceil(steps / share / every) * every, steps)


def _until(point: Point, step: int) -> Point:
    """Return a point that pauses at a step."""
    training = replace(point.experiment.training, pause=step)
    return replace(
        point, experiment=replace(point.experiment, training=training),
        arguments=(*point.arguments, f"--config.training.pause={step}"),
    )  # fmt: skip


def _scores(point: Point, step: int, at: bool = False) -> list[dict[str, Any]]:
    """Return the validation scores up to a step, or none unless it was reached."""
    by = _PREFIX + point.experiment.checkpoint.best_by
    rows = [row for row in read_rows(point.workdir.metrics) if row.get(by) is not None]
    if at and all(row["step"] < step for row in rows):
        return []
    return [
        {key.removeprefix(_PREFIX): x for key, x in row.items() if key.startswith(_PREFIX)}
        for row in rows
        if row["step"] <= step
    ]


def _standing(point: Point, step: int) -> tuple[float, float]:
    """Return the place of a point among others by the best of its scores up to a step."""
    by = point.experiment.checkpoint.best_by
    return max(standing(row, by) for row in _scores(point, step))
