"""Training curves of a run against steps, tokens and minutes, from its logged rows."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from transformer_jax.config.metrics import GAUGES, NOISE, ROLLOUTS, VALIDATION
from transformer_jax.runs.workdir import minutes_of

Rows = list[dict[str, Any]]
Along = Callable[[Sequence[int]], np.ndarray]


def curves(metrics: Rows, timings: Rows, most: int = 1000) -> dict[str, Any]:
    """Return columns of training, validation and throughput, at most `most` rows each."""
    minutes, tokens = minutes_along(timings), tokens_along(metrics)

    def columns(rows: Rows, *names: str) -> dict[str, list]:
        rows = _thinned([row for row in rows if names[0] in row], most)
        at = [row["step"] for row in rows]
        places = {"step": at, "minutes": _rounded(minutes(at)), "tokens": _rounded(tokens(at))}
        return places | {name: _rounded([_shown(name, row) for row in rows]) for name in names}

    return {
        "train": columns(
            metrics, "loss", "nll", "accuracy", "grad_norm", *GAUGES, *NOISE, *ROLLOUTS,
            "learning_rate"
        ),
        "validation": columns(
            metrics, "validation_loss",
            *(f"validation_{name}" for name in VALIDATION if name != "loss"),
        ),
        "rate": columns(timings, "target_tokens_per_s"),
    }  # fmt: skip


def minutes_along(timings: Rows) -> Along:
    """Return a function from steps to minutes of training."""
    return _along([0, *(row["step"] for row in timings)], minutes_of(timings))


def tokens_along(metrics: Rows) -> Along:
    """Return a function from steps to target tokens."""
    rows = [row for row in metrics if "loss" in row]
    return _along([0, *(r["step"] for r in rows)], [0, *(r["target_tokens"] for r in rows)])


def _along(steps: Sequence[int], values: Sequence[float]) -> Along:
    """Return the piecewise linear function through these points, extended past the last with the
    last slope: a run may end between two logged rows.
    """

    def at(wanted: Sequence[int]) -> np.ndarray:
        beyond = np.maximum(np.asarray(wanted, float) - steps[-1], 0)
        slope = (values[-1] - values[-2]) / (steps[-1] - steps[-2]) if len(steps) > 1 else 0.0
        return np.interp(wanted, steps, values) + slope * beyond

    return at


def _shown(name: str, row: dict[str, Any]) -> float | None:
    """Return a value as tables show it; losses stay in nats."""
    value, score = row.get(name), name.removeprefix("validation_")
    if value is None or score in (name, "loss"):
        return value
    return VALIDATION[score].shown(value)


def _thinned(rows: Rows, most: int) -> Rows:
    stride = -(-len(rows) // most) or 1
    return rows[::-1][::stride][::-1]  # keeps the last row


def _rounded(values: Iterable[Any]) -> list[float | None]:
    return [None if value is None else float(f"{value:.6g}") for value in values]
