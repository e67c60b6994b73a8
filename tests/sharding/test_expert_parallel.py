"""Experts on different devices give the same losses and gradients as on one."""

import math
from dataclasses import astuple, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import VOCAB, alone, for_model, random_params, random_store

from transformer_jax.base.errors import UserError
from transformer_jax.config import (
    CheckpointConfig,
    DataConfig,
    EvaluationConfig,
    Experiment,
    MeshConfig,
    ModelConfig,
    ObjectiveConfig,
    TrainingConfig,
)
from transformer_jax.experiments.collectives import collectives
from transformer_jax.models.build import abstract_params, build
from transformer_jax.models.model import Keys
from transformer_jax.nn import expert_parallel
from transformer_jax.nn.experts import _gathered, _Layer, in_blocks
from transformer_jax.sharding.mesh import check_mesh, make_mesh, place_whole
from transformer_jax.sharding.rules import param_shardings
from transformer_jax.training.step import batch_sums

MODEL = ModelConfig(
    architecture="decoder", d_model=16, d_ff=24, num_heads=4, num_decoder_layers=2,
    feed_forward_pattern=("dense", "experts"), num_experts=4, experts_per_token=2,
    activation="swiglu", shared_experts=1, dropout_rate=0.1,
)  # fmt: skip
LENGTHS = [(1 + i % 6, (6, 2, 4, 1)[i % 4]) for i in range(8)]
MESHES = {
    MeshConfig(1, expert=4): {},
    MeshConfig(2, expert=4): {"num_experts": 8, "expert_scores": "sigmoid"},
    MeshConfig(1, 2, 2, expert=2): {"num_experts": 6, "layer_loop": "scan", "remat": "full"},
    MeshConfig(1, context=2, ulysses=2, expert=2): {
        "activation": "relu", "experts_per_token": 1, "normalize_expert_weights": False,
    },
}  # fmt: skip


def compiled(config: ModelConfig, mesh: MeshConfig):
    """Return the program of a loss and its gradients on a mesh, and what it is given."""
    model = build(config, VOCAB, VOCAB, dtype="float64")
    params = jax.tree.map(lambda x: x.astype("float64"), jax.device_get(random_params(model)))
    batch = for_model(config, alone(random_store(LENGTHS), 8, 8, 8))
    keys = Keys(jax.random.key(0), jax.random.key(1))

    def loss(params, batch, keys):
        return batch_sums(model, TrainingConfig(), params, batch, keys).loss

    here = make_mesh(mesh, jax.devices()[: math.prod(astuple(mesh))])
    given = (
        jax.device_put(params, param_shardings(abstract_params(model), here)),
        place_whole(batch, here), keys,
    )  # fmt: skip
    with jax.set_mesh(here):
        return jax.jit(jax.value_and_grad(loss)).lower(*given).compile(), given


@pytest.mark.parametrize(
    "mesh", [pytest.param(x, marks=[pytest.mark.thorough] if x.data > 1 else []) for x in MESHES],
    ids=str,
)  # fmt: skip
def test_experts_on_several_devices_equal_one_device(mesh):
    """Alone and with every other axis, in float64."""
    config = replace(MODEL, **MESHES[mesh])
    with jax.enable_x64(True):
        (program, given), (alone, of_one) = (compiled(config, x) for x in (mesh, MeshConfig(1)))
        found, expected = jax.device_get((program(*given), alone(*of_one)))
    assert "all-to-all" in {one.kind for one in collectives(program.as_text())}
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), found, expected
    )


def test_a_device_holds_its_experts_only():
    """Routers are everywhere."""
    mesh = make_mesh(MeshConfig(1, expert=4), jax.devices()[:4])
    layer = param_shardings(abstract_params(build(MODEL, VOCAB, VOCAB)), mesh)
    layer = layer["decoder"]["layer_1"]["feed_forward"]
    assert layer["up"]["kernels"].shard_shape((4, 16, 24)) == (1, 16, 24)
    assert layer["router"]["kernel"].is_fully_replicated


@pytest.mark.parametrize("chosen", [[0, 1, 3, 0, 3, 1, 3, 3], [0] * 8, [3] * 8], ids=str)
def test_work_is_for_the_choices_of_own_experts(chosen, monkeypatch):
    """3 stands for an empty row: it takes no block, and its output is zero."""
    monkeypatch.setattr(expert_parallel, "_TURNS", 2)
    random = np.random.default_rng(0)
    kernels, rows = random.normal(size=(3, 4, 4)), random.normal(size=(8, 4))
    layer = _Layer((jnp.asarray(kernels), None), None, (jnp.asarray(kernels), None))
    chosen, computed = np.array(chosen), []

    def through(layer, rows, expert):
        jax.debug.callback(lambda x: computed.append(len(x)), rows)
        return jnp.einsum("mqi,mio->mqo", rows, layer.up[0][expert])

    with jax.enable_x64(True):
        found = jax.jit(lambda x: _gathered(through, layer, x, jnp.asarray(chosen), 4))(rows)
        used = int(in_blocks(jnp.asarray(chosen), 3, 4).used)
    jax.effects_barrier()
    padded = np.concatenate([kernels, np.zeros((1, 4, 4))])
    np.testing.assert_allclose(found, np.einsum("ci,cio->co", rows, padded[chosen]), rtol=1e-5)
    assert used <= sum(computed) < used + 4  # turns of (4 + 3) / 2 blocks, of one row each


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_experts": 6}, ["config.model.num_experts: 6", "4 devices of config.mesh.expert"]),
        ({"feed_forward_pattern": ("dense",)}, ["config.mesh.expert=4", "config.mesh.data"]),
    ],
)
def test_experts_that_a_mesh_does_not_divide_are_refused(changes, words):
    """Before anything is compiled."""
    experiment = Experiment(
        model=replace(MODEL, **changes),
        data=DataConfig(rows_divisible_by=8),
        objective=ObjectiveConfig(name="language_model"),
        evaluation=EvaluationConfig(bleu_sentences=0),
        checkpoint=CheckpointConfig(best_by="loss"),
    )
    mesh = make_mesh(MeshConfig(1, expert=4), jax.devices()[:4])
    with pytest.raises(UserError) as caught:
        check_mesh(mesh, experiment, (32, 32))
    for word in words:
        assert word in str(caught.value)
