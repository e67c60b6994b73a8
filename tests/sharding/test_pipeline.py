"""Stages: groups of layers on different devices give the same losses and gradients as on one."""

import math
from dataclasses import astuple, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from tiny import VOCAB, alone, for_model, random_params, random_state, random_store

from transformer_jax.base import counting
from transformer_jax.base.errors import UserError
from transformer_jax.config import (
    CheckpointConfig,
    DataConfig,
    EvaluationConfig,
    Experiment,
    MeshConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
    TrainingConfig,
    resuming,
)
from transformer_jax.experiments.collectives import Collective, collectives
from transformer_jax.models import pipeline
from transformer_jax.models.build import abstract_params, build, roles_of
from transformer_jax.models.model import Keys
from transformer_jax.models.stack import REMATS
from transformer_jax.sharding.mesh import check_mesh, make_mesh, place_batch, place_whole
from transformer_jax.sharding.rules import param_shardings
from transformer_jax.training.optimizer import make_optimizer
from transformer_jax.training.schedule import make_schedule
from transformer_jax.training.step import batch_sums, jit_train_step, make_train_step

MODEL = ModelConfig(
    architecture="decoder", d_model=16, d_ff=24, num_heads=4, num_decoder_layers=4,
    relative_positions="t5", dropout_rate=0.1,
)  # fmt: skip
LENGTHS = [(1 + i % 6, (6, 2, 4, 1)[i % 4]) for i in range(8)]
BATCH = alone(random_store(LENGTHS), 8, 8, 8)
MESHES = [
    (MeshConfig(1, stage=2), {}),
    (MeshConfig(1, stage=4), {
        "layer_loop": "scan", "remat": "full", "relative_positions": "rope",
    }),
    (MeshConfig(2, 1, 2, stage=2), {"layer_loop": "scan", "layer_sharing": "universal"}),
    (MeshConfig(1, 2, context=2, stage=2), {"attention": "ring", "dropout_rate": 0.0}),
    (MeshConfig(2, ulysses=2, stage=2), {
        "architecture": "encoder_decoder", "num_encoder_layers": 2, "layer_drop_rate": 0.2,
    }),
    (MeshConfig(1, expert=2, stage=2), {
        "feed_forward_pattern": ("dense", "experts"), "num_experts": 4, "shared_experts": 1,
    }),
    (MeshConfig(1, stage=2), {"stage_repeats": 2}),
    (MeshConfig(1, stage=4), {
        "stage_repeats": 2, "num_decoder_layers": 8, "layer_loop": "scan", "remat": "dots",
        "relative_positions": "rope",
    }),
    (MeshConfig(1, 2, stage=2), {"stage_repeats": 2, "layer_sharing": "universal"}),
    (MeshConfig(1, 1, 2, context=2, stage=2), {
        "stage_repeats": 2, "remat": "full", "attention": "ring", "dropout_rate": 0.0,
    }),
    (MeshConfig(2, ulysses=2, stage=2), {
        "stage_repeats": 2, "architecture": "encoder_decoder", "num_encoder_layers": 4,
        "layer_drop_rate": 0.2,
    }),
    (MeshConfig(1, expert=2, stage=2), {
        "stage_repeats": 2, "num_decoder_layers": 8, "layer_loop": "scan",
        "feed_forward_pattern": ("dense", "experts"), "num_experts": 4, "shared_experts": 1,
    }),
]  # fmt: skip
OFTEN = [MESHES[0], MESHES[6]]  # the others take minutes


def mesh_of(config: MeshConfig):
    return make_mesh(config, jax.devices()[: math.prod(astuple(config))])


def lowered(config: ModelConfig, mesh: MeshConfig):
    """Return the program of a loss and its gradients on a mesh, and what it is given."""
    model = build(config, VOCAB, VOCAB, dtype="float64")
    params = jax.tree.map(lambda x: x.astype("float64"), jax.device_get(random_params(model)))
    keys = Keys(jax.random.key(0), jax.random.key(1))

    def loss(params, batch, keys):
        return batch_sums(model, TrainingConfig(), params, batch, keys).loss

    here = mesh_of(mesh)
    given = (
        jax.device_put(params, param_shardings(abstract_params(model), here)),
        place_whole(for_model(config, BATCH), here), keys,
    )  # fmt: skip
    with jax.set_mesh(here):
        return jax.jit(jax.value_and_grad(loss)).lower(*given), given


@pytest.mark.parametrize(
    ("mesh", "changes"),
    [pytest.param(*x, marks=[] if x in OFTEN else [pytest.mark.thorough]) for x in MESHES], ids=str,
)  # fmt: skip
def test_stages_equal_one_device(mesh, changes):
    """Alone and with every other axis, in float64: with dropout, whose masks are those of rows of
    the whole batch; loads of experts count nothing while a stage waits.
    """
    config = replace(MODEL, **changes)
    with jax.enable_x64(True):
        (program, given), (alone, of_one) = (lowered(config, x) for x in (mesh, MeshConfig(1)))
        program = program.compile()
        found, expected = jax.device_get((program(*given), alone.compile()(*of_one)))
    assert "collective-permute" in {one.kind for one in collectives(program.as_text())}
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10), found, expected
    )


def test_a_run_goes_on_with_other_stages():
    """Parameters are stored by layer, whatever computes them: losses of steps on 4 stages, 2 with
    two groups each, and 1 device are those of one.
    """
    model = build(MODEL, VOCAB, VOCAB)
    optimizer = OptimizerConfig(schedule="constant", learning_rate=5e-3, warmup_steps=1)
    tx = make_optimizer(optimizer, make_schedule(optimizer, 16, 3), roles_of(model))
    batch = for_model(model.config, BATCH)

    def losses(*ways):
        state, found = None, []
        for config, repeats in ways:
            mesh = mesh_of(config)
            model = build(replace(MODEL, stage_repeats=repeats), VOCAB, VOCAB)
            fresh = random_state(model, tx, mesh)
            where = jax.tree.map(lambda x: x.sharding, fresh)
            state = fresh if state is None else jax.device_put(jax.device_get(state), where)
            step = jit_train_step(make_train_step(model, tx, TrainingConfig(), 7), state, mesh)
            with jax.set_mesh(mesh):
                state, metrics = step(state, place_batch(batch, mesh))
            found.append(float(metrics.sums.loss))
        return found

    one = MeshConfig(1), 1
    found = losses((MeshConfig(1, stage=4), 1), (MeshConfig(2, stage=2), 2), one)
    np.testing.assert_allclose(found, losses(one, one, one), rtol=1e-5)
    assert found[-1] < found[0]
    assert resuming.may_change("model.stage_repeats", 1, 2)


@pytest.mark.parametrize("repeats", [1, 2])
def test_the_bubble_by_formula_is_that_of_the_program(repeats):
    """Products of all ticks of a stage, of which some are in vain: (S - 1) of (M R + S - 1)."""
    stages, rows = 2, len(BATCH.tgt.seg)

    def products(stages: int) -> int:
        kernels = [jnp.zeros((16, 16))] * 4
        x, seg = jnp.zeros((rows, 8, 16)), jnp.ones((rows, 8), jnp.int32)

        def group(layers, x, given):
            for kernel in layers:
                x = jnp.where(given[0][..., None] > 0, x @ kernel, x)
            return x

        with jax.set_mesh(mesh_of(MeshConfig(1, stage=stages))):
            if stages == 1:
                program = counting.program(lambda x: group(kernels, x, (seg,)), x)
            else:
                program = counting.program(
                    lambda x: pipeline.run(group, kernels, x, (seg,), repeats), x
                )
        return counting.operations(program).products

    parts = pipeline.microbatches(rows, stages)
    assert parts == 8
    idle = pipeline.bubble(stages, parts, repeats)
    assert idle == {1: 1 / 9, 2: 1 / 17}[repeats]
    assert products(1) / products(stages) == pytest.approx(1 - idle)


def exchanges(rows: int, repeats: int) -> list[Collective]:
    """Return what is sent for the gradients of a stack on two stages of two devices."""
    kernels = [jnp.ones((16, 16))] * 8
    x, read = jnp.ones((rows, 8, 16)), jnp.ones((rows, 8, 16))

    def group(layers, x, given):
        for kernel in layers:
            x = jnp.sin(x @ kernel) + given[0]
        return x

    def total(kernels, x, read):
        given, saved = (jnp.cos(read),), pipeline.all_but_copies
        return jnp.sin(pipeline.run(group, kernels, x, given, repeats, saved)).sum()

    with jax.set_mesh(mesh_of(MeshConfig(2, stage=2))):
        lowered = jax.jit(jax.grad(total, (0, 1, 2))).lower(kernels, x, read)
        return collectives(lowered.compile().as_text())


@pytest.mark.parametrize("repeats", [1, 2])
def test_gradients_add_up_once_however_many_microbatches(repeats):
    """Over the devices that have the same layers, nothing more is sent for four times the rows."""

    def sent(rows: int) -> float:
        found = exchanges(rows, repeats)
        return sum(one.sent for one in found if one.kind == "all-reduce" and one.span == 2)

    gradients = 4 * 16 * 16 * 4  # bytes, of the four layers of a stage
    assert sent(16) == sent(4) == 2 * (2 - 1) / 2 * gradients


def test_more_repeats_pass_on_more_microbatches_and_send_nothing_else():
    """No layers above all: stages pick those of a repeat from their own."""

    def sent(repeats: int) -> tuple[float, float]:
        found = exchanges(16, repeats)
        ring = sum(one.sent for one in found if one.kind == "collective-permute")
        return ring, sum(one.sent for one in found) - ring

    (twice, others), (four_times, the_same) = sent(2), sent(4)
    parts, stages = 8, 2
    ticks = [parts * repeats + stages - 1 for repeats in (2, 4)]
    assert twice / ticks[0] == four_times / ticks[1]
    assert others == the_same


@pytest.mark.parametrize("remat", REMATS)
def test_no_tick_saves_the_layers_that_it_picked(remat):
    """For the backward pass they are picked again: what the loop stacks has no kernel's shape."""
    config = replace(
        MODEL, stage_repeats=2, num_decoder_layers=8, remat=remat, compute_dtype="bfloat16"
    )
    model = build(config, VOCAB, VOCAB)
    params, batch = random_params(model), jax.device_put(for_model(config, BATCH))
    keys = Keys(jax.random.key(0), jax.random.key(1))

    def loss(params):
        return batch_sums(model, TrainingConfig(), params, batch, keys).loss

    with jax.set_mesh(mesh_of(MeshConfig(1, stage=2))):
        program = jax.make_jaxpr(jax.grad(loss))(params).jaxpr
    ticks = 8 * 2 + 2 - 1
    loops = [
        [x.aval.shape for x in one.outvars if x.aval.shape[:1] == (ticks,)]
        for one in equations(program)
        if one.primitive.name == "scan" and one.params["length"] == ticks
    ]
    assert len(loops) == 2  # forward and back
    assert all(loops)
    kernels = {(16, 24), (24, 16), (16, 4, 4), (4, 4, 16)}
    assert not {shape[-n:] for shapes in loops for shape in shapes for n in (2, 3)} & kernels


def equations(program):
    """Yield the equations of a program and of all inside it."""
    for one in program.eqns:
        yield one
        for inner in jaxprs_in_params(one.params):
            yield from equations(inner)


@pytest.mark.parametrize(
    ("rows", "stages", "parts"), [(8, 2, 8), (4, 4, 4), (24, 2, 8), (10, 2, 2), (24, 4, 12)]
)
def test_rows_are_in_equal_microbatches(rows, stages, parts):
    """Up to four for each stage, as rows allow."""
    assert pipeline.microbatches(rows, stages) == parts


@pytest.mark.parametrize(
    ("changes", "stages", "words"),
    [
        ({"num_decoder_layers": 6}, 4, ["num_decoder_layers", "mesh.stage=3", "or 8 layers"]),
        ({"num_decoder_layers": 5}, 4, ["5 layers", "config.mesh.stage=1", "or 8 layers"]),
        ({"feed_forward_pattern": ("dense", "experts")}, 4, ["repeat after 2", "mesh.stage=2"]),
        ({"residual": "reversible"}, 2, ["config.model.residual='reversible'", "config.mesh.data"]),
        ({"stage_repeats": 2}, 1, ["config.model.stage_repeats=2: config.mesh.stage=1", "to 1"]),
        ({"stage_repeats": 2, "num_decoder_layers": 6}, 4, ["config.mesh.stage=3", "or 8 layers"]),
        (
            {"stage_repeats": 5, "num_decoder_layers": 12},
            2,
            [
                "config.model.stage_repeats=5: 12 layers (config.model.num_decoder_layers)",
                "10 equal groups, 5 for each",
                "choose config.model.stage_repeats=3, or 20 layers",
            ],
        ),
        ({"multi_token": "parallel"}, 2, ["config.model.multi_token='parallel'"]),
        ({"d_model": 18}, 4, ["config.model.d_model: 18", "config.mesh.stage=2"]),
        ({"architecture": "dlinear"}, 2, ["architecture='dlinear'", "config.mesh.data"]),
    ],
)
def test_unequal_groups_of_layers_are_refused(changes, stages, words):
    """Before anything is compiled, with the nearest mesh that works."""
    experiment = Experiment(
        data=DataConfig(rows_divisible_by=8, max_length=8),
        objective=ObjectiveConfig(name="language_model", window=8),
        evaluation=EvaluationConfig(bleu_sentences=0),
        checkpoint=CheckpointConfig(best_by="loss"),
        model=replace(MODEL, dropout_rate=0.0),
    )
    object.__setattr__(experiment, "model", replace_unchecked(experiment.model, changes))
    with pytest.raises(UserError) as caught:
        check_mesh(mesh_of(MeshConfig(1, stage=stages)), experiment, (32, 32))
    for word in words:
        assert word in str(caught.value)


def replace_unchecked(model: ModelConfig, changes: dict) -> ModelConfig:
    """Return a config that is only asked for its stacks."""
    copy = replace(model)
    for name, value in changes.items():
        object.__setattr__(copy, name, value)
    return copy
