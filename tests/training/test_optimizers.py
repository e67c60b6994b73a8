"""Every optimizer for 20 steps in float64, against NumPy or optax; and their laws.

tests/oracle/test_optimizer_peers.py compares some with torch's.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import optax.contrib
import pytest
from twenty_steps import CONFIGS, DECAY, GRADIENTS, RATE, START, STEPS, assert_same, ours

from transformer_jax.config import OptimizerConfig, TrainingConfig
from transformer_jax.config.choices.optimizers import OPTIMIZERS
from transformer_jax.nn.roles import roles_in
from transformer_jax.training import preconditioned
from transformer_jax.training.muon import POLYNOMIALS, orthogonal
from transformer_jax.training.optimizer import averaged, make_optimizer
from transformer_jax.training.schedule_free import mean_of


def by_hand(direction):
    """Return the parameters after steps along directions (step from 1, name, gradient, x, state),
    in NumPy, with the weight decay of kernels.
    """
    params, states = {name: x.copy() for name, x in START.items()}, {name: {} for name in START}
    for step, gradient in enumerate(GRADIENTS, 1):
        for name, x in params.items():
            update = direction(step, name, gradient[name], x, states[name])
            params[name] = x - RATE * (update + DECAY * (name == "kernel") * x)
    return params


def adams(step, name, g, x, state, b1=0.9, b2=0.98, epsilon=1e-9):
    state["m"] = b1 * state.get("m", 0) + (1 - b1) * g
    state["v"] = b2 * state.get("v", 0) + (1 - b2) * g**2
    return state["m"] / (1 - b1**step) / (np.sqrt(state["v"] / (1 - b2**step)) + epsilon)


def muons(step, name, g, x, state):
    if name != "kernel":
        return adams(step, name, g, x, state)
    state["m"] = 0.9 * state.get("m", 0) + g
    matrix = g + 0.9 * state["m"]
    matrix = matrix / np.sum(np.linalg.svd(matrix)[1] ** 4) ** 0.25
    for a, b, c in POLYNOMIALS["jordan"]:
        square = matrix @ matrix.T
        matrix = a * matrix + b * square @ matrix + c * square @ square @ matrix
    return 0.3 * np.sqrt(6) * matrix


def ademamixes(step, name, g, x, state):
    """The schedules as the paper's equations have them."""
    b1, b2, b3, share = 0.9, 0.98, 0.999, min(step / 15, 1)
    low, high = np.log(b1), np.log(b3)
    slow = min(np.exp(low * high / ((1 - share) * high + share * low)), b3)
    state["m"] = b1 * state.get("m", 0) + (1 - b1) * g
    state["s"] = slow * state.get("s", 0) + (1 - slow) * g
    state["v"] = b2 * state.get("v", 0) + (1 - b2) * g**2
    root = np.sqrt(state["v"] / (1 - b2**step)) + 1e-9
    return (state["m"] / (1 - b1**step) + 3 * share * state["s"]) / root


def adafactors(step, name, g, x, state):
    """The paper's algorithm 4, and 5 for vectors, with the size of its section 8."""
    decay = 1 - step**-0.8
    if name == "kernel":
        rows = state["r"] = decay * state.get("r", 0) + (1 - decay) * (g**2).sum(1)
        columns = state["c"] = decay * state.get("c", 0) + (1 - decay) * (g**2).sum(0)
        square = np.outer(rows, columns) / rows.sum()
    else:
        square = state["v"] = decay * state.get("v", 0) + (1 - decay) * g**2
    update = g / np.sqrt(square)
    update = update / max(1, np.sqrt(np.mean(update**2)))
    return max(1e-3, np.sqrt(np.mean(x**2))) * update


def power(matrix, exponent):
    values, vectors = np.linalg.eigh(matrix)
    return vectors @ np.diag(values**exponent) @ vectors.T


def shampoos(step, name, g, x, state):
    adam = adams(step, name, g, x, state)
    if name != "kernel":
        return adam
    state["l"] = 0.98 * state.get("l", 0) + 0.02 * g @ g.T
    state["r"] = 0.98 * state.get("r", 0) + 0.02 * g.T @ g
    if step % 3 == 1:
        state["roots"] = power(state["l"], -0.25), power(state["r"], -0.25)
    left, right = state["roots"]
    direction = left @ state["m"] @ right
    return direction * np.linalg.norm(adam) / np.linalg.norm(direction)


def soaps(step, name, g, x, state):
    """As its authors' code does it: the mean is kept in the eigenvectors, and turned with them."""
    if name != "kernel":
        return adams(step, name, g, x, state, 0.95, 0.95)
    products = g @ g.T, g.T @ g
    if step == 1:
        state |= {"products": [0.05 * p for p in products], "m": 0 * g, "v": 0 * g}
        state["bases"] = [np.linalg.eigh(p)[1][:, ::-1] for p in state["products"]]
        return 0 * g
    step, (left, right) = step - 1, state["bases"]
    inside = left.T @ g @ right
    state["m"] = 0.95 * state["m"] + 0.05 * inside
    state["v"] = 0.95 * state["v"] + 0.05 * inside**2
    means = (state[key] / (1 - 0.95**step) for key in "mv")
    first, second = means
    update = left @ (first / (np.sqrt(second) + 1e-9)) @ right.T
    state["products"] = [
        0.95 * old + 0.05 * new for old, new in zip(state["products"], products, strict=True)
    ]
    if step % 4 == 0:
        mean = left @ state["m"] @ right.T
        turned = []
        for axis, (product, basis) in enumerate(zip(state["products"], (left, right), strict=True)):
            order = np.argsort(-np.diag(basis.T @ product @ basis))
            state["v"] = np.take(state["v"], order, axis)
            turned.append(np.linalg.qr(product @ basis[:, order])[0])
        state["bases"], state["m"] = turned, turned[0].T @ mean @ turned[1]
    return update


def sgds(step, name, g, x, state):
    state["m"] = 0.8 * state.get("m", 0) + g
    return state["m"]


def lions(step, name, g, x, state):
    mean = state.get("m", 0)
    state["m"] = 0.99 * mean + 0.01 * g
    return np.sign(0.9 * mean + 0.1 * g)


def schedule_frees(rates=(RATE,) * STEPS):
    """The paper's three sequences, in NumPy."""
    z, x, squares = dict(START), dict(START), dict.fromkeys(START, 0)
    for step, (rate, gradient) in enumerate(zip(rates, GRADIENTS, strict=True), 1):
        share = rate**2 / sum(each**2 for each in rates[:step])
        for name, g in gradient.items():
            y = 0.1 * z[name] + 0.9 * x[name]
            squares[name] = 0.97 * squares[name] + 0.03 * g**2
            update = g / (np.sqrt(squares[name] / (1 - 0.97**step)) + 1e-9)
            z[name] = z[name] - rate * (update + DECAY * (name == "kernel") * y)
            x[name] = (1 - share) * x[name] + share * z[name]
    return x


EXPECTED = {
    "adam": lambda: by_hand(adams),
    "muon": lambda: by_hand(muons),
    "sgd": lambda: by_hand(sgds),
    "lion": lambda: by_hand(lions),
    "adafactor": lambda: by_hand(adafactors),
    "ademamix": lambda: by_hand(ademamixes),
    "schedule_free": schedule_frees,
    "shampoo": lambda: by_hand(shampoos),
    "soap": lambda: by_hand(soaps),
}


def test_every_optimizer_has_its_comparison():
    assert CONFIGS.keys() == EXPECTED.keys() == OPTIMIZERS.keys()
    assert [config.algorithm for config in CONFIGS.values()] == [*CONFIGS]


@pytest.mark.parametrize("word", OPTIMIZERS)
def test_twenty_steps_in_float64(word):
    assert_same(ours(CONFIGS[word]), EXPECTED[word]())


def test_the_steps_of_a_warm_up_count_less_in_the_mean():
    rates = tuple(RATE * min(step / 8, 1) for step in range(1, STEPS + 1))
    found = ours(CONFIGS["schedule_free"], rates)
    assert_same(found, schedule_frees(rates))
    assert np.abs(found["kernel"] - schedule_frees()["kernel"]).max() > 1e-4


def test_schedule_free_is_optax_s():
    """Whose weight decay is that of all parameters."""
    with jax.enable_x64(True):
        theirs = optax.contrib.schedule_free_adamw(RATE, None, 0.9, 0.97, 1e-9, DECAY)
        x = jnp.asarray(START["kernel"])
        state, update = theirs.init(x), jax.jit(theirs.update)
        for gradient in GRADIENTS:
            updates, state = update(gradient["kernel"], state, x)
            x = optax.apply_updates(x, updates)
        x = optax.contrib.schedule_free_eval_params(state, x)
    found = ours(CONFIGS["schedule_free"])["kernel"]
    np.testing.assert_allclose(found, x, rtol=1e-12, atol=1e-12)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("word", OPTIMIZERS)
def test_heads_are_one_matrix_and_experts_one_each(word):
    """A kernel of d_model and heads of some size is that of d_model and all heads; experts in one
    array train as each would alone, or layers that are stacked.
    """

    def alike(change, name):
        start = {name: change(START["kernel"])}
        gradients = [{name: change(gradient["kernel"])} for gradient in GRADIENTS]
        return ours(CONFIGS[word], start=start, gradients=gradients)[name]

    alone, scaled = (alike(lambda x, k=k: k * x, "kernel") for k in (1, 3))
    heads = alike(lambda x: x.reshape(6, 2, 3), "kernel")
    np.testing.assert_allclose(heads.reshape(6, 6), alone, rtol=1e-12, atol=1e-12)
    experts = alike(lambda x: np.stack([x, 3 * x]), "kernels")
    for found, expected in zip(experts, (alone, scaled), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_sides_that_are_too_long_stay_as_they_are(monkeypatch):
    """With both sides too long, SOAP is Adam that begins a step later."""
    monkeypatch.setattr(preconditioned, "_LARGEST", 5)
    found = ours(CONFIGS["soap"])["kernel"]
    start = {**START, "kernel": START["kernel"] * (1 - RATE * DECAY)}
    adam = OptimizerConfig("adam", b1=0.95, b2=0.95)
    expected = ours(adam, start=start, gradients=GRADIENTS[1:])["kernel"]
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("word", OPTIMIZERS)
def test_frozen_parameters_have_no_state_and_stay(word):
    """Bit for bit, with weight decay and other learning rates, whatever their gradients."""
    config = dataclasses.replace(CONFIGS[word], weight_decay=DECAY, rate_factors=("bias=2",))
    params = jax.tree.map(jnp.float32, START)

    def after(frozen, gradient):
        tx = make_optimizer(config, lambda _: RATE, roles_in(START), frozen)
        state, moved = tx.init(params), params
        for _ in range(2):
            updates, state = tx.update(gradient, state, moved)
            moved = optax.apply_updates(moved, updates)
        return mean_of(moved, state) if config.record.averages else moved, state

    gradient = jax.tree.map(jnp.float32, GRADIENTS[0])
    free, _ = after(None, gradient)
    kept, state = after(lambda params: {name: name == "kernel" for name in params}, gradient)
    np.testing.assert_array_equal(kept["kernel"], params["kernel"])
    assert not any(leaf.size in (6, 36) for leaf in jax.tree.leaves(state))
    np.testing.assert_allclose(kept["bias"], free["bias"], rtol=1e-6)
    assert np.abs(free["kernel"] - params["kernel"]).max() > 0


def test_validation_and_saved_models_of_schedule_free_have_the_mean():
    assert averaged(CONFIGS["schedule_free"], TrainingConfig())
    assert averaged(CONFIGS["adam"], TrainingConfig(ema_decay=0.9))
    assert not averaged(CONFIGS["adam"], TrainingConfig())


def test_polynomials_of_polar_express_lead_nearer_to_one():
    """Than Jordan's, from singular values of which some are small."""
    draw = np.random.default_rng(0)
    u, v = (np.linalg.qr(draw.normal(size=(16, 16)))[0] for _ in range(2))
    x = jnp.asarray((u * np.geomspace(1, 3e-3, 16)) @ v, jnp.float32)
    values = {
        name: np.linalg.svd(orthogonal(x, polynomials))[1]
        for name, polynomials in POLYNOMIALS.items()
    }
    worst = {name: np.abs(x - 1).max() for name, x in values.items()}
    assert worst["polar_express"] < 0.2 < 0.3 < worst["jordan"]
    found = {
        word: ours(dataclasses.replace(CONFIGS["muon"], orthogonalization=word))["kernel"]
        for word in POLYNOMIALS
    }
    assert np.abs(found["jordan"] - found["polar_express"]).max() > 1e-4
