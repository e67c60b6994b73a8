"""Layers of every kind have the same loss and gradients on a mesh as on one device."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from tiny import (
    RECURRENT,
    UNPACKED,
    VARIANTS,
    VOCAB,
    WIDE,
    alone,
    for_model,
    random_params,
    random_store,
)

from transformer_jax.config import MeshConfig, TrainingConfig
from transformer_jax.config.choices.architectures import ARCHITECTURES
from transformer_jax.models.build import abstract_params, build
from transformer_jax.models.model import Keys
from transformer_jax.sharding.mesh import make_mesh, place_whole
from transformer_jax.sharding.rules import param_shardings
from transformer_jax.training.step import batch_sums

LENGTHS = [(1 + i % 6, (6, 2, 4, 1)[i % 4]) for i in range(8)]
# Scales are those of whole batches; in float64, where no rounded number is near a tie.
FLOAT8 = {"float8": dataclasses.replace(VARIANTS["decoder"], compute_dtype="float8")}
EXACT = {*WIDE, *FLOAT8}
KINDS = VARIANTS | RECURRENT | UNPACKED | FLOAT8
MARKS = {  # the others take minutes
    "luong": [], "lsh": [pytest.mark.thorough], "float8": [pytest.mark.thorough],
}  # fmt: skip
ROWS = MeshConfig(2, 2, 2)
# The positions of a row on four devices, two of which have all of them for some of the heads.
POSITIONS = MeshConfig(1, 1, 2, context=2, ulysses=2)
# Experts on two devices, beside all other axes but one.
EXPERTS = MeshConfig(1, 2, 1, context=2, expert=2)
# Groups of layers on two devices.
STAGES = MeshConfig(2, 1, 2, stage=2)


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=MARKS.get(x, [pytest.mark.e2e])) for x in KINDS]
)
def test_gradients_on_a_mesh_equal_those_on_one_device(name):
    """With dropout and random features, on 2 x 2 x 2 devices."""
    check(name, ROWS, 6, 7)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(x, marks=pytest.mark.thorough if x == "decoder" else pytest.mark.e2e)
        for x in KINDS
    ],
)
def test_gradients_of_divided_positions_equal_those_on_one_device(name):
    """The same where devices share the positions of a row, whatever mixes them."""
    check(name, POSITIONS, 8, 8)


@pytest.mark.e2e
@pytest.mark.parametrize(
    "name", [name for name, config in KINDS.items() if "experts" in config.feed_forward_pattern]
)
def test_gradients_of_divided_experts_equal_those_on_one_device(name):
    """The same where each device has a part of the experts."""
    check(name, EXPERTS, 8, 8)


@pytest.mark.e2e
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, config in KINDS.items()
        if ARCHITECTURES[config.architecture].layered
        and config.residual != "reversible" and config.multi_token == "none"
        and name not in FLOAT8  # of which each microbatch has its own scales
    ],
)  # fmt: skip
def test_gradients_in_stages_equal_those_on_one_device(name):
    """The same where each device has a part of each stack, of as many equal groups as needed."""
    check(name, STAGES, 8, 8)


@pytest.mark.thorough
def test_gradients_of_repeated_stages_equal_those_on_one_device():
    """The same where each device has two of these groups."""
    check("decoder", STAGES, 8, 8, repeats=2)


def check(name: str, mesh: MeshConfig, src_length: int, tgt_length: int, repeats: int = 1) -> None:
    """Compare the loss and its gradients on a mesh and on one device."""
    with jax.enable_x64(name in EXACT):
        _check(name, mesh, src_length, tgt_length, repeats)


def _check(name: str, mesh: MeshConfig, src_length: int, tgt_length: int, repeats: int) -> None:
    config, dtype = KINDS[name], "float64" if name in EXACT else "float32"
    if config.num_kv_heads == 1:
        config = dataclasses.replace(config, num_kv_heads=2)
    if mesh.expert > 1:
        config = dataclasses.replace(config, num_experts=4)
    if mesh.stage > 1:
        config = dataclasses.replace(
            config,
            stage_repeats=repeats,
            **{
                f"num_{stack}_layers": mesh.stage * repeats * math.lcm(len(kinds), len(last))
                for stack in ARCHITECTURES[config.architecture].stacks
                for kinds in [getattr(config, f"{stack}_pattern")]
                for last in [config.feed_forward_pattern]
            },
        )
    model = build(config, VOCAB, VOCAB, single=name in UNPACKED, dtype=dtype)
    params = jax.tree.map(lambda x: x.astype(dtype), jax.device_get(random_params(model)))
    keys = Keys(jax.random.key(0), jax.random.key(1))
    rows = alone(random_store(LENGTHS), 8, src_length, tgt_length)
    batch = for_model(config, rows)

    def loss(params, batch, keys):
        return batch_sums(model, TrainingConfig(), params, batch, keys).loss

    def gradient(sizes):
        count = np.prod(dataclasses.astuple(sizes))
        here = make_mesh(sizes, jax.devices()[:count])
        placed = jax.device_put(params, param_shardings(abstract_params(model), here))
        with jax.set_mesh(here):
            step = jax.jit(jax.value_and_grad(loss))
            return jax.device_get(step(placed, place_whole(batch, here), keys))

    (found, ours), (expected, theirs) = gradient(mesh), gradient(MeshConfig(1))
    assert found == pytest.approx(expected, rel=1e-5)
    for (path, one), other in zip(
        jax.tree.leaves_with_path(ours), jax.tree.leaves(theirs), strict=True
    ):
        if jax.tree_util.keystr(path, simple=True, separator="/").endswith("key/bias"):
            continue  # its gradient is exactly zero, except for rounding
        size = 1e-3 + np.abs(other).max()
        np.testing.assert_allclose(one / size, other / size, atol=2e-4, err_msg=str(path))
