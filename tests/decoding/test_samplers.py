"""Searches of values, on data whose best prediction is known, so that no network is needed."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.config import ObjectiveConfig
from transformer_jax.data.diffusion import NOISE_SCHEDULES, PREDICTIONS, STEPS, TIMES
from transformer_jax.data.random import uniform
from transformer_jax.decoding.search.values import WORDS, points_of, solve

MEAN, DEVIATION = 2.0, 0.5  # of the data, N(2, 0.5^2)
COUNT = 20_000


def best(config: ObjectiveConfig, z, time):
    """Return what is predicted at best of a mixture of such data and noise, at a step's time."""
    schedule = NOISE_SCHEDULES[config.noise_schedule]
    if config.noise_schedule == "linear":  # as an array, to look the time up in
        table = [schedule.at(np.arange(STEPS) / STEPS)[i] for i in range(4)]
        place = jnp.rint(time * STEPS).astype(jnp.int32)
        signal, noise, up, down = (jnp.asarray(x, z.dtype)[place] for x in table)
    else:
        signal, noise, up, down = 1 - time, time, 1.0, 1.0
    spread = signal**2 * DEVIATION**2 + noise**2
    apart = (z - signal * MEAN) / spread
    value, rest = MEAN + signal * DEVIATION**2 * apart, noise * apart
    return {
        "velocity": up * rest - down * value,
        "epsilon": rest,
        "sample": value,
    }[config.prediction]


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def drawn(config: ObjectiveConfig, search: str, steps: int):
    def noise(step):
        return jax.random.normal(jax.random.fold_in(jax.random.key(3), step), (COUNT,))

    points = points_of(config, steps)
    start = noise(jnp.zeros((), jnp.int32))
    start = (start - start.mean()) / start.std()  # steps are linear: no error of the sample is left
    return solve(WORDS[search], functools.partial(best, config), start, points, noise)


FLOW, DDPM = (ObjectiveConfig("diffusion"),
              ObjectiveConfig("diffusion", noise_schedule="linear"))  # fmt: skip
EPSILON = ObjectiveConfig("diffusion", noise_schedule="linear", prediction="epsilon")
SAMPLE = ObjectiveConfig("diffusion", prediction="sample")


@pytest.mark.parametrize(("steps", "deviation"), [(5, 0.369), (20, 0.464), (50, 0.485)])
def test_euler_shrinks_the_spread_as_known(steps, deviation):
    """Of rectified flow, with the exact field: the fewer steps, the less spread."""
    found = drawn(FLOW, "euler", steps)
    assert found.mean() == pytest.approx(MEAN, abs=0.001)
    assert found.std() == pytest.approx(deviation, abs=0.001)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("config", "search", "steps", "within"),
    [(FLOW, "heun", 20, 0.01), (FLOW, "ancestral", 200, 0.02), (SAMPLE, "heun", 20, 0.01),
     (EPSILON, "euler", 200, 0.02), (EPSILON, "heun", 50, 0.02), (EPSILON, "ancestral", 1000, 0.02),
     (DDPM, "ancestral", 1000, 0.02)],
)  # fmt: skip
def test_searches_draw_the_distribution(config, search, steps, within):
    found = drawn(config, search, steps)
    assert found.mean() == pytest.approx(MEAN, abs=0.02)
    assert found.std() == pytest.approx(DEVIATION, abs=within)


@pytest.mark.parametrize("search", WORDS)
def test_one_step_predicts_the_value(search):
    """From noise alone, that is the mean of the data."""
    assert np.allclose(drawn(FLOW, search, 1), MEAN, atol=1e-5)


@pytest.mark.parametrize("schedule", NOISE_SCHEDULES)
@pytest.mark.parametrize("name", PREDICTIONS)
def test_value_and_noise_follow_from_a_prediction(schedule, name):
    value, noise = np.random.default_rng(0).normal(size=(2, 9))
    time = np.linspace(0.1, 0.9, 9)
    mixture, kind = NOISE_SCHEDULES[schedule].at(time), PREDICTIONS[name]
    z = mixture.signal * value + mixture.noise * noise
    one, other = kind.of(mixture)
    said, way = one * value + other * noise, kind.back(mixture)
    np.testing.assert_allclose(way.xz * z + way.xp * said, value, rtol=1e-9)
    np.testing.assert_allclose(way.ez * z + way.ep * said, noise, rtol=1e-9)


def test_times_are_distributed_as_named():
    """The shares of a standard normal number's sigmoid."""
    first, second = (uniform(7, np.arange(200_000), purpose) for purpose in (0, 1))
    time = TIMES["logit_normal"](first, second)
    assert (time < 0.1).mean() == pytest.approx(0.014, abs=0.001)
    assert ((time > 0.25) & (time < 0.75)).mean() == pytest.approx(0.728, abs=0.004)
    assert TIMES["uniform"](first, second).mean() == pytest.approx(0.5, abs=0.003)
    assert {*np.unique(NOISE_SCHEDULES["linear"].training(first) * STEPS)} <= {*range(STEPS)}
