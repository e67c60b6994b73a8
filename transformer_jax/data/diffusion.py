"""Mixtures of a value x and noise e, at times from 0, the value, to 1, the noise; and what a model
predicts of them. All numbers are float64, of NumPy.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from transformer_jax.config import ObjectiveConfig
from transformer_jax.config.registry import pick

Numbers = np.ndarray
STEPS = 1000  # of the schedules that are defined by steps


class Mixture(NamedTuple):
    """How much of the value and of the noise there is, `signal` x + `noise` e, and what the
    velocity is, `up` e - `down` x.
    """

    signal: Numbers
    noise: Numbers
    up: Numbers
    down: Numbers


class Coefficients(NamedTuple):
    """The way back from a mixture z and a prediction p: x = xz z + xp p, e = ez z + ep p."""

    xz: Numbers
    xp: Numbers
    ez: Numbers
    ep: Numbers


class NoiseSchedule(NamedTuple):
    """How value and noise are mixed.

    at: the mixture at a time.
    training: the time that is trained, of a number in [0, 1).
    drawing: the times of drawing in this many steps, from noise on; behind the last is the value.
    scaled: whether steps follow the curve of z / signal over noise / signal, not of z over time.
    """

    at: Callable[[Numbers], Mixture]
    training: Callable[[Numbers], Numbers]
    drawing: Callable[[int], Numbers]
    scaled: bool


def _flow(time: Numbers) -> Mixture:
    """Return the mixture of rectified flow (Liu et al. 2022, arXiv:2209.03003)."""
    time = np.asarray(time, np.float64)
    return Mixture(1 - time, time, np.ones_like(time), np.ones_like(time))


_KEPT = np.sqrt(np.cumprod(1 - np.linspace(1e-4, 0.02, STEPS)))


def _linear(time: Numbers) -> Mixture:
    """Return the mixture of DDPM's step 1000 t (Ho et al. 2020, arXiv:2006.11239)."""
    signal = _KEPT[np.rint(np.asarray(time) * STEPS).astype(np.int64)]
    noise = np.sqrt(1 - signal**2)
    return Mixture(signal, noise, signal, noise)


NOISE_SCHEDULES = {
    "rectified_flow": NoiseSchedule(
        _flow, lambda drawn: drawn, lambda count: 1 - np.arange(count) / count, scaled=False
    ),
    "linear": NoiseSchedule(
        _linear,
        lambda drawn: np.floor(drawn * STEPS) / STEPS,
        lambda count: np.rint(np.linspace(STEPS - 1, 0, count)) / STEPS,
        scaled=True,
    ),
}


def _of_velocity(mixture: Mixture) -> Coefficients:
    signal, noise, up, down = mixture
    whole = signal * up + noise * down
    return Coefficients(up / whole, -noise / whole, down / whole, signal / whole)


def _of_epsilon(mixture: Mixture) -> Coefficients:
    one, none = np.ones_like(mixture.signal), np.zeros_like(mixture.signal)
    return Coefficients(1 / mixture.signal, -mixture.noise / mixture.signal, none, one)


def _of_sample(mixture: Mixture) -> Coefficients:
    one, none = np.ones_like(mixture.signal), np.zeros_like(mixture.signal)
    return Coefficients(none, one, 1 / mixture.noise, -mixture.signal / mixture.noise)


class Prediction(NamedTuple):
    """What is predicted: its factors of the value and the noise, and the way back."""

    of: Callable[[Mixture], tuple[Numbers, Numbers]]
    back: Callable[[Mixture], Coefficients]


PREDICTIONS = {
    "velocity": Prediction(lambda m: (-m.down, m.up), _of_velocity),
    "epsilon": Prediction(lambda m: (0 * m.signal, 0 * m.noise + 1), _of_epsilon),
    "sample": Prediction(lambda m: (0 * m.signal + 1, 0 * m.noise), _of_sample),
}


def _logit_normal(first: Numbers, second: Numbers) -> Numbers:
    """Return the sigmoid of a normal number (Esser et al. 2024, arXiv:2403.03206, section 3.1)."""
    normal = np.sqrt(-2 * np.log1p(-first)) * np.cos(2 * np.pi * second)
    return 1 / (1 + np.exp(-normal))


# A number in [0, 1) of two that are uniform there.
TIMES: dict[str, Callable[[Numbers, Numbers], Numbers]] = {
    "logit_normal": _logit_normal,
    "uniform": lambda first, second: first,
}


def schedule_of(config: ObjectiveConfig) -> NoiseSchedule:
    """Return the schedule that an objective names."""
    return pick(NOISE_SCHEDULES, config.noise_schedule, "config.objective.noise_schedule")


def prediction_of(config: ObjectiveConfig) -> Prediction:
    """Return what an objective predicts."""
    return pick(PREDICTIONS, config.prediction, "config.objective.prediction")
