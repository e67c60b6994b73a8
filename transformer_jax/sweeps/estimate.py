"""Estimates of a point's training time from finished points, else from this machine's speed."""

import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp

from transformer_jax.sweeps.points import Point
from transformer_jax.sweeps.sweep import Record
from transformer_jax.sweeps.table import sizes, training_minutes
from transformer_jax.training.cost import longest_shape, roughly

# The fraction of a large matrix product's speed that a train step is assumed to reach: good to an
# order of magnitude, until a finished point of the sweep gives a measurement.
_EFFICIENCY = 0.4


def minutes(points: Sequence[Point], directory: Path) -> list[float]:
    """Return the minutes of training of each point, measured if it is finished."""
    record = Record(directory)
    known = {point.name: training_minutes(point) for point in points if not record.due(point, None)}
    # From the steps actually done: a point may have ended early.
    rates = [operations(p) * p.step() / p.experiment.training.steps / known[p.name]
             for p in points if known.get(p.name)]  # fmt: skip
    rate = statistics.median(rates) if rates else 60 * _EFFICIENCY * matrix_speed()
    estimates = []
    for point in points:
        most = point.experiment.training.max_minutes or float("inf")
        estimates.append(known.get(point.name) or min(operations(point) / rate, most))
    return estimates


def operations(point: Point) -> float:
    """Return a run's approximate number of operations in matrix products, at the longest shape."""
    experiment = point.experiment
    step = roughly(experiment, sizes(point), longest_shape(experiment))
    return float(experiment.training.steps * step)


def matrix_speed() -> float:
    """Return the operations per second of a large matrix product, times the number of devices."""
    size = 1024
    x = jnp.ones((size, size))
    product = jax.jit(lambda x: x @ x)
    product(x).block_until_ready()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        product(x).block_until_ready()
        times.append(time.perf_counter() - start)
    return 2.0 * size**3 / min(times) * jax.device_count()
