"""Learning-rate schedules as functions of the update count. The first update is step 1."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import optax

from transformer_jax.config import OptimizerConfig
from transformer_jax.config.registry import pick


def make_schedule(config: OptimizerConfig, d_model: int, total_steps: int) -> optax.Schedule:
    """Return the config's schedule; optax calls it with the number of updates done."""
    numbers = config.learning_rate, config.warmup_steps, total_steps
    return schedule_of(config.schedule, d_model, *numbers)


def schedule_of(name: str, d_model: int, peak: Any, warmup: Any, total: Any) -> optax.Schedule:
    """Return the schedule of that name; its three numbers may be traced."""
    decay = pick(SCHEDULES, name, "config.optimizer.schedule")(peak, warmup, total, d_model)
    return lambda count: decay(jnp.asarray(count, jnp.float32) + 1)


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


def _progress(step, warmup: Any, total: Any):
    """0 at the end of warm-up, 1 after the last step."""
    return jnp.clip((step - warmup) / jnp.maximum(total + 1 - warmup, 1), 0, 1)


SCHEDULES = {
    "paper": _paper,
    "inverse_sqrt": _inverse_sqrt,
    "linear": _linear,
    "cosine": _cosine,
    "constant": _constant,
}
