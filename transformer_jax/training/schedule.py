"""Learning-rate schedules as functions of the update count. The first update is step 1."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import jax.numpy as jnp
import optax

from transformer_jax.config import OptimizerConfig
from transformer_jax.config.choices.optimizers import SCHEDULES as RECORDS
from transformer_jax.config.registry import pick


def make_schedule(
    config: OptimizerConfig, d_model: int, total_steps: int, restarts: Sequence[int] = ()
) -> optax.Schedule:
    """Return the config's schedule; optax calls it with the number of updates done."""
    numbers = config.learning_rate, config.warmup_steps, total_steps
    return schedule_of(config, d_model, *numbers, restarts)


def schedule_of(
    config: OptimizerConfig, d_model: int, peak: Any, warmup: Any, total: Any,
    restarts: Sequence[int] = (),
) -> optax.Schedule:  # fmt: skip
    """Return the schedule that a config names, with other numbers, which may be traced. After each
    of the updates in `restarts` it begins again, and ends at the next or the last.
    """
    schedule = pick(SCHEDULES, config.schedule, "config.optimizer.schedule")
    known = RECORDS.get(config.schedule)
    own = {name: getattr(config, name) for name in (known.reads if known else ())}
    ends = pairwise((0, *restarts, total))
    pieces = [schedule(peak, warmup, end - start, d_model, **own) for start, end in ends]

    def rate(count: Any) -> Any:
        step = jnp.asarray(count, jnp.float32) + 1
        now = pieces[0](step)
        for start, piece in zip(restarts, pieces[1:], strict=True):
            now = jnp.where(step > start, piece(jnp.maximum(step - start, 1)), now)
        return now

    return rate


def _paper(factor: Any, warmup: Any, total: Any, d_model: int) -> Callable:
    """Paper 5.3, equation 3."""

    def rate(step):
        return (
            factor
            * d_model**-0.5
            * jnp.minimum(step**-0.5, step * jnp.asarray(warmup, jnp.float32) ** -1.5)
        )

    return rate


def _warm(peak: Any, warmup: Any, decay: Callable) -> Callable:
    return lambda step: peak * jnp.where(step < warmup, step / warmup, decay(step))


def _inverse_sqrt(peak: Any, warmup: Any, total: Any, d_model: int) -> Callable:
    return _warm(peak, warmup, lambda step: (warmup / step) ** 0.5)


def _linear(peak: Any, warmup: Any, total: Any, d_model: int) -> Callable:
    return _warm(peak, warmup, lambda step: 1 - _progress(step, warmup, total))


def _cosine(peak: Any, warmup: Any, total: Any, d_model: int) -> Callable:
    return _warm(
        peak, warmup, lambda step: 0.5 + 0.5 * jnp.cos(jnp.pi * _progress(step, warmup, total))
    )


def _constant(peak: Any, warmup: Any, total: Any, d_model: int) -> Callable:
    return _warm(peak, warmup, jnp.ones_like)


def _wsd(peak: Any, warmup: Any, total: Any, d_model: int, decay_share: float) -> Callable:
    start = total - decay_share * total
    return _warm(peak, warmup, lambda step: 1 - _progress(step, start, total))


def _one_cycle(peak: Any, warmup: Any, total: Any, d_model: int) -> Callable:
    """With torch's shares of the peak, 1/25 at first and 1/250,000 of it at last."""

    def between(first: Any, last: Any, share: Any) -> Any:
        return last + (first - last) * (1 + jnp.cos(jnp.pi * jnp.clip(share, 0, 1))) / 2

    low, lowest = peak / 25, peak / 25e4

    def rate(step):
        rising = between(low, peak, (step - 1) / jnp.maximum(warmup - 1, 1))
        falling = between(peak, lowest, (step - warmup) / jnp.maximum(total - warmup, 1))
        return jnp.where(step < warmup, rising, falling)

    return rate


def _progress(step, warmup: Any, total: Any):
    """0 at the end of warm-up, 1 after the last step."""
    return jnp.clip((step - warmup) / jnp.maximum(total + 1 - warmup, 1), 0, 1)


SCHEDULES: dict[str, Callable[..., Callable]] = {
    "paper": _paper,
    "inverse_sqrt": _inverse_sqrt,
    "linear": _linear,
    "cosine": _cosine,
    "constant": _constant,
    "wsd": _wsd,
    "one_cycle": _one_cycle,
}
