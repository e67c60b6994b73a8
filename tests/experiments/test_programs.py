"""Runs that differ in the seed or the numbers of the schedule share one compiled step."""

import dataclasses
import functools
import logging
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import MODEL, VOCAB, alone, for_model, random_state, random_store

from transformer_jax.config import (
    CheckpointConfig,
    EvaluationConfig,
    Experiment,
    MeshConfig,
    ObjectiveConfig,
    OptimizerConfig,
)
from transformer_jax.data.batches.batching import Shape
from transformer_jax.models.build import build, roles_of
from transformer_jax.sharding.mesh import make_mesh, place_batch, place_batches
from transformer_jax.training.optimizer import make_optimizer
from transformer_jax.training.profiling import Times, Trace
from transformer_jax.training.programs import TrainStep
from transformer_jax.training.schedule import SCHEDULES
from transformer_jax.training.step import each_step

SHAPE = Shape(8, 0, 7)
ONE = Experiment(
    seed=1,
    model=dataclasses.replace(
        MODEL, architecture="decoder", num_encoder_layers=6, biases=(), norm="rms_norm"
    ),
    optimizer=OptimizerConfig(learning_rate=0.5, warmup_steps=3),
    objective=ObjectiveConfig("language_model", window=7),
    checkpoint=CheckpointConfig(best_by="loss"), evaluation=EvaluationConfig(bleu_sentences=0),
)  # fmt: skip
OTHER = dataclasses.replace(
    ONE, seed=2**32 - 1, optimizer=OptimizerConfig(learning_rate=2.0, warmup_steps=7)
)
BATCH = for_model(ONE.model, alone(random_store([(1, 6)] * 8), 8, 1, 7))
ROLES = roles_of(build(ONE.model, VOCAB, VOCAB))
TX = make_optimizer(ONE.optimizer, lambda _: 0.0, ROLES)  # its state depends on no number


def scene(experiment):
    mesh = make_mesh(MeshConfig())
    model = build(experiment.model, VOCAB, VOCAB)
    state = random_state(model, TX, mesh)
    return mesh, state, TrainStep(experiment, model, state, mesh), place_batch(BATCH, mesh)


@functools.cache
def shapes():
    """Return mesh and state, which do not depend on the optimizer settings used here."""
    mesh, state, _, _ = scene(ONE)
    return mesh, state


@functools.cache
def program(experiment) -> str:
    mesh, state = shapes()
    model = build(experiment.model, VOCAB, VOCAB)
    return TrainStep(experiment, model, state, mesh).lower(SHAPE)[1].as_text()


@pytest.mark.parametrize("name", SCHEDULES)
def test_one_program_for_every_seed_and_learning_rate(name):
    def named(experiment):
        rate = experiment.optimizer.learning_rate * (1 if name == "paper" else 0.01)
        optimizer = dataclasses.replace(experiment.optimizer, schedule=name, learning_rate=rate)
        return dataclasses.replace(experiment, optimizer=optimizer)

    assert program(named(ONE)) == program(named(OTHER))


def test_another_optimizer_needs_another_program():
    other = dataclasses.replace(ONE.optimizer, b2=0.9)
    assert program(ONE) != program(dataclasses.replace(ONE, optimizer=other))


def test_seed_and_learning_rate_still_take_effect():
    """A step returns its state in the same layout, or its program would reject it."""
    found = []
    for experiment in (ONE, dataclasses.replace(ONE, seed=3), OTHER, ONE):
        mesh, state, step, batch = scene(experiment)
        with step.compiled([SHAPE]), jax.set_mesh(mesh):
            for _ in range(3):
                state, metrics = step(state, batch)
        found.append(float(metrics.sums.loss))
    assert len(set(found[:3])) == 3
    assert found[3] == found[0]
    assert np.isfinite(found).all()


def test_several_steps_in_one_call_are_the_same_steps():
    """Each has its own batch, dropout and learning rate, and its own metrics."""
    others = [alone(random_store([(1, 6)] * 8, seed), 8, 1, 7) for seed in range(3)]
    batches = [for_model(ONE.model, batch) for batch in others]
    mesh, state, step, _ = scene(ONE)
    found = []
    with step.compiled([SHAPE], counts=(1, 3)), jax.set_mesh(mesh):
        for batch in batches:
            state, metrics = step(state, place_batch(batch, mesh))
            found.append(metrics)
        again = scene(ONE)[1]
        again, several = step(again, place_batches(batches, mesh), 3)
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6),
                 (again.params, again.step), (state.params, state.step))  # fmt: skip
    each = each_step(jax.device_get(several), int(again.step))
    assert [number for number, _ in each] == [1, 2, 3]
    for (_, metrics), expected in zip(each, found, strict=True):
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-5), metrics, expected)
    assert len({float(metrics.sums.loss) for metrics in found}) == 3


def test_each_shape_is_compiled_once_and_logged(caplog, monkeypatch):
    """And a step donates the state it is given."""
    monkeypatch.setattr(logging.getLogger("transformer_jax"), "propagate", True)
    caplog.set_level(logging.INFO)
    mesh, state, step, batch = scene(ONE)
    both = [SHAPE, SHAPE._replace(rows=16)]
    times = Times()
    with step.compiled(both, times=times), jax.set_mesh(mesh):
        for _ in range(2):
            old, (state, _) = state, step(state, batch)
            assert {leaf.is_deleted() for leaf in jax.tree.leaves(old)} == {True}
            assert {leaf.is_deleted() for leaf in jax.tree.leaves(state)} == {False}
    assert times.of("compilation") > 0  # the first step waited for its program
    lines = [record.message for record in caplog.records]
    assert [line.partition(":")[0] for line in lines] == [
        "batches of 8 x 0 and 7", "batches of 16 x 0 and 7"
    ]  # fmt: skip
    words = r": \S+ operations, compiled in \d+\.\d s, \d+\.\d MB per device"
    assert all(re.search(words, line) for line in lines)


@pytest.mark.thorough
def test_the_requested_steps_are_traced(tmp_path):
    """Of three steps after the fourth, the sixth, including what it computes."""
    mesh, state, step, batch = scene(ONE)
    trace = Trace((6, 6), tmp_path, 4)
    with step.compiled([SHAPE], trace), jax.set_mesh(mesh):
        for number in (5, 6, 7):
            state, _ = step(state, batch)
            assert bool(list(tmp_path.rglob("*.xplane.pb"))) == (number > 5)


def test_a_call_of_several_steps_is_traced_if_one_is_requested(tmp_path):
    trace, traced = Trace((6, 9), tmp_path, 0), []
    for _ in range(5):
        trace.of(lambda: traced.append(trace._running), jnp.zeros(()), 3)
    assert traced == [False, True, True, False, False]
    assert list(tmp_path.rglob("*.xplane.pb"))
