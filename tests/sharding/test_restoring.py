"""A checkpoint of one mesh is restored on any other, bit for bit."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from tiny import VOCAB, random_state

from transformer_jax.config import CheckpointConfig, MeshConfig, ModelConfig, OptimizerConfig
from transformer_jax.models.build import build, roles_of
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.sharding.mesh import make_mesh
from transformer_jax.training.optimizer import make_optimizer
from transformer_jax.training.state import abstract

MODEL = ModelConfig(
    architecture="decoder", num_decoder_layers=2, d_model=8, d_ff=8, num_heads=4, head_dim=2,
    feed_forward_pattern=("experts",), num_experts=4, biases=(),
)  # fmt: skip
# Every axis of its own, and the later ones beside others.
MESHES = [
    *(MeshConfig(**{"data": 1, field.name: 2}) for field in dataclasses.fields(MeshConfig)),
    MeshConfig(1, fsdp=2, context=2, expert=2), MeshConfig(1, tensor=2, ulysses=2, stage=2),
]  # fmt: skip
# Each is read on the next one, and on one further on.
PAIRS = [(i, (i + step) % len(MESHES)) for i in range(len(MESHES)) for step in (1, 4)]


@pytest.fixture(scope="module")
def parts():
    model = build(MODEL, VOCAB, VOCAB)
    return model, make_optimizer(OptimizerConfig(), lambda _: 0.0, roles_of(model))


def mesh_of(config: MeshConfig):
    return make_mesh(config, jax.devices()[: math.prod(dataclasses.astuple(config))])


def described(config: MeshConfig) -> str:
    sizes = dataclasses.asdict(config).items()
    return "-".join(f"{name}{size}" for name, size in sizes if size > 1)


@pytest.fixture(scope="module")
def states(parts):
    """The same state on each mesh, all of it numbers that differ."""
    found = []
    for config in MESHES:
        leaves, tree = jax.tree.flatten(random_state(*parts, mesh_of(config)))
        numbers = (np.arange(x.size).reshape(x.shape) + i for i, x in enumerate(leaves))
        made = [
            jax.device_put(values.astype(x.dtype), x.sharding)
            for values, x in zip(numbers, leaves, strict=True)
        ]
        found.append(jax.tree.unflatten(tree, made))
    return found


@pytest.fixture(scope="module")
def checkpoints(states, tmp_path_factory):
    """A checkpoint of each mesh, by its place in MESHES."""
    directory = tmp_path_factory.mktemp("meshes")
    checkpoints = Checkpoints(directory, CheckpointConfig(keep_last=len(MESHES)))
    for step, state in enumerate(states):
        checkpoints.save(step, *state.to_items(), {"step": step})
    checkpoints.wait()
    yield checkpoints
    checkpoints.close()


@pytest.mark.parametrize(
    ("wrote", "reads"),
    PAIRS,
    ids=[f"{described(MESHES[i])}-to-{described(MESHES[j])}" for i, j in PAIRS],
)
def test_a_checkpoint_of_a_mesh_is_restored_on_another(states, checkpoints, wrote, reads):
    """With the optimizer's state; each device gets what it has on that mesh."""
    like = abstract(states[reads])
    params, training, _ = checkpoints.restore(wrote, *like.to_items())
    state = like.from_items(params, training)
    for leaf, wanted in zip(jax.tree.leaves(state), jax.tree.leaves(states[reads]), strict=True):
        np.testing.assert_array_equal(leaf, wanted)
        assert leaf.sharding == wanted.sharding


def test_the_checksums_of_a_checkpoint_do_not_depend_on_the_mesh(checkpoints):
    sums = [checkpoints.record(step)["arrays"] for step in range(len(MESHES))]
    assert all(other == sums[0] for other in sums[1:])
    assert len({*sums[0].values()}) > 20
