"""A training step is the same on every mesh: losses, parameters, and their placement."""

import dataclasses
import functools
import math
from operator import attrgetter

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from tiny import (
    RECURRENT,
    UNPACKED,
    VARIANTS,
    alone,
    boxes,
    for_model,
    random_params,
    random_state,
    random_store,
)
from tiny import VOCAB as PIECES

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
    SideConfig,
    TokenizerConfig,
    TrainingConfig,
)
from transformer_jax.config.choices.optimizers import OPTIMIZERS
from transformer_jax.data.batches.batch import Batch, Side, Target, Teacher
from transformer_jax.models.build import abstract_params, build, roles_of
from transformer_jax.nn import norm
from transformer_jax.nn.initializers import named
from transformer_jax.sharding import rules
from transformer_jax.sharding.mesh import (
    check_mesh,
    make_mesh,
    place_batch,
    place_batches,
    place_whole,
    row_share,
)
from transformer_jax.sharding.rules import bytes_per_device, param_shardings
from transformer_jax.training.adam import AdamState
from transformer_jax.training.optimizer import make_optimizer
from transformer_jax.training.schedule import make_schedule
from transformer_jax.training.state import abstract_state, init_state
from transformer_jax.training.step import (
    batch_sums,
    jit_train_step,
    make_train_step,
    make_validation_step,
    several_steps,
)

VOCAB = 32
MODEL = ModelConfig(
    d_model=16, d_ff=24, num_heads=8, head_dim=6, num_encoder_layers=1, num_decoder_layers=1,
    dropout_rate=0.1,
)  # fmt: skip
OPTIMIZER = OptimizerConfig(schedule="constant", learning_rate=5e-3, warmup_steps=3)
LENGTHS = [(1 + i % 6, (7, 2, 4, 1)[i % 4]) for i in range(14)]
BATCHES = [alone(random_store(LENGTHS, seed), 16, 6, 7) for seed in range(4)]
# The same in rows of lengths that several devices can share.
EVEN = [alone(random_store(LENGTHS, seed), 16, 8, 8) for seed in range(4)]
# What suits an optimizer that does not learn by these in ten steps.
OWN: dict[str, dict[str, float]] = {"sgd": {"learning_rate": 0.05}, "lion": {"learning_rate": 1e-3}}
STEPS = 10
# A key's bias has a gradient of exactly zero; Adam amplifies its rounding to full-size steps.
NOISE = "key/bias"


def mesh_of(*sizes: int):
    return make_mesh(MeshConfig(*sizes), jax.devices()[: math.prod(sizes)])


@functools.cache
def parts(slices: int = 1, algorithm: str = "adam", **changes):
    model = build(dataclasses.replace(MODEL, **changes), VOCAB, VOCAB)
    optimizer = dataclasses.replace(OPTIMIZER, algorithm=algorithm, **OWN.get(algorithm, {}))
    tx = make_optimizer(optimizer, make_schedule(optimizer, 16, STEPS), roles_of(model))
    config = TrainingConfig(accumulation_steps=slices)
    return model, tx, config


@functools.cache
def run(
    sizes: tuple[int, ...], slices: int = 1, algorithm: str = "adam", even: bool = False, **changes
):
    """Return the losses of the steps and the state after them."""
    model, tx, config = parts(slices, algorithm, **changes)
    batches = [for_model(model.config, batch) for batch in (EVEN if even else BATCHES)]
    mesh = mesh_of(*sizes)
    state, losses = random_state(model, tx, mesh), []
    step = jit_train_step(make_train_step(model, tx, config, 7), state, mesh)
    with jax.set_mesh(mesh):
        # Without the compiler's optimisations it compiles in half the time.
        step = step.lower(state, place_batch(batches[0], mesh)).compile(
            {"xla_backend_optimization_level": 0}
        )
        for number in range(STEPS):
            state, metrics = step(state, place_batch(batches[number % len(batches)], mesh))
            losses.append(float(metrics.sums.loss))
    return np.array(losses), state


@pytest.mark.thorough
def test_several_steps_of_one_program_are_the_same_steps():
    """Batches stacked along a first axis keep their rows on their devices."""
    model, tx, config = parts(**ALONE)
    mesh = mesh_of(4, 2, 1)
    batches = [for_model(model.config, batch) for batch in BATCHES]
    state = random_state(model, tx, mesh)
    step = several_steps(make_train_step(model, tx, config, 7), len(batches))
    with jax.set_mesh(mesh):
        _, metrics = jit_train_step(step, state, mesh)(state, place_batches(batches, mesh))
    losses = run((1, 1, 1), **ALONE)[0]
    np.testing.assert_allclose(metrics.sums.loss, losses[: len(BATCHES)], rtol=1e-5)


# Half the layers to compile, where their kinds do not matter; and other heads: fewer for keys,
# normalised over those of all devices, and few biases.
HALF = {
    "architecture": "decoder", "num_encoder_layers": 6, "num_kv_heads": 4,
    "query_key_norm": "all_heads", "biases": ("value", "feed_forward"), "activation": "geglu",
}  # fmt: skip
# Each axis by itself, and all of them together with all kinds of layers.
ALONE = {"architecture": "decoder", "num_encoder_layers": 6}
MESHES = {(8, 1, 1): ALONE, (1, 8, 1): ALONE, (2, 2, 2): {}, (1, 1, 8): ALONE}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "sizes",
    [pytest.param(x, marks=[pytest.mark.e2e] if MESHES[x] else []) for x in MESHES],
    ids=str,
)
def test_every_mesh_equals_one_device(sizes):
    """10 steps with dropout and Adam: the same losses, and the same parameters after them."""
    losses, state = run(sizes, **MESHES[sizes])
    expected_losses, expected = run((1, 1, 1), **MESHES[sizes])
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    assert losses[-1] < 0.9 * losses[0]  # and it learns

    def same(path, found, wanted):
        if not jax.tree_util.keystr(path, simple=True, separator="/").endswith(NOISE):
            np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)

    jax.tree_util.tree_map_with_path(same, state.params, expected.params)


def test_initial_parameters_do_not_depend_on_the_mesh():
    """They are drawn from their names and the seed, wherever they are placed."""
    model, tx, _ = parts(**ALONE, biases=(), activation="relu")
    found, expected = (init_state(model, tx, 7, mesh_of(*s)) for s in [(1, 8, 1), (1, 1, 1)])
    close = functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-6)
    jax.tree.map(close, found, expected)


def test_validation_loss_does_not_depend_on_the_mesh():
    """For a batch that every process holds in full."""
    model, _, config = parts(**ALONE)
    params, losses = jax.device_get(random_params(model)), []
    batch = for_model(model.config, BATCHES[0])
    for sizes in [(1, 1, 8), (1, 1, 1)]:
        mesh = mesh_of(*sizes)
        with jax.set_mesh(mesh):
            step = jax.jit(make_validation_step(model, config))
            where = param_shardings(abstract_params(model), mesh)
            sums = step(jax.device_put(params, where), place_whole(batch, mesh))
        losses.append(float(sums["tokens"].nll))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.thorough
def test_loops_shared_and_dropped_layers_and_muon_equal_one_device():
    """Which layers a step drops depends neither on the mesh nor on rematerialisation; and matrices
    whose rows and columns are on different devices are orthogonalised as a whole.
    """
    changes = {
        "num_decoder_layers": 3, "layer_sharing": "universal", "layer_drop_rate": 0.3,
        "layer_loop": "scan", "residual": "sandwich", "embedding_norm": "fix_norm",
    }  # fmt: skip
    losses, state = run((1, 2, 4), algorithm="muon", **HALF, **changes, remat="full")
    expected = run((1, 1, 1), algorithm="muon", **HALF, **changes)[0]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert losses[-1] < 0.9 * losses[0]
    kept = jax.tree.leaves(state.opt_state)
    assert any("tensor" in (leaf.sharding.spec or ()) for leaf in kept)


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", [*OPTIMIZERS][2:])
def test_every_optimizer_equals_one_device(algorithm):
    """Where rows and columns of kernels are on different devices; and its state is divided as the
    parameters are. Kernels are square: SOAP's first products of others have no unique eigenvectors.
    """
    changes = HALF | {"dropout_rate": 0.0, "head_dim": 2, "num_kv_heads": 8, "d_ff": 16}
    losses, state = run((1, 2, 4), algorithm=algorithm, **changes)
    expected = run((1, 1, 1), algorithm=algorithm, **changes)[0]
    # Lion's signs turn where a mean is nearly zero.
    np.testing.assert_allclose(losses, expected, rtol=1e-3 if algorithm == "lion" else 1e-4)
    assert losses[-1] < 0.95 * losses[0]
    specs = [leaf.sharding.spec for leaf in jax.tree.leaves(state.opt_state) if leaf.ndim]
    divided = {axis for spec in specs for axes in spec for axis in np.atleast_1d(axes)}
    assert {"fsdp", "tensor"} <= divided


@pytest.mark.thorough
def test_experts_equal_one_device():
    """Each device gathers its own positions, and loads are counted over all: the biases of experts
    are the same. Muon orthogonalises each expert's matrices, whose rows and columns
    are on different devices.
    """
    changes = HALF | {
        "feed_forward_pattern": ("experts",),
        "num_experts": 3,
        "activation": "swiglu",
    }
    losses, state = run((2, 2, 2), algorithm="muon", **changes)
    expected_losses, expected = run((1, 1, 1), algorithm="muon", **changes)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    assert losses[-1] < 0.9 * losses[0]
    layers = (x.params["decoder"]["layer_0"]["feed_forward"] for x in (state, expected))
    bias, of_one = (np.asarray(layer["router"]["load_bias"]) for layer in layers)
    np.testing.assert_allclose(bias, of_one, rtol=0, atol=1e-6)  # steps are of 1e-3


@pytest.mark.thorough
def test_divided_experts_equal_one_device():
    """With Muon, accumulation and the other axes; the loads are those of all devices."""
    changes = HALF | {
        "feed_forward_pattern": ("experts",), "num_experts": 4, "activation": "swiglu",
        "shared_experts": 1, "dropout_rate": 0.0,
    }  # fmt: skip
    losses, state = run((1, 2, 2, 1, 1, 2), slices=2, algorithm="muon", **changes)
    expected_losses, expected = run((1, 1, 1), algorithm="muon", **changes)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    assert losses[-1] < 0.9 * losses[0]
    layers = (x.params["decoder"]["layer_0"]["feed_forward"] for x in (state, expected))
    bias, of_one = (np.asarray(layer["router"]["load_bias"]) for layer in layers)
    np.testing.assert_allclose(bias, of_one, rtol=0, atol=1e-6)  # steps are of 1e-3


@pytest.mark.thorough
def test_stages_equal_one_device():
    """With Muon, accumulation and other axes, in groups of two kinds of layers."""
    changes = HALF | {
        "num_decoder_layers": 4, "feed_forward_pattern": ("dense", "experts"), "num_experts": 2,
        "activation": "swiglu", "remat": "dots", "dropout_rate": 0.0,
    }  # fmt: skip
    losses, state = run((1, 2, 2, 1, 1, 1, 2), slices=2, algorithm="muon", **changes)
    expected_losses, expected = run((1, 1, 1), algorithm="muon", **changes)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-5)
    assert losses[-1] < 0.9 * losses[0]
    layers = (x.params["decoder"]["layer_3"]["feed_forward"] for x in (state, expected))
    bias, of_one = (np.asarray(layer["router"]["load_bias"]) for layer in layers)
    np.testing.assert_allclose(bias, of_one, rtol=0, atol=1e-6)  # steps are of 1e-3


@pytest.mark.thorough
def test_accumulation_and_fused_attention_equal_one_device():
    """Two slices of 8 rows on 8 devices, without dropout, with the kernel and only products kept:
    the same as all rows at once on one device.
    """
    model = HALF | {"relative_positions": "t5", "dropout_rate": 0.0}
    losses = run((2, 2, 2), slices=2, attention="fused", remat="dots", **model)[0]
    np.testing.assert_allclose(losses, run((1, 1, 1), **model)[0], rtol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("attention", ["dense", "ring", "fused"])
def test_positions_on_several_devices_equal_one_device(attention):
    """Two devices have each half of a row, and two of these half of the heads instead within
    attention: by keys that are gathered, passed on, or read by a kernel; with Muon, experts and
    dropout.
    """
    changes = HALF | {
        "num_decoder_layers": 2, "feed_forward_pattern": ("dense", "experts"), "num_experts": 3,
        "relative_positions": "t5",
    }  # fmt: skip
    arguments = {"algorithm": "muon", "even": True, **changes}
    losses = run((1, 2, 1, 2, 2), attention=attention, **arguments)[0]
    expected = run((1, 1, 1), **arguments)[0]
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert losses[-1] < 0.9 * losses[0]


def test_a_row_that_devices_cannot_share_is_refused():
    """Before anything is compiled."""
    model, _, config = parts(**ALONE)
    step, params = make_validation_step(model, config), jax.eval_shape(lambda: random_params(model))
    why = r"rows of 7 positions .* 4 devices of context x ulysses"
    with jax.set_mesh(mesh_of(1, 1, 1, 4)), pytest.raises(UserError, match=why):
        jax.eval_shape(step, params, BATCHES[0])


# Where RULES place parameters of each name, as a person would read them.
LIES = {
    "embedding/table": PartitionSpec("tensor", "fsdp"),
    "query/kernel": PartitionSpec("fsdp", "tensor", None),
    "key/kernel": PartitionSpec("fsdp", "tensor", None),
    "value/kernel": PartitionSpec("fsdp", "tensor", None),
    "query/bias": PartitionSpec("tensor", None),
    "key/bias": PartitionSpec("tensor", None),
    "value/bias": PartitionSpec("tensor", None),
    "output/kernel": PartitionSpec("tensor", None, "fsdp"),
    "output/bias": PartitionSpec("fsdp"),
    "up/kernel": PartitionSpec("fsdp", "tensor"),
    "up/bias": PartitionSpec("tensor"),
    "down/kernel": PartitionSpec("tensor", "fsdp"),
    "down/bias": PartitionSpec("fsdp"),
    "norm/scale": PartitionSpec("fsdp"),
    "norm/bias": PartitionSpec("fsdp"),
}


@pytest.mark.parametrize("sizes", [(2, 2, 2), (1, 8, 1), (1, 1, 8)], ids=str)
def test_parameters_are_placed_according_to_the_rules(sizes):
    """Parameters and both moments of Adam, on one mesh after 10 steps; a device holds only its
    shard.
    """
    model, tx, _ = parts(**MESHES[sizes])
    state = run(sizes)[1] if sizes == (2, 2, 2) else random_state(model, tx, mesh_of(*sizes))
    names = set()
    moments = [x for x in jax.tree.leaves(state.opt_state, is_leaf=_is_adam) if _is_adam(x)]
    for tree in (state.params, moments[0].mean, moments[0].square):
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            name = "/".join(key.key for key in path[-2:])
            names.add(name)
            spec = LIES[name]
            assert leaf.sharding.is_equivalent_to(
                jax.sharding.NamedSharding(leaf.sharding.mesh, spec), leaf.ndim
            ), name
            divisor = [1 if axis is None else leaf.sharding.mesh.shape[axis] for axis in spec]
            held = tuple(size // by for size, by in zip(leaf.shape, divisor, strict=True))
            assert {shard.data.shape for shard in leaf.addressable_shards} == {held}
    assert names == LIES.keys()
    held = sum(x.addressable_shards[0].data.nbytes for x in jax.tree.leaves(state))
    assert bytes_per_device(abstract_state(model, tx), mesh_of(*sizes)) == held


def _is_adam(x) -> bool:
    return isinstance(x, AdamState)


def test_activations_are_sharded():
    """The lowered step contains the constraints by name: rows over data and fsdp, heads, d_ff."""
    model, tx, config = parts()
    mesh = mesh_of(2, 2, 2)
    state = random_state(model, tx, mesh)
    step = jit_train_step(make_train_step(model, tx, config, 7), state, mesh)
    with jax.set_mesh(mesh):
        text = step.lower(state, place_batch(BATCHES[0], mesh)).as_text()
    constraints = [line for line in text.splitlines() if "sharding_constraint" in line]
    rows, positions = '{"stage", "data", "fsdp", "expert"}', '{"context", "ulysses"}'
    for spec in (f"[{rows}, {positions}, {{}}]", f'[{rows}, {positions}, {{"tensor"}}]',
                 f'[{rows}, {{"context"}}, {{"tensor", "ulysses"}}, {{}}]'):  # fmt: skip
        assert any(spec in line for line in constraints), spec


def test_one_process_reads_all_rows():
    """However they are divided among its devices."""
    assert [row_share(mesh_of(*sizes)) for sizes in MESHES] == [(0, 1)] * len(MESHES)


@pytest.mark.parametrize(
    ("sizes", "rows", "slices", "words"),
    [
        ((8, 1, 1), 12, 1, ["rows_divisible_by=12", "multiple of 8", "set it to 16"]),
        ((2, 4, 1), 8, 2, ["rows_divisible_by=8", "multiple of 16", "accumulation_steps=2"]),
        ((1, 1, 8), 8, 1, ["config.model.num_heads: 4", "8 devices of config.mesh.tensor"]),
        ((1, 8, 1), 8, 1, ["config.model.d_model: 20", "8 devices of config.mesh.fsdp"]),
    ],
)
def test_sizes_that_a_mesh_does_not_divide_are_rejected(sizes, rows, slices, words):
    """The error names both numbers and the remedy."""
    experiment = Experiment(
        model=dataclasses.replace(MODEL, d_model=20, num_heads=4),
        data=DataConfig(max_length=16, rows_divisible_by=rows),
        training=TrainingConfig(accumulation_steps=slices),
    )
    with pytest.raises(UserError) as caught:
        check_mesh(mesh_of(*sizes), experiment, (32, 32))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "mesh", "words"),
    [
        ({"num_heads": 6}, {"ulysses": 4}, ["config.model.num_heads: 6", "multiple of 4"]),
        ({"num_kv_heads": 2}, {"tensor": 2, "ulysses": 2}, ["config.model.num_kv_heads: 2 "]),
        ({}, {"context": 8}, ["config.data.max_length=36", "the 8 devices", "set it to 40"]),
    ],
)
def test_positions_that_a_mesh_does_not_divide_are_rejected(changes, mesh, words):
    experiment = Experiment(
        model=dataclasses.replace(MODEL, **changes),
        data=DataConfig(max_length=36, batching="pack"),
    )
    config = MeshConfig(1, **mesh)
    devices = jax.devices()[: math.prod(dataclasses.astuple(config))]
    with pytest.raises(UserError) as caught:
        check_mesh(make_mesh(config, devices), experiment, (32, 32))
    for word in words:
        assert word in str(caught.value)


def test_a_vocabulary_that_a_mesh_does_not_divide_is_rejected():
    """The tokenizer may find fewer pieces than asked for; the parameters themselves are checked."""
    with pytest.raises(UserError, match=r"tokenizer\.vocab_size: 33 .* 2 devices of .*tensor"):
        param_shardings(abstract_params(build(MODEL, 33, 33)), mesh_of(2, 2, 2))


def test_a_fixed_vocabulary_is_named_by_its_codec():
    """Bytes are 260 pieces, whatever config.tokenizer says; each side is checked."""
    pieces = TokenizerConfig(vocab_size=33, joint=False)
    experiment = Experiment(
        model=dataclasses.replace(MODEL, num_heads=8, head_dim=2, tied_embeddings="none"),
        tokenizer=pieces, tgt=SideConfig("bytes"),
    )  # fmt: skip
    with pytest.raises(UserError, match=r"^config\.tgt\.codec='bytes': 260 .* 8 devices of"):
        check_mesh(mesh_of(1, 1, 8), experiment, (32, 260))
    with pytest.raises(UserError, match=r"^config\.tokenizer\.vocab_size: 33 .* 8 devices of"):
        check_mesh(mesh_of(1, 1, 8), experiment, (33, 260))


@functools.cache
def boxes_of(config: ModelConfig) -> list:
    """Return parameters with their logical axes."""
    params = boxes(build(config, PIECES, PIECES))
    return jax.tree.leaves(params, is_leaf=lambda x: hasattr(x, "names"))


def wrong_axes() -> list[str]:
    """Return logical axes of parameters that the mesh divides unchecked, in any form of the model.

    Axes without a rule, axes that a rule divides and no field sizes, and axes whose size is not
    that of their field; also axes that a parameter has twice, which cannot be divided at all.
    """
    every = [*VARIANTS.values(), *RECURRENT.values()]
    boxes = [box for config in [*every, *UNPACKED.values()] for box in boxes_of(config)]
    wrong = {name for box in boxes for name in box.names if name and box.names.count(name) > 1}
    for config in every:
        pieces, data = TokenizerConfig(vocab_size=PIECES), DataConfig(max_length=8)
        name = "language_model" if config.architecture == "decoder" else "translate"
        experiment = Experiment(
            model=config, tokenizer=pieces, data=data, objective=ObjectiveConfig(name, window=8),
            evaluation=EvaluationConfig(bleu_sentences=0),
            checkpoint=CheckpointConfig(best_by="loss"),
        )  # fmt: skip
        sizes = {axis: attrgetter(path)(experiment) for axis, path in rules.SIZES.items()}
        for name, size in {
            pair for b in boxes_of(config) for pair in zip(b.names, b.value.shape, strict=True)
        }:
            if not rules.is_known(name) or sizes.get(name, size) != size:
                wrong.add(name)
    return sorted(wrong)


@pytest.mark.thorough
def test_every_axis_of_parameters_is_checked():
    assert wrong_axes() == []


@pytest.mark.parametrize(
    ("axis", "table"),
    [
        ("mlp", {"RULES": [rule for rule in rules.RULES if rule[0] != "mlp"]}),
        ("heads", {"SIZES": {axis: path for axis, path in rules.SIZES.items() if axis != "heads"}}),
        ("mlp", {"SIZES": rules.SIZES | {"mlp": "model.num_heads"}}),
    ],
    ids=["no rule", "no field", "another field"],
)  # fmt: skip
def test_an_unchecked_axis_is_detected(axis, table, monkeypatch):
    """By the test above and, if the axis is unknown, when parameters are placed."""
    for name, value in table.items():
        monkeypatch.setattr(rules, name, value)
    assert wrong_axes() == [axis]
    if not rules.is_known(axis):
        with pytest.raises(UserError, match=rf"\['{axis}'\] have no rule in RULES"):
            param_shardings(abstract_params(parts()[0]), mesh_of(2, 2, 2))


def test_an_axis_needs_a_rule_or_no_name(monkeypatch):
    """A layer's own axis, which no mesh divides, needs no rule; one that is misspelt is found."""
    config = dataclasses.replace(MODEL, norm="rms_norm", residual="pre_norm")

    def placed(axis):
        monkeypatch.setattr(norm, "named", lambda init, _, role: named(init, axis, role=role))
        params = abstract_params.__wrapped__(build(config, VOCAB, VOCAB))
        return param_shardings(params, mesh_of(2, 2, 2))["encoder"]["final_norm"]["scale"].spec

    assert placed("embed") == PartitionSpec(("fsdp", "stage"))
    assert placed(None) == PartitionSpec(None)
    with pytest.raises(UserError, match=r"\['embedd'\] have no rule in RULES"):
        placed("embedd")


def test_a_size_of_none_is_that_of_another_field():
    """As the number of key heads is that of query heads unless set."""
    experiment = Experiment(model=MODEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(rules.SIZES, "kv_heads", "model.v_head_dim")
        check_mesh(mesh_of(1, 1, 8), experiment, (32, 32))


@pytest.mark.parametrize("sizes", [(3, 1, 1), (-1, 3, 1), (2, 2, 1), (16, -1, 1)], ids=str)
def test_a_mesh_must_use_all_devices(sizes):
    with pytest.raises(UserError, match=r"config\.mesh\..*8 devices"):
        make_mesh(MeshConfig(*sizes))


def sizes(config: MeshConfig) -> dict[str, int]:
    """Return the axes of a mesh along which there are several devices."""
    return {name: size for name, size in make_mesh(config).shape.items() if size > 1}


def test_minus_one_takes_the_remaining_devices():
    assert sizes(MeshConfig(-1, 2, 2)) == {"data": 2, "fsdp": 2, "tensor": 2}
    assert sizes(MeshConfig(1, -1, 1)) == {"fsdp": 8}
    assert sizes(MeshConfig(1, context=-1, ulysses=2)) == {"context": 4, "ulysses": 2}


@pytest.mark.thorough
def test_an_encoder_on_a_mesh_equals_one_device():
    """The gradients of all its predictions together, with d_model and the vocabulary divided, but
    not the three classes.
    """
    config = dataclasses.replace(
        MODEL, architecture="encoder", num_decoder_layers=6, token_types=2, input_norm=True,
    )  # fmt: skip
    model = build(config, VOCAB, 3, predicts=("tokens", "class", "next_sentence", "tags"))
    params, side = jax.device_get(random_params(model)), BATCHES[0].src
    asked = Side(0 * side.inputs[:, :1], 0 * side.pos[:, :1], side.seg[:, :1])
    targets = {
        name: Target(place.inputs % (3 - (name == "next_sentence")), np.float32(place.seg > 0))
        for name, place in (
            ("tokens", side),
            ("class", asked),
            ("next_sentence", asked),
            ("tags", side),
        )
    }

    def gradient(mesh):
        placed = jax.device_put(params, param_shardings(abstract_params(model), mesh))
        batch = place_whole(Batch(side, asked, targets), mesh)

        def loss(params, batch):
            return batch_sums(model, TrainingConfig(), params, batch, None).loss

        with jax.set_mesh(mesh):
            return jax.jit(jax.grad(loss))(placed, batch)

    found, expected = gradient(mesh_of(2, 2, 2)), gradient(mesh_of(1, 1, 1))
    assert found["piece_head"]["bias"].sharding.shard_shape((VOCAB,)) == (VOCAB // 2,)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)


@pytest.mark.thorough
def test_a_teacher_on_a_mesh_equals_one_device():
    """Its rows are divided as the batch's are, and so are those of further predictions."""
    config = dataclasses.replace(
        MODEL, architecture="decoder", num_encoder_layers=6, multi_token="sequential",
    )  # fmt: skip
    model, rng = build(config, VOCAB, VOCAB), np.random.default_rng(0)
    params, (_, side, targets, *_) = jax.device_get(random_params(model)), BATCHES[0]
    shares = np.log(rng.dirichlet(np.ones(4), side.inputs.shape)).astype(np.float32)
    ids = np.argsort(rng.random((*side.inputs.shape, VOCAB)))[..., :3].astype(np.int32)
    training = TrainingConfig(distillation_weight=0.7, distillation_temperature=2.0)

    def gradient(mesh):
        placed = jax.device_put(params, param_shardings(abstract_params(model), mesh))
        batch = place_whole(Batch(None, side, targets, teacher=Teacher(ids, shares)), mesh)

        def loss(params, batch):
            return batch_sums(model, training, params, batch, None).loss

        with jax.set_mesh(mesh):
            return jax.jit(jax.value_and_grad(loss))(placed, batch)

    found, expected = gradient(mesh_of(2, 2, 2)), gradient(mesh_of(1, 1, 1))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-3)
