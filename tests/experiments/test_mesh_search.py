"""A search for meshes: what it predicts, against programs, and what it refuses."""

import math
from dataclasses import astuple, replace

import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.cli.main import dispatch
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
from transformer_jax.experiments.accelerators import GPUS, Chip, Links
from transformer_jax.experiments.mesh_search import (
    best,
    exchanged,
    found,
    known,
    meshes,
    ranked,
    search,
    shown,
)
from transformer_jax.models.pipeline import microbatches

EXPERIMENT = Experiment(
    model=ModelConfig(
        architecture="decoder", d_model=64, d_ff=128, num_heads=4, num_decoder_layers=8,
        feed_forward_pattern=("dense", "experts"), num_experts=4,
    ),
    tokenizer=TokenizerConfig(vocab_size=320),
    objective=ObjectiveConfig("language_model", window=16),
    data=DataConfig(batching="pack", max_length=16, tokens_per_batch=512),
    evaluation=EvaluationConfig(bleu_sentences=0),
    checkpoint=CheckpointConfig(best_by="loss"),
)  # fmt: skip
CHIP = GPUS["H100 SXM"]


@pytest.fixture(scope="module")
def of():
    return known(EXPERIMENT)


def test_every_mesh_is_tried_once():
    """As many as ways to share three factors of 2 among the axes."""
    every = [*meshes(8)]
    axes = len(astuple(MeshConfig()))
    assert len({*every}) == len(every) == math.comb(3 + axes - 1, axes - 1)
    assert {math.prod(astuple(mesh)) for mesh in every} == {8}


@pytest.mark.parametrize(
    ("mesh", "possible"),
    [
        (MeshConfig(8), True),
        (MeshConfig(1, 2, expert=4), True),
        (MeshConfig(1, expert=8), False),  # of 4 experts
        (MeshConfig(1, stage=2), True),
        (MeshConfig(1, stage=8), False),  # layers repeat after 2
        (MeshConfig(64), False),  # of 32 rows
        (MeshConfig(1, context=32), False),  # of 16 positions
    ],
    ids=str,
)
def test_meshes_that_do_not_divide_the_experiment_are_left_out(mesh, possible, of):
    assert (found(EXPERIMENT, of, mesh, CHIP) is not None) is possible


def test_what_is_sent_follows_the_formulas(of):
    """Of all gradients once; of layers to stages; to experts, a buffer for all choices to each."""
    state = found(EXPERIMENT, of, MeshConfig(1), CHIP)
    assert state.sent == {}
    assert state.step.near == state.step.far == state.idle == 0
    sent = found(EXPERIMENT, of, MeshConfig(4), CHIP).sent["gradients over data"].sent
    half = found(EXPERIMENT, of, MeshConfig(2, 2), CHIP).sent["gradients over data"].sent
    assert sent / (3 / 4) == pytest.approx(2 * half / (1 / 2))
    vectors = 32 * 16 * 64 * 4  # bytes of all
    experts = found(EXPERIMENT, of, MeshConfig(1, expert=4), CHIP).sent["positions over expert"]
    choices = EXPERIMENT.model.experts_per_token
    assert experts.sent == 4 * 3 * choices * vectors / 4 * 4
    stages = found(EXPERIMENT, of, MeshConfig(1, stage=2), CHIP)
    assert stages.sent["microbatches over stage"].sent == (2 + 4 / 2) * vectors
    assert stages.idle == 1 / 9


def test_layers_that_hand_on_a_state_send_no_keys(of):
    """A quarter of the layers attend, and send a quarter of what all would."""
    mesh, pattern = MeshConfig(1, context=4), ("mamba2", "full", "lstm", "linear")
    model = replace(EXPERIMENT.model, decoder_pattern=pattern, state_heads=4)
    sent = [
        exchanged(one, of, mesh)["keys and values over context"].sent
        for one in (EXPERIMENT.model, model)
    ]
    assert sent[0] == 4 * sent[1] > 0


def test_windows_send_the_blocks_beside_alone(of):
    """Keys and values of a window for those of three other devices, and gradients back; those of
    all where a device has no whole windows.
    """
    mesh, share = MeshConfig(1, context=4), 16 // 4
    full, two, one, three = (
        exchanged(replace(EXPERIMENT.model, **fields), of, mesh)["keys and values over context"]
        for fields in (
            {}, *({"decoder_pattern": ("local",), "window": size} for size in (2, 1, 3))
        )
    )  # fmt: skip
    keys = full.sent / (6 * 3)
    assert two.sent == 2 * one.sent == pytest.approx(2 * 2 * keys * 2 / share)
    assert three.sent == full.sent


def test_attention_to_a_source_sends_as_much_as_that_within_a_text(of):
    """Four layers of an encoder and four of a decoder attend twelve times; four of the eight of the
    decoder alone have two experts' answers to add up.
    """
    both = replace(
        EXPERIMENT.model, architecture="encoder_decoder", num_encoder_layers=4,
        num_decoder_layers=4, num_experts=ModelConfig().num_experts,
        feed_forward_pattern=ModelConfig().feed_forward_pattern,
    )  # fmt: skip
    axes = {"context": "keys and values over context", "ulysses": "heads over ulysses",
            "tensor": "activations over tensor"}  # fmt: skip
    for axis, what in axes.items():
        mesh = MeshConfig(1, **{axis: 4})
        one, other = (exchanged(m, of, mesh)[what].sent for m in (EXPERIMENT.model, both))
        parts = (20, 20) if axis == "tensor" else (8, 12)  # all parts of layers, or attention
        assert other / one == pytest.approx(parts[1] / parts[0])


def test_pipelines_over_divided_positions_add_up_gradients_in_every_turn(of):
    """Of 32 rows in 16 microbatches; without stages, once."""
    once, staged = (
        exchanged(EXPERIMENT.model, of, MeshConfig(1, context=2, stage=n)) for n in (1, 2)
    )
    assert "gradients over positions" not in once
    assert "gradients over data" not in staged
    own = of.parameters + of.experts
    assert once["gradients over data"].sent == pytest.approx(own)
    turns = microbatches(32, 2) + 1
    assert staged["gradients over positions"].sent == pytest.approx(turns * own / 2)


def test_of_meshes_that_are_level_the_one_with_fewest_axes_is_first(of):
    """Within a hundredth of the fastest; the others by their seconds."""
    one = found(EXPERIMENT, of, MeshConfig(8), CHIP)

    def taking(mesh: MeshConfig, seconds: float):
        return one._replace(mesh=mesh, step=one.step._replace(computing=seconds, near=0, far=0))

    three, two, alone, last = (
        taking(MeshConfig(2, 2, 2), 1.0), taking(MeshConfig(4, 2), 1.006),
        taking(MeshConfig(8), 1.009), taking(MeshConfig(1, 8), 1.02),
    )  # fmt: skip
    assert ranked([last, alone, three, two]) == [alone, two, three, last]


def with_repeats(count: int) -> Experiment:
    return replace(EXPERIMENT, model=replace(EXPERIMENT.model, stage_repeats=count))


def test_repeats_of_stages_wait_less_and_send_more(of):
    """Microbatches alone, forward and back; so the links decide."""
    mesh = MeshConfig(1, stage=2)
    once, twice, refused = (found(with_repeats(n), of, mesh, CHIP) for n in (1, 2, 4))
    assert refused is None  # 8 layers that repeat after 2
    assert twice.idle == 1 / 17
    assert twice.step.computing / once.step.computing == pytest.approx((1 - 1 / 9) / (1 - 1 / 17))
    vectors = 32 * 16 * 64 * 4
    key = "microbatches over stage"
    assert twice.sent[key].sent - once.sent[key].sent == 2 * vectors
    assert {k: v for k, v in once.sent.items() if k != key}.items() <= twice.sent.items()
    slow, fast = (Chip(80e9, 989e12, links=Links(8, rate, rate)) for rate in (1e3, 1e18))
    assert best(EXPERIMENT, of, mesh, slow).repeats == 1
    assert best(EXPERIMENT, of, mesh, fast).repeats == 2
    assert shown(twice).startswith("--config.mesh.stage=2 ")
    assert shown(twice).endswith(" --config.model.stage_repeats=2")
    assert best(EXPERIMENT, of, MeshConfig(2), fast).repeats == 1


def test_the_best_are_first_and_do_fit(of):
    """Slow links make meshes that send less better."""
    lines = [*search(EXPERIMENT, 8)]
    assert len(lines) == 6
    times = [float(line.split(": ")[1].split(" ms")[0]) for line in lines[1:]]
    assert times == sorted(times)
    slow = Chip(80e9, 989e12, links=Links(8, 1e6, 1e6))
    every = [one for mesh in meshes(8) if (one := found(EXPERIMENT, of, mesh, slow))]
    first = min(every, key=lambda one: one.seconds)
    total = {shown(one): sum(x.sent for x in one.sent.values()) for one in every}
    assert total[shown(first)] == min(total.values())


def test_no_mesh_is_an_error():
    with pytest.raises(UserError, match=r"--search=1021: no mesh of 1021 devices divides 32 rows"):
        next(search(EXPERIMENT, 1021))


def test_a_wrong_number_of_devices_is_refused():
    with pytest.raises(UserError, match=r"--search=0: must be at least 1"):
        dispatch(["plan", "--config=wmt_big", "--search=0"])
