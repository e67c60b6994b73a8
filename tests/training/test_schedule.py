"""Learning rates against formulas worked out by hand."""

import math

import pytest

from transformer_jax.config import OptimizerConfig
from transformer_jax.training.schedule import SCHEDULES, make_schedule

PEAK, WARMUP, TOTAL = 0.03, 10, 100


def rate(name, step, peak=PEAK, warmup=WARMUP, d_model=512, restarts=(), total=TOTAL, **fields):
    """Return the rate of an update; the first is step 1, and optax counts from 0."""
    config = OptimizerConfig(schedule=name, learning_rate=peak, warmup_steps=warmup, **fields)
    return float(make_schedule(config, d_model, total, restarts)(step - 1))


def peak_of(name):
    return PEAK * 512**-0.5 * WARMUP**-0.5 if name == "paper" else PEAK


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name != "one_cycle"])
def test_warm_up(name):
    """From the first update on, the rate rises linearly to its maximum."""
    rates = [rate(name, step) for step in range(1, TOTAL + 1)]
    for step in range(1, WARMUP + 1):
        assert rates[step - 1] == pytest.approx(peak_of(name) * step / WARMUP, rel=1e-6)
    assert max(rates) == rates[WARMUP - 1]


# The share of the peak that is left at some of 100 steps, 10 of them warm-up. The linear and the
# cosine schedule reach 0 where update 101 would be, so that the last update still counts.
AFTER = {
    "paper": {40: 0.5, 90: 1 / 3},
    "inverse_sqrt": {40: 0.5, 90: 1 / 3},
    "linear": {11: 90 / 91, 55: 46 / 91, 100: 1 / 91},
    "cosine": {
        11: (1 + math.cos(math.pi / 91)) / 2,
        55: (1 + math.cos(math.pi * 45 / 91)) / 2,
        100: (1 - math.cos(math.pi / 91)) / 2,
    },
    "constant": {11: 1.0, 100: 1.0},
    # The last fifth decays, from step 80 on.
    "wsd": {11: 1.0, 80: 1.0, 90: 11 / 21, 100: 1 / 21},
    "one_cycle": {1: 1 / 25, 10: 1.0, 55: (1 + 1 / 25e4) / 2, 100: 1 / 25e4},
}


def test_every_schedule_has_expected_values():
    """A new schedule needs its numbers in this file."""
    assert AFTER.keys() == SCHEDULES.keys()


@pytest.mark.parametrize("name", SCHEDULES)
def test_decay_after_warm_up(name):
    """Each schedule decays as its name says."""
    for step, share in AFTER[name].items():
        # Near its zero, 1 + cos is accurate to float32's spacing below 1, so to 1e-7 of the peak.
        near = pytest.approx(peak_of(name) * share, rel=1e-5, abs=1e-7 * PEAK)
        assert rate(name, step) == near


def test_the_share_that_decays():
    shares = (0.1, 0.5)
    starts = [
        max(s for s in range(1, 101) if rate("wsd", s, decay_share=share) == pytest.approx(PEAK))
        for share in shares
    ]
    assert starts == [90, 50]


@pytest.mark.parametrize("name", ["cosine", "wsd", "paper"])
def test_a_schedule_begins_again_after_a_restart(name):
    """As a new run's would, whose steps are those to the next one, or to the last."""
    for start, end in ((0, 30), (30, 80), (80, 100)):
        for step in range(1, end - start + 1):
            found = rate(name, start + step, restarts=(30, 80))
            assert found == pytest.approx(rate(name, step, total=end - start), rel=1e-6)


@pytest.mark.parametrize("step", [1, 4000, 100_000])
def test_paper_schedule_is_equation_3(step):
    """Paper 5.3, base model: d_model^-0.5 min(step^-0.5, step warmup^-1.5); 6.99e-4 at its peak."""
    expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
    assert rate("paper", step, 1.0, 4000) == pytest.approx(expected, rel=1e-6)
    assert round(rate("paper", 4000, 1.0, 4000), 6) == 6.99e-4
    assert round(rate("paper", 4000, 1.0, 4000, d_model=1024), 6) == 4.94e-4
