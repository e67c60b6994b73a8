"""Runs that differ in the seed or the numbers of their schedule share one compiled step."""

import dataclasses
import functools
import logging
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import MODEL, TRANSLATE, VOCAB, alone, random_store

from transformer_jax.config import Experiment, MeshConfig, OptimizerConfig
from transformer_jax.data.batching import Shape
from transformer_jax.experiments.train import _jitted_step
from transformer_jax.models.build import build
from transformer_jax.sharding.mesh import make_mesh, place_batch
from transformer_jax.training.optimizer import make_optimizer
from transformer_jax.training.programs import StepPrograms
from transformer_jax.training.schedule import SCHEDULES, make_schedule
from transformer_jax.training.state import abstract, init_state

BATCH = alone(random_store([(5, 6)] * 8), 8, 6, 7)
ONE = Experiment(seed=1, model=MODEL, optimizer=OptimizerConfig(learning_rate=0.5, warmup_steps=3))
OTHER = Experiment(
    seed=2**32 - 1, model=MODEL, optimizer=OptimizerConfig(learning_rate=2.0, warmup_steps=7)
)


def scene(experiment):
    mesh = make_mesh(MeshConfig())
    model = build(experiment.model, VOCAB, VOCAB)
    schedule = make_schedule(experiment.optimizer, MODEL.d_model, experiment.training.steps)
    state = init_state(model, make_optimizer(experiment.optimizer, schedule), 1, mesh)
    return mesh, state, _jitted_step(experiment, model, state, mesh), place_batch(BATCH, mesh)


@functools.cache
def shapes():
    mesh, state, _, batch = scene(ONE)
    return mesh, abstract(state), batch


@functools.cache
def program(experiment) -> str:
    mesh, state, batch = shapes()
    step = _jitted_step(experiment, build(MODEL, VOCAB, VOCAB), state, mesh)
    with jax.set_mesh(mesh):
        return step.func.lower(state, batch, **step.keywords).as_text()


@pytest.mark.parametrize("name", SCHEDULES)
def test_one_program_for_every_seed_and_learning_rate(name):
    def named(experiment):
        rate = experiment.optimizer.learning_rate * (1 if name == "paper" else 0.01)
        optimizer = dataclasses.replace(experiment.optimizer, schedule=name, learning_rate=rate)
        return dataclasses.replace(experiment, optimizer=optimizer)

    assert program(named(ONE)) == program(named(OTHER))


def test_another_optimizer_is_another_program():
    other = dataclasses.replace(ONE.optimizer, b2=0.9)
    assert program(ONE) != program(dataclasses.replace(ONE, optimizer=other))


def test_seed_and_learning_rate_still_count_and_nothing_compiles_twice():
    """A step gives its state back laid out as it was: a second call finds the first's program."""
    found = []
    for experiment in (ONE, dataclasses.replace(ONE, seed=3), OTHER, ONE):
        mesh, state, step, batch = scene(experiment)
        with jax.set_mesh(mesh):
            for _ in range(3):
                state, metrics = step(state, batch)
        assert step.func._cache_size() == 1
        found.append(float(metrics.sums.loss))
    assert len(set(found[:3])) == 3
    assert found[3] == found[0]
    assert np.isfinite(found).all()


def test_each_shape_is_compiled_once_and_told(caplog, monkeypatch):
    """What a program ahead of need gives is what the jitted step gives."""
    monkeypatch.setattr(logging.getLogger("transformer_jax"), "propagate", True)
    caplog.set_level(logging.INFO)
    mesh, state, step, batch = scene(ONE)
    shapes = [Shape(8, 6, 7), Shape(16, 6, 7)]
    with (
        StepPrograms(step, abstract(state), TRANSLATE, mesh, shapes) as programs,
        jax.set_mesh(mesh),
    ):
        kept = jax.tree.map(jnp.copy, state)
        for _ in range(2):
            state, ahead = programs(state, batch)
            kept, in_time = step(kept, batch)
            assert float(ahead.sums.loss) == float(in_time.sums.loss)
        assert {leaf.is_deleted() for leaf in jax.tree.leaves(state)} == {False}
        programs(state, batch)
        assert {leaf.is_deleted() for leaf in jax.tree.leaves(state)} == {True}  # donated
    told = [record.message for record in caplog.records]
    assert [line.partition(":")[0] for line in told] == [
        "batches of 8 x 6 and 7", "batches of 16 x 6 and 7"
    ]  # fmt: skip
    words = r": \S+ operations, compiled in \d+\.\d s, \d+\.\d MB a device"
    assert all(re.search(words, line) for line in told)
