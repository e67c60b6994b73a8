"""Runs that differ in the seed or the numbers of their schedule share one compiled step."""

import dataclasses

import jax
import numpy as np
import pytest
from tiny import MODEL, VOCAB, alone, random_store

from transformer_jax.config import Experiment, MeshConfig, OptimizerConfig
from transformer_jax.experiments.train import _compiled_step
from transformer_jax.models.build import build
from transformer_jax.sharding.mesh import make_mesh, place_batch
from transformer_jax.training.optimizer import make_optimizer
from transformer_jax.training.schedule import SCHEDULES, make_schedule
from transformer_jax.training.state import init_state

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
    return mesh, state, _compiled_step(experiment, model, state, mesh), place_batch(BATCH, mesh)


def program(experiment) -> str:
    mesh, state, step, batch = scene(experiment)
    with jax.set_mesh(mesh):
        return step.func.lower(state, batch, **step.keywords).as_text()


@pytest.mark.parametrize("name", SCHEDULES)
def test_one_program_for_every_seed_and_learning_rate(name):
    def named(experiment):
        optimizer = dataclasses.replace(experiment.optimizer, schedule=name)
        return dataclasses.replace(experiment, optimizer=optimizer)

    one = program(named(ONE))
    assert one == program(named(OTHER))
    clipped = dataclasses.replace(named(ONE).optimizer, clip_norm=1.0)
    assert one != program(dataclasses.replace(ONE, optimizer=clipped))


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
