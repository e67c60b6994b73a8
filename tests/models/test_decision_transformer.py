"""Decision Transformers: what an action is predicted from, and what it must not depend on."""

import dataclasses

import jax
import numpy as np
import pytest
from tiny import MODEL, random_params

from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.build import build

STATES, ACTIONS, STEPS = 4, 3, 5
DISCRETE = dataclasses.replace(
    MODEL, architecture="decision_transformer", stem="trajectory", num_encoder_layers=6,
    num_decoder_layers=2, positions="learned", max_positions=9, residual="pre_norm",
    input_norm=True,
)  # fmt: skip
CONFIGS = {
    "discrete": DISCRETE,
    "continuous": dataclasses.replace(DISCRETE, actions="continuous", relative_positions="rope"),
    "linear": dataclasses.replace(DISCRETE, decoder_pattern=("linear", "full"), positions="none"),
}
RNG = np.random.default_rng(0)
TIMES = np.tile(np.arange(2, 2 + STEPS), (2, 1))[..., None]
READ = np.concatenate([TIMES, RNG.normal(size=(2, STEPS, 1 + STATES))], -1).astype(np.float32)


def done(name: str) -> np.ndarray:
    if CONFIGS[name].actions == "continuous":
        return np.random.default_rng(1).uniform(-1, 1, (2, STEPS, ACTIONS)).astype(np.float32)
    return np.random.default_rng(1).integers(0, ACTIONS, (2, STEPS)).astype(np.int32)


def batch_of(read: np.ndarray, actions: np.ndarray, before: int = 0, behind: int = 0) -> Batch:
    """Return steps with so much padding before and behind them."""

    def padded(x):
        return np.pad(x, ((0, 0), (before, behind), *((0, 0),) * (x.ndim - 2)))

    pos = np.tile(np.arange(read.shape[1], dtype=np.int32), (len(read), 1))
    pos, seg = padded(pos), padded(np.ones_like(pos))
    return Batch(Side(padded(read), pos, seg), Side(padded(actions), pos, seg), {})


def model_of(name: str, predicts: str = "action", single: bool = False):
    model = build(CONFIGS[name], 2 + STATES, ACTIONS, predicts=(predicts,), single=single)
    return model, random_params(model)


def predicted(model, batch: Batch) -> np.ndarray:
    network, params = model
    run = jax.jit(lambda params, batch: network.outputs(params, batch, None))
    (output,) = run(params, jax.device_put(batch)).values()
    return np.asarray(output.logits())


@pytest.fixture(scope="module", params=CONFIGS)
def named(request):
    return request.param, model_of(request.param)


@pytest.mark.one_in(3)
def test_an_action_depends_on_what_comes_before_it_alone(named):
    """Neither on itself nor on anything later, but on the return and the state at the step, and on
    all that was before.
    """
    name, model = named
    actions = done(name)
    found = predicted(model, batch_of(READ, actions))
    for column in (1, 3, None):  # the return, a number of the state, the action
        read, acts = READ.copy(), actions.copy()
        if column is None:
            acts[0, 2] = (acts[0, 2] + 1) % ACTIONS if acts.ndim == 2 else -acts[0, 2]
        else:
            read[0, 2, column] += 1
        moved = np.abs(predicted(model, batch_of(read, acts)) - found).max(-1)
        first = 2 + (column is None)
        assert not moved[0, :first].any()
        assert (moved[0, first:] > 1e-4).all()
        assert not moved[1].any()


@pytest.mark.one_in(3)
def test_padding_changes_nothing(named):
    """Before the steps, as in the paper's code, and behind them, as in ours."""
    name, model = named
    found = predicted(model, batch_of(READ, done(name)))
    for before, behind in ((2, 0), (0, 2), (1, 1)):
        padded = predicted(model, batch_of(READ, done(name), before, behind))
        np.testing.assert_allclose(
            padded[:, before : before + STEPS], found, rtol=1e-5, atol=1e-6
        )  # fmt: skip


@pytest.mark.one_in(3)
def test_rows_of_one_window_are_a_faster_way_to_the_same(named):
    name, model = named
    found = predicted(model, batch_of(READ, done(name)))
    again = predicted(model_of(name, single=True), batch_of(READ, done(name)))
    np.testing.assert_allclose(again, found, rtol=1e-5, atol=1e-6)


def test_time_steps_are_those_of_the_trajectory():
    """And not of the window."""
    later = READ.copy()
    later[..., 0] += 1
    for name in ("discrete", "linear"):
        model = model_of(name)
        one, other = (predicted(model, batch_of(x, done(name))) for x in (READ, later))
        assert np.array_equal(one, other) == (CONFIGS[name].positions == "none")


def test_a_clone_is_not_asked_for_a_return():
    model = model_of("discrete", "cloned_action")
    assert "return_map" not in model[1]["stem"]
    asked = READ.copy()
    asked[..., 1] += 1
    one, other = (predicted(model, batch_of(x, done("discrete"))) for x in (READ, asked))
    assert np.array_equal(one, other)


def test_continuous_actions_are_from_minus_one_to_one():
    said = predicted(model_of("continuous"), batch_of(10 * READ, done("continuous")))
    assert said.shape == (2, STEPS, ACTIONS)
    assert np.abs(said).max() <= 1
