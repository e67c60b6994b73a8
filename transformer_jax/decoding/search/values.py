"""Searches for values: from noise to a picture, in steps that follow a model's predictions.

euler      the slope that the prediction says, from step to step; for schedules whose noise is not
           linear in time, along z / signal over noise / signal, which is DDIM (Song et al. 2021,
           arXiv:2010.02502)
heun       the mean of two slopes, here and where the first one leads (Karras et al. 2022,
           arXiv:2206.00364, algorithm 1)
ancestral  a draw from the distribution of the next mixture given this one and the predicted value;
           over all 1000 steps of noise_schedule="linear" that is DDPM's (Ho et al. 2020,
           arXiv:2006.11239, equation 7)

The last step of each returns the predicted value.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float
from transformer_jax.config import ObjectiveConfig
from transformer_jax.data.diffusion import Coefficients, prediction_of, schedule_of

Numbers = Any  # of NumPy, or of JAX in a program
Predict = Callable[[Array, Array], Array]  # a mixture [B ...] at a time [] -> what is predicted
Noise = Callable[[Array], Array]  # the number of a step -> standard normal numbers [B ...]


class Point(NamedTuple):
    """A time of drawing, or several along an axis: the mixture there, the way from what is
    predicted to value and noise, and the curve that a step follows: (z / scale) over clock, with
    the slope e - drift x.
    """

    number: Numbers
    time: Numbers
    signal: Numbers
    noise: Numbers
    back: Coefficients
    scale: Numbers
    clock: Numbers
    drift: Numbers


def points_of(config: ObjectiveConfig, steps: int) -> Point:
    """Return the points of drawing in this many steps, from noise on, along an axis; float64."""
    schedule = schedule_of(config)
    time = schedule.drawing(steps)
    mixture = schedule.at(time)
    ones = np.ones(steps)
    scale, clock, drift = ones, time, ones
    if schedule.scaled:
        scale, clock, drift = mixture.signal, mixture.noise / mixture.signal, 0 * ones
    back = prediction_of(config).back(mixture)
    return Point(
        np.arange(steps), time, mixture.signal, mixture.noise, back, scale, clock, drift
    )  # fmt: skip


def _parts(predict: Predict, z: Array, at: Point) -> tuple[Array, Array]:
    """Return the value and the noise in a mixture."""
    predicted, way = predict(z, jnp.asarray(at.time)), at.back
    return way.xz * z + way.xp * predicted, way.ez * z + way.ep * predicted


def euler(predict: Predict, z: Array, at: Point, to: Point, noise: Noise) -> Array:
    """Mix the parts of z as at the next point."""
    value, rest = _parts(predict, z, at)
    return to.signal * value + to.noise * rest


def heun(predict: Predict, z: Array, at: Point, to: Point, noise: Noise) -> Array:
    """Follow the mean of the slopes here and there."""

    def slope(z: Array, at: Point) -> Array:
        value, rest = _parts(predict, z, at)
        return rest - at.drift * value

    by, begin, first = to.clock - at.clock, z / at.scale, slope(z, at)
    second = slope(to.scale * (begin + by * first), to)
    return to.scale * (begin + by * (first + second) / 2)


def ancestral(predict: Predict, z: Array, at: Point, to: Point, noise: Noise) -> Array:
    """Keep a part of the noise in z, and replace the rest."""
    value, rest = _parts(predict, z, at)
    kept = to.noise * at.signal / (to.signal * at.noise)
    new = jnp.sqrt(jnp.maximum(1 - kept**2, 0))
    return to.signal * value + to.noise * (kept * rest + new * noise(jnp.asarray(to.number)))


WORDS = {"euler": euler, "heun": heun, "ancestral": ancestral}


def solve(
    step: Callable[..., Array], predict: Predict, z: Float[Array, "B ..."], points: Point,
    noise: Noise,
) -> Float[Array, "B ..."]:  # fmt: skip
    """Return the values that `step`, one of WORDS, draws from noise z in all steps."""
    each = jax.tree.map(lambda x: jnp.asarray(x, z.dtype), points)
    each = each._replace(number=jnp.asarray(points.number))
    before, behind = (jax.tree.map(lambda x, part=part: x[part], each)
                      for part in (slice(-1), slice(1, None)))  # fmt: skip

    def advance(z: Array, pair: tuple[Point, Point]) -> tuple[Array, None]:
        return step(predict, z, *pair, noise).astype(z.dtype), None

    z, _ = jax.lax.scan(advance, z, (before, behind))
    return _parts(predict, z, jax.tree.map(lambda x: x[-1], each))[0]
