"""Optimizers and schedules of the learning rate."""

from dataclasses import dataclass
from typing import Any

from transformer_jax.config.bounds import check
from transformer_jax.config.choices.record import Record


@dataclass(frozen=True, kw_only=True)
class Schedule(Record):
    """What is known about a schedule.

    factor: whether `learning_rate` is a factor of a rate that follows from the model's width; else
      it is the peak.
    """

    factor: bool = False


SCHEDULES = {
    "paper": Schedule(factor=True),
    "inverse_sqrt": Schedule(),
    "linear": Schedule(),
    "cosine": Schedule(),
    "constant": Schedule(),
}


def check_learning_rate(optimizer: Any) -> None:
    """Reject a peak that was meant as a factor, or the other way round."""
    schedule = SCHEDULES.get(optimizer.schedule)
    said = f"learning_rate={optimizer.learning_rate}: with schedule={optimizer.schedule!r} it is"
    if schedule is not None and schedule.factor:
        check(optimizer.learning_rate >= 0.01, f"{said} a factor, about 1; must be at least 0.01")
    else:
        check(optimizer.learning_rate < 0.1, f"{said} the peak, about 0.001; must be below 0.1")
