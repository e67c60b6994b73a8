"""The state of a point: its progress, or how it failed."""

from typing import get_args

from transformer_jax.data.sources import Split
from transformer_jax.sweeps.points import Point
from transformer_jax.sweeps.scores import disagreement, is_scored
from transformer_jax.sweeps.sweep import DIVERGED, FINISHED, Record


def state_of(point: Point, record: Record, split: str | None) -> str:
    """Return "" for a finished point, else its progress or how it failed."""
    code = record.code(point)
    if code == DIVERGED:
        return "diverged"
    due = [name for name, _ in record.due(point, split)]
    if "train" not in due:
        return unscored(point, record, split) or ("not scored" if due else "")
    step = f"step {point.step()} of {point.experiment.training.steps}"
    return f"{step}, exit code {code}" if code not in (None, FINISHED) else step


def is_trained(point: Point, record: Record) -> bool:
    """Say whether training has come to its end, so that its scores are those of the setting."""
    return not record.due(point, None) and record.code(point) != DIVERGED


def unscored(point: Point, record: Record, split: str | None) -> str:
    """Return why a point that should be evaluated on `split` (None: on any) has no scores; "" if it
    has some, or if no evaluation was requested.
    """
    splits = get_args(Split) if split is None else (split,)
    if any(is_scored(point, name) for name in splits):
        return ""
    code = record.code(point, "evaluate")
    if code not in (None, FINISHED):
        return f"evaluation failed, exit code {code}"
    return next(filter(None, (disagreement(point, name) for name in splits)), "")
