"""What programs exchange: ring costs counted by hand, and what a training step must."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec
from tiny import MODEL

from transformer_jax.config import (
    CheckpointConfig,
    DataConfig,
    EvaluationConfig,
    Experiment,
    MeshConfig,
    ModelConfig,
    ObjectiveConfig,
    TokenizerConfig,
)
from transformer_jax.experiments.accelerators import Chip, Links
from transformer_jax.experiments.collectives import Collective, collectives
from transformer_jax.experiments.plan import compile_step
from transformer_jax.experiments.scaling import on_gpus, predict
from transformer_jax.training.cost import parameters


def sent_by(function, **axes):
    """Return what a function of a float32 array [1 16 16] on each of 8 devices exchanges."""
    mesh = Mesh(np.array(jax.devices()[:8]).reshape([*axes.values()]), [*axes])
    given = PartitionSpec(tuple(axes))
    mapped = jax.shard_map(function, mesh=mesh, in_specs=given, out_specs=given, check_vma=False)
    return collectives(jax.jit(mapped).lower(jnp.ones((8, 16, 16))).compile().as_text())


SIZE = 16 * 16 * 4
KINDS = {
    "all-reduce": (lambda x: jax.lax.psum(x, "data"), 2 * 7 / 8 * SIZE),
    "all-gather": (lambda x: jax.lax.all_gather(x, "data"), 7 * SIZE),
    "reduce-scatter": (lambda x: jax.lax.psum_scatter(x, "data", scatter_dimension=1, tiled=True),
                       7 / 8 * SIZE),
    "all-to-all": (lambda x: jax.lax.all_to_all(x, "data", 1, 0, tiled=True), 7 / 8 * SIZE),
    "collective-permute": (lambda x: jax.lax.ppermute(x, "data", [(0, 5), (1, 0)]), SIZE),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_sent_match_a_ring(kind):
    function, sent = KINDS[kind]
    (found,) = sent_by(function, data=8)
    assert (found.kind, found.times, found.sent) == (kind, 1, pytest.approx(sent))
    assert (found.devices, found.span) == ((2, 6) if kind == "collective-permute" else (8, 8))


def test_loop_iterations_count_and_groups_are_distinguished():
    """In a 2 x 4 mesh, neighbours lie along the second axis."""

    def function(x):
        y = jax.lax.fori_loop(0, 5, lambda _, y: jax.lax.psum(jnp.sin(y), "near"), x)
        return jax.lax.psum(y * y, "far")

    found = sent_by(function, far=2, near=4)
    near, far = (2 * (n - 1) / n * SIZE for n in (4, 2))
    assert found == [
        Collective("all-reduce", 2, 5, 1, far), Collective("all-reduce", 4, 4, 5, 5 * near)
    ]  # fmt: skip


def test_every_notation_of_groups_is_parsed():
    """Each line is the same exchange among devices 0, 2, 4 and 6 of 8."""
    groups = (
        "replica_groups={{0,2,4,6},{1,3,5,7}}",
        "replica_groups=[2,4]<=[4,2]T(1,0)",
        "replica_groups=mesh['a'=4,'b'=2] {'a'}",
        "replica_groups=mesh['a'=2,'b'=4] {'a','b':(1)2}",
        "replica_groups=mesh['a'=2,'b'=4], device_ids=([4,2]T(1,0)) {'b'}",
    )
    for text in groups:
        program = (
            f"ENTRY %main (x: f32[4]) -> f32[4] {{\n  %y = f32[4] all-reduce(%x), {text}, a\n}}"
        )
        assert collectives(program) == [Collective("all-reduce", 4, 7, 1, 24.0)], text
    unknown = program.replace(groups[-1], "replica_groups=somewhere")
    with pytest.raises(ValueError, match=r"of this collective: %y = .*somewhere"):
        collectives(unknown)


def test_operands_beside_the_results_of_starts_are_not_counted():
    kinds = {
        "all-reduce-start": ("f32[8]", 48),
        "all-gather-start": ("(f32[8]{0:T(8,128)}, f32[32])", 96),
        "reduce-scatter-start": ("((bf16[8]), (bf16[2]))", 12),
        "collective-permute-start": ("(f32[8], f32[8])", 32),
    }
    for kind, (result, sent) in kinds.items():
        groups = "source_target_pairs={{0,1},{1,0}}" if "permute" in kind else "replica_groups={}"
        program = (
            "HloModule m, num_partitions=4\n\n"
            f"ENTRY main (x: f32[4]) -> f32[4] {{\n  y = {result} {kind}(x), {groups}\n}}"
        )
        assert [one.sent for one in collectives(program)] == [sent], kind


@pytest.mark.thorough
def test_data_parallelism_exchanges_gradients_alone():
    """Nothing grows with the batch or the loss slices, four times as many in the longer batch."""
    model = dataclasses.replace(MODEL, num_heads=2)
    sent = []
    for positions in (1024, 4096):
        experiment = Experiment(
            model=model,
            data=DataConfig(max_length=128, tokens_per_batch=positions),
            mesh=MeshConfig(data=4),
            tokenizer=TokenizerConfig(vocab_size=40),
        )
        found = compile_step(experiment, jax.devices()[:4]).collectives
        assert {one.kind for one in found} == {"all-reduce"}
        sent.append(sum(one.sent for one in found))
    count, table = parameters(model, (40, 40)), 40 * model.d_model
    assert sent[1] == sent[0]
    # The table is used three times: compilers that do not add before they exchange send it 3 times.
    assert 1.5 * 4 * count <= sent[0] <= 1.5 * 4 * (count + 2 * table) + 100


@pytest.mark.thorough
@pytest.mark.parametrize(("axis", "keys"), [("ulysses", 4), ("context", 1), ("context", 4)])
def test_divided_positions_send_heads_or_keys_alone(axis, keys):
    """Heads are exchanged for positions; or keys and values are gathered, queries are not, and the
    gradients of both add up. Nothing else grows with the batch.
    """
    model = ModelConfig(
        architecture="decoder", num_decoder_layers=2, d_model=64, d_ff=32, num_heads=4,
        num_kv_heads=keys, dropout_rate=0.0,
    )  # fmt: skip
    grown = {}
    for rows in (8, 16):
        experiment = Experiment(
            model=model,
            objective=ObjectiveConfig("language_model", window=32),
            data=DataConfig(batching="pack", max_length=32, tokens_per_batch=32 * rows),
            mesh=MeshConfig(data=1, **{axis: 4}),
            tokenizer=TokenizerConfig(vocab_size=40),
            evaluation=EvaluationConfig(bleu_sentences=0),
            checkpoint=CheckpointConfig(best_by="loss"),
        )
        for one in compile_step(experiment, jax.devices()[:4]).collectives:
            grown[one.kind] = one.sent - grown.get(one.kind, 0) * (rows == 16)
    layers, row = model.num_decoder_layers, 8 * 32 * model.d_model * 4  # of eight rows
    own = row * keys / 4  # of keys, as of values
    if axis == "ulysses":
        # A quarter of each array less what stays, forward and back.
        expected = {"all-to-all": layers * 2 * (3 / 4) * (2 * row + 2 * own) / 4}
    else:
        # Whole arrays; a CPU adds up all of a gradient, and sends twice as much.
        expected = {"all-gather": layers * (3 / 4) * 2 * own,
                    "all-reduce": 2 * layers * (3 / 4) * 2 * own}  # fmt: skip
    for kind, sent in grown.items():
        assert sent == pytest.approx(expected.get(kind, 0), rel=0.02, abs=2000), kind


@pytest.mark.thorough
@pytest.mark.parametrize("mesh", [MeshConfig(1, 4), MeshConfig(1, 2, ulysses=2)], ids=str)
def test_shared_experts_are_gathered_and_positions_are_not(mesh):
    """Where devices share parameters at rest, with and without divided positions, no all-gather
    grows with the batch.
    """
    gathered = []
    for rows in (8, 16):
        experiment = Experiment(
            model=ModelConfig(
                architecture="decoder", num_decoder_layers=1, d_model=64, d_ff=128, num_heads=4,
                feed_forward_pattern=("experts",), num_experts=4, dropout_rate=0.0,
            ),
            objective=ObjectiveConfig("language_model", window=32),
            data=DataConfig(batching="pack", max_length=32, tokens_per_batch=32 * rows),
            mesh=mesh,
            tokenizer=TokenizerConfig(vocab_size=40),
            evaluation=EvaluationConfig(bleu_sentences=0),
            checkpoint=CheckpointConfig(best_by="loss"),
        )  # fmt: skip
        found = compile_step(experiment, jax.devices()[:4]).collectives
        gathered.append(sum(one.sent for one in found if one.kind == "all-gather"))
    assert gathered[1] == pytest.approx(gathered[0], rel=0.02)


def test_predicted_times_follow_a_roofline():
    """A ring leaves a node once; in a group with one device per node, each has its own link."""
    chip = Chip(1e9, 1e6, links=Links(node=4, near=100.0, far=10.0))
    found = [
        Collective("all-gather", 4, 4, 1, 200.0),
        Collective("all-reduce", 8, 8, 2, 800.0),
        Collective("all-reduce", 2, 5, 1, 300.0),
    ]
    step = predict(4e6, found, chip)
    assert step == (pytest.approx(10), pytest.approx(2), pytest.approx(20 + 30))
    assert step.efficiency == pytest.approx((10 / 62, 10 / 52))


def test_inefficient_meshes_are_warned_about():
    experiment = Experiment(mesh=MeshConfig(data=1, tensor=8))
    slow = [Collective("all-reduce", 8, 8, 1, 1e12)]
    lines = list(on_gpus(experiment, 10**9, 1e12, slow, 10**8))
    assert sum(line.startswith("GPU: ") for line in lines) == 5
    shown = "\n".join(line for line in lines if line.startswith("warning: "))
    assert "config.mesh.tensor=8 shards a state of 0.1 GB, which fits on one A100 40GB" in shown
    assert "on A100 40GB, A100 80GB, H100 SXM, H200 SXM, B200 a step would communicate" in shown
    wide = Experiment(mesh=MeshConfig(data=1, tensor=16))
    (line, *_) = (x for x in on_gpus(wide, 10**9, 1e18, slow, 10**11) if x.startswith("warning"))
    assert "config.mesh.tensor=16 shards every layer across nodes of 8 devices" in line
