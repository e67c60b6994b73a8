"""The train step: cutting up a batch does not change the result; bad updates are skipped."""

import dataclasses
import functools
import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from tiny import MODEL, VOCAB, alone, for_model, random_params, random_store

from transformer_jax.config import MeshConfig, OptimizerConfig, TrainingConfig
from transformer_jax.models.build import build, roles_of
from transformer_jax.sharding.mesh import AXES, make_mesh, place_batch
from transformer_jax.training.optimizer import ALGORITHMS, make_optimizer
from transformer_jax.training.state import TrainState
from transformer_jax.training.step import jit_train_step, make_train_step

# Batches of 16 rows, the last two padding, whose slices and shards hold very different numbers of
# tokens: a mean of means would be a different loss.
LENGTHS = [(1 + i % 6, (7, 2, 4, 1)[i % 4]) for i in range(14)]
BATCHES = [alone(random_store(LENGTHS, seed), 16, 6, 7) for seed in range(5)]


# A step is independent of its model: one with few operations will do, and with only one side
# where batches are not cut up.
BOTH_SIDES = dataclasses.replace(MODEL, dropout_rate=0.0, biases=(), norm="rms_norm")
SMALL = dataclasses.replace(BOTH_SIDES, architecture="decoder", num_encoder_layers=6)
ROLES = roles_of(build(SMALL, VOCAB, VOCAB))
OPTIMIZERS = {
    **{
        word: make_optimizer(OptimizerConfig(algorithm=word), lambda _: 1e-2, ROLES)
        for word in ALGORITHMS
    },
    "optax": optax.adam(1e-2),
}
TX = OPTIMIZERS["adam"]


@functools.cache
def program(model, optimizer: str, **training):
    """Return the step, jitted without donation, so that states can be used twice.

    Without compiler optimisations it takes half the time to compile.
    """
    step = make_train_step(
        build(model, VOCAB, VOCAB), OPTIMIZERS[optimizer], TrainingConfig(**training), seed=7
    )
    return jax.jit(step, compiler_options={"xla_backend_optimization_level": 0})


def fresh_state(mesh, tx=TX, model=SMALL) -> TrainState:
    params = random_params(build(model, VOCAB, VOCAB))
    zero = jnp.zeros((), jnp.int32)
    state = TrainState(zero, zero, params, tx.init(params))
    return jax.device_put(state, NamedSharding(mesh, PartitionSpec()))


def mesh_of(count: int):
    if count == 8:
        return make_mesh(MeshConfig(data=-1))
    kinds = (AxisType.Auto,) * len(AXES)
    return jax.make_mesh((1,) * len(AXES), AXES, axis_types=kinds, devices=jax.devices()[:1])


def placed(batch, mesh, model=SMALL):
    """Return the batch on a mesh, in the form the model takes."""
    return place_batch(for_model(model, batch), mesh)


def run(model, devices: int = 1, steps: int = 5, **training):
    """Return the sums and the gradient norm of each step."""
    mesh = mesh_of(devices)
    state, shown = fresh_state(mesh, model=model), []
    with jax.set_mesh(mesh):
        for batch in BATCHES[:steps]:
            state, metrics = program(model, "adam", **training)(state, placed(batch, mesh, model))
            assert len(metrics.sums.loss.sharding.device_set) == devices
            shown.append([*metrics.sums, metrics.grad_norm])
    return np.array(shown)


DROPPING = dataclasses.replace(SMALL, dropout_rate=0.1)


def test_gradient_accumulation_equals_one_batch():
    """Without dropout: the same sums and gradient norms, step after step."""
    cut = run(BOTH_SIDES, accumulation_steps=4)
    np.testing.assert_allclose(cut, run(BOTH_SIDES), rtol=1e-6)


def test_eight_devices_equal_one():
    """With dropout: the same sums and gradient norms, step after step."""
    np.testing.assert_allclose(run(DROPPING, devices=8), run(DROPPING), rtol=1e-5)


@pytest.mark.thorough
def test_r_drop_makes_two_passes():
    """Without dropout, two passes equal one: the same sums and norms. With different masks they
    differ, which the loss shows, equally on any number of devices."""
    np.testing.assert_allclose(run(SMALL, r_drop=5.0), run(SMALL), rtol=1e-5)
    one, two = run(DROPPING, steps=1)[0], run(DROPPING, steps=1, r_drop=5.0)[0]
    loss, nll, _, tokens, _, norm = range(6)
    assert two[tokens] == one[tokens]
    assert two[nll] != one[nll]  # the masks differ from those of one pass
    assert two[nll] == pytest.approx(one[nll], rel=0.05)
    assert two[loss] - two[nll] > one[loss] - one[nll] + 1  # beyond what smoothing adds
    assert two[norm] != pytest.approx(one[norm], rel=1e-3)
    sharded = run(DROPPING, devices=8, steps=2, r_drop=5.0)
    np.testing.assert_allclose(sharded, run(DROPPING, steps=2, r_drop=5.0), rtol=1e-5)


def test_dropout_is_a_function_of_the_step():
    """The same step draws the same masks, the next one different masks."""
    mesh = mesh_of(1)
    state = fresh_state(mesh)
    later = replace(state, step=state.step + 1)
    with jax.set_mesh(mesh):
        batch, step = placed(BATCHES[0], mesh), program(DROPPING, "adam")
        losses = [float(step(s, batch)[1].sums.loss) for s in (state, state, later)]
    assert losses[0] == losses[1]
    assert losses[0] != pytest.approx(losses[2], rel=1e-3)


def test_the_loss_falls():
    """The step under test learns: repeated on one batch, it fits better each time."""
    mesh = mesh_of(1)
    state, losses = fresh_state(mesh), []
    with jax.set_mesh(mesh):
        for _ in range(4):
            state, metrics = program(SMALL, "adam")(state, placed(BATCHES[0], mesh))
            losses.append(float(metrics.sums.loss))
    assert sorted(losses, reverse=True) == losses


def test_exponential_moving_average_of_parameters():
    """The mean by hand, with a decay that the first steps do not reach; training is unchanged."""
    mesh = mesh_of(1)
    plain, averaging = program(SMALL, "adam"), program(SMALL, "adam", ema_decay=0.3)
    state = fresh_state(mesh)
    bare, state = state, replace(state, average=state.params)
    mean = jax.tree.map(np.asarray, state.params)
    with jax.set_mesh(mesh):
        for kept in (1 / 10, 2 / 11, 3 / 12, 0.3, 0.3):
            batch = placed(BATCHES[0], mesh)
            bare, state = plain(bare, batch)[0], averaging(state, batch)[0]
            params = jax.tree.map(np.asarray, bare.params)
            mean = jax.tree.map(lambda m, p, k=kept: k * m + (1 - k) * p, mean, params)
    close = functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-7)
    jax.tree.map(close, state.params, bare.params)
    jax.tree.map(close, state.weights, mean)
    assert bare.weights is bare.params


def test_the_weights_of_schedule_free_are_the_mean_of_its_steps():
    """Of which the first is the first mean; later ones are equally weighted, by the paper's x."""
    tx, mesh = OPTIMIZERS["schedule_free"], mesh_of(1)
    state = fresh_state(mesh, tx)
    state = replace(state, average=state.params)
    with jax.set_mesh(mesh):
        step = program(SMALL, "schedule_free")
        for number in range(3):
            before, batch = state, placed(BATCHES[number], mesh)
            state, _ = step(state, batch)
            # z' = (y' - b1 x') / (1 - b1), and x' is as much nearer to it as one step is of all.
            y, x = state.params["embedding"]["table"], state.weights["embedding"]["table"]
            z = (y - 0.9 * x) / 0.1
            expected = before.weights["embedding"]["table"]
            expected = expected + (z - expected) / (number + 1)
            np.testing.assert_allclose(x, expected, atol=2e-5)
    assert float(jnp.abs(x - y).max()) > 1e-4


def test_bfloat16_compute_keeps_float32_parameters_and_moments():
    """The first losses are nearly those of float32."""
    mesh, losses = mesh_of(1), {}
    for dtype in ("float32", "bfloat16"):
        step = program(dataclasses.replace(SMALL, compute_dtype=dtype), "adam")
        state, losses[dtype] = fresh_state(mesh), []
        with jax.set_mesh(mesh):
            for batch in BATCHES[:3]:
                state, metrics = step(state, placed(batch, mesh))
                losses[dtype].append(float(metrics.sums.loss / metrics.sums.tokens))
        kinds = {x.dtype for x in jax.tree.leaves((state.params, state.opt_state))}
        assert kinds <= {jnp.dtype("float32"), jnp.dtype("int32")}
    assert losses["bfloat16"] != losses["float32"]
    np.testing.assert_allclose(losses["bfloat16"], losses["float32"], rtol=1e-2)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_non_finite_updates_are_skipped(optimizer):
    """A non-finite gradient changes only the counters; a good one resets them."""
    mesh = mesh_of(1)
    step = program(SMALL, optimizer)
    with jax.set_mesh(mesh):
        batch = placed(BATCHES[0], mesh)
        good, metrics = step(fresh_state(mesh, OPTIMIZERS[optimizer]), batch)
        assert (int(good.step), int(good.bad_steps), float(metrics.skipped)) == (1, 0, 0)

        table = good.params["embedding"]["table"]
        spoilt = np.array(table)
        spoilt[5, 0] = np.nan
        bad = dict(good.params, embedding={"table": jax.device_put(spoilt, table.sharding)})
        state = replace(good, params=bad)
        for number in (1, 2):
            before = state
            state, metrics = step(state, batch)
            assert (int(state.step), int(state.bad_steps)) == (1 + number, number)
            assert (int(metrics.bad_steps), float(metrics.skipped)) == (number, 1)
            jax.tree.map(np.testing.assert_array_equal, state.params, before.params)
            jax.tree.map(np.testing.assert_array_equal, state.opt_state, before.opt_state)

        state, metrics = step(replace(state, params=good.params), batch)
        assert (int(state.step), int(state.bad_steps), float(metrics.skipped)) == (4, 0, 0)
        expected, _ = step(good, batch)
        jax.tree.map(np.testing.assert_array_equal, state.params, expected.params)


def test_moments_are_updated_in_place():
    """The step compiled for one processor copies none of the optimizer's arrays."""
    mesh = mesh_of(1)
    config = dataclasses.replace(SMALL, biases=MODEL.biases, norm=MODEL.norm)
    state = fresh_state(mesh, model=config)
    model = build(config, VOCAB, VOCAB)
    step = jit_train_step(make_train_step(model, TX, TrainingConfig(), 7), state, mesh)
    with jax.set_mesh(mesh):
        text = step.lower(state, placed(BATCHES[0], mesh)).compile().as_text()
    assert re.search(r"%state_opt_state_\S+ = f32\[\d", text)
    copied = re.findall(r" = (f32\[\d\S*) copy\(%state_opt_state_", text)
    assert not copied
