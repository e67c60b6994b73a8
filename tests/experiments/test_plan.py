"""A plan's numbers: counted by hand, from the program's own products, and by a compiler."""

import dataclasses
import itertools
import os

import by_formula
import numpy as np
import pytest
from tiny import MODEL, VOCAB

from transformer_jax.base.errors import UserError
from transformer_jax.cli.main import dispatch
from transformer_jax.config import (
    CheckpointConfig,
    DataConfig,
    EvaluationConfig,
    Experiment,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
    SideConfig,
    SourceConfig,
    TokenizerConfig,
    TrainingConfig,
)
from transformer_jax.config.choices.objectives import OBJECTIVES
from transformer_jax.config.choices.optimizers import OPTIMIZERS
from transformer_jax.data.batches.batch import Ragged
from transformer_jax.data.batches.batching import PLANS, Shape
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.experiments.plan import Compiled, compile_for_tpu, report
from transformer_jax.training.cost import longest_shape, roughly, state_bytes, step_cost
from transformer_jax.training.heartbeat import duration

BIG = ModelConfig(d_model=1024, d_ff=4096, num_heads=16)
SHAPE = Shape(4, 6, 8)
FORMS = {
    "plain": {},
    "scan-full": {
        "layer_loop": "scan",
        "remat": "full",
        "num_encoder_layers": 2,
        "num_decoder_layers": 3,
        "num_heads": 3,
    },
    "shared": {
        "layer_sharing": "universal",
        "num_decoder_layers": 3,
        "layer_drop_rate": 0.1,
        "layer_loop": "scan",
        "residual": "sandwich",
        "embedding_norm": "fix_norm",
    },
    "fused-dots": {"attention": "fused", "remat": "dots", "num_encoder_layers": 2},
    "shaw_values": {"relative_positions": "shaw_values", "relative_clip": 3, "v_head_dim": 5},
    "experts": {"feed_forward_pattern": ("experts",), "num_experts": 3, "num_encoder_layers": 2},
    "xlnet-full": {"relative_positions": "xlnet", "remat": "full"},
}


def cost_of(changes, shape=SHAPE, **groups):
    config = dataclasses.replace(MODEL, **changes)
    experiment = Experiment(model=config, tokenizer=TokenizerConfig(vocab_size=VOCAB), **groups)
    return experiment, step_cost(experiment, (VOCAB, VOCAB), shape)


def wrong(formula) -> list[str]:
    """Return the forms of the model whose operations a formula does not give exactly."""
    counted = {name: cost_of(changes) for name, changes in FORMS.items()}
    return [
        name
        for name, (experiment, cost) in counted.items()
        if cost.operations != (formula(experiment.model, VOCAB, *SHAPE), ())
    ]


@pytest.mark.thorough
def test_the_formula_matches_the_operations_of_the_program():
    """Exactly, for all products of a step."""
    assert wrong(by_formula.operations) == []


@pytest.mark.thorough
def test_a_formula_that_omits_a_product_is_detected():
    def without_cross_attention(config, vocabulary, rows, src_length, tgt_length):
        heads = config.num_heads * (config.key_size + config.value_size)
        scores = 6 * config.num_decoder_layers * rows * tgt_length * src_length * heads
        return by_formula.operations(config, vocabulary, rows, src_length, tgt_length) - scores

    assert wrong(without_cross_attention) == list(FORMS)


@pytest.mark.thorough
def test_operations_of_an_encoder():
    """For masked pieces, with a linear map before the table, one class per row, both, and outputs
    per position.
    """
    evaluation, checkpoint = EvaluationConfig(bleu_sentences=0), CheckpointConfig(best_by="loss")
    for name, sizes, shape, classes in (
        ("masked_lm", (VOCAB, VOCAB), Shape(4, 6, 0), 0),
        ("classify", (VOCAB, 3), Shape(4, 6, 1), 3),
        ("masked_lm_nsp", (VOCAB, VOCAB), Shape(4, 6, 1), 2),
        ("tag", (VOCAB, 3), Shape(4, 6, 0), 0),
        ("regress", (VOCAB, 1), Shape(4, 6, 1), 1),
        ("answer", (VOCAB, 2), Shape(4, 6, 2), 0),
    ):  # fmt: skip
        masked = "masked" in name
        config = dataclasses.replace(
            MODEL, architecture="encoder", num_encoder_layers=1 + (name == "classify"),
            num_decoder_layers=6, token_types=2, input_norm=True,
        )  # fmt: skip
        experiment = Experiment(
            model=config, objective=ObjectiveConfig(name, window=6),  # type: ignore[arg-type]
            tgt=SideConfig(OBJECTIVES[name].labels or "subwords"),
            tokenizer=TokenizerConfig(vocab_size=VOCAB, joint=masked), evaluation=evaluation,
            checkpoint=checkpoint,
        )  # fmt: skip
        counted = step_cost(experiment, sizes, shape).operations
        by_hand = by_formula.of_encoder(config, VOCAB, 4, 6, classes, masked)
        by_hand += 6 * 4 * 6 * config.d_model * {"tag": 3, "answer": 2}.get(name, 0)
        assert counted == (by_hand, ())
        assert longest_shape(experiment) == Shape(longest_shape(experiment).rows, *shape[1:])


def test_packed_rows_hold_several_windows():
    """The longest shape is that of the plan of batches, whose rows are longer than a window."""
    windows = Ragged.from_lists([[5] * 8] * 9)
    for batching, length in (("bucket", 8), ("pack", 24)):
        data = DataConfig(
            max_length=24, tokens_per_batch=96, rows_divisible_by=1, batching=batching
        )  # fmt: skip
        experiment = Experiment(
            model=dataclasses.replace(MODEL, architecture="decoder", num_encoder_layers=6),
            data=data,
            objective=ObjectiveConfig("language_model", window=8),
            evaluation=EvaluationConfig(bleu_sentences=0),
            checkpoint=CheckpointConfig(best_by="loss"),
        )  # fmt: skip
        store = TokenStore(windows.emptied(), windows)
        plan = PLANS[batching](store, np.arange(9), data, 0)
        assert plan.shapes == [longest_shape(experiment)] == [Shape(96 // length, 0, length)]


@pytest.mark.thorough
def test_operations_of_r_drop_accumulation_and_muon():
    """R-Drop doubles them, accumulation does not, and Muon has products of its own."""
    plain, cost = cost_of({})
    one = cost.operations.products
    assert roughly(plain, (VOCAB, VOCAB), SHAPE) == one
    assert cost_of({}, training=TrainingConfig(r_drop=5.0))[1].operations.products == 2 * one
    slices = cost_of({}, training=TrainingConfig(accumulation_steps=2))[1]
    assert slices.operations.products == one
    muon = OptimizerConfig(algorithm="muon")
    assert cost_of({}, optimizer=muon)[1].operations.products > 1.1 * one


def test_operations_match_the_papers_table_1():
    """n d^2 and n^2 d, written out for the big model at 25,000 pieces in pairs of 50."""
    n, d, pairs, pieces = 25_000, 1024, 50, 37_000
    attention, feed_forward, mixing = 4 * n * d**2, 8 * n * d**2, 2 * n * pairs * d
    encoder = 6 * (attention + feed_forward + mixing)
    decoder = 6 * (2 * attention + feed_forward + 2 * mixing)
    by_hand = 6 * (encoder + decoder + n * d * pieces)
    assert by_formula.operations(BIG, pieces, 500, 50, 50) == by_hand
    # 6 operations per parameter and position of the sequence it works on, except for the table.
    weights = by_formula.parameters(BIG, pieces, pieces) - pieces * d
    assert by_hand == pytest.approx(6 * n * (weights + pieces * d), rel=0.03)


@pytest.mark.thorough
def test_memory_beyond_the_state_grows_with_the_batch():
    """Parameters, gradients and Adam take 16 bytes per parameter; the rest grows with the batch.

    The formula, which omits dropout and float32 intermediates, accounts for most of the rest.
    """
    few, many, need = Shape(16, 32, 32), Shape(32, 32, 32), {}
    for remat in ("none", "dots", "full"):
        layers = {"num_encoder_layers": 2, "num_decoder_layers": 2}
        changes = {"remat": remat, "d_model": 64, "d_ff": 256, **layers}
        experiment, cost = cost_of(changes, shape=many)
        need[remat] = cost.memory
        state = 16 * by_formula.parameters(experiment.model, VOCAB, VOCAB)
        kept = by_formula.memory(experiment, many) - state
        assert 0.5 < kept / (cost.memory - state) < 1.1, remat
    half = cost_of(changes, shape=few)[1]
    assert cost.memory - state == pytest.approx(2 * (half.memory - state), rel=0.1)
    assert need["none"] > need["dots"] > need["full"] > state


def test_command(tmp_path, capsys):
    """It prints counts, what this machine's compiler says, a GPU, and how to get TPU figures."""
    config = tmp_path / "small.py"
    config.write_text(
        "from transformer_jax.config import Experiment\n"
        "from transformer_jax.config.convert import door\n"
        "def get_config():\n    return door(Experiment())\n"
    )
    fields = {
        "model.d_model": 16, "model.d_ff": 24, "model.num_heads": 2, "tokenizer.vocab_size": 40,
        "model.num_encoder_layers": 1, "model.num_decoder_layers": 1, "data.max_length": 16,
        "data.tokens_per_batch": 128, "training.steps": 1000, "model.dropout_rate": 0.0,
    }  # fmt: skip
    overrides = [f"--config.{path}={value}" for path, value in fields.items()]
    with pytest.raises(UserError, match=r"^--watts=100: .*--rate"):
        dispatch(["plan", f"--config={config}", "--watts=100", *overrides])
    argv = ["plan", f"--config={config}", "--rate=1e6", "--watts=100", *overrides]
    assert dispatch(argv) == 0
    shown = capsys.readouterr().out
    model = dataclasses.replace(
        ModelConfig(), d_model=16, d_ff=24, num_heads=2, num_encoder_layers=1, num_decoder_layers=1
    )
    assert f"parameters: {by_formula.parameters(model, 40, 40):,} with 40 pieces" in shown
    assert "batch: 8 x 16 source and 8 x 16 target" in shown
    megabytes = 4e-6 * by_formula.parameters(model, 40, 40)
    assert f"state: {2 * megabytes:.1f} MB of parameters and gradients, and " in shown
    assert f" {2 * megabytes:.1f} MB that optimizer.algorithm='adam' keeps beside them" in shown
    assert "this machine: 1 cpu, peak" in shown
    whole = 1000 * by_formula.operations(model, 40, 8, 16, 16)
    cost = f"{duration(whole / 1e6)} at 1e+06 operations/s per device; {whole / 3.6e10:.2f} kWh at"
    assert f"  {cost} 100 W each" in shown
    assert "  under 1 s at 4.84e+13 operations/s" in shown  # on the GPU
    assert "TPU: not compiled; pip install" in shown
    assert "GPU: fits on one L4 of 24.0 GB: " in shown
    assert " MB of arrays at once, counted without compiling" in shown


def test_a_language_model_has_no_source_positions():
    model = dataclasses.replace(MODEL, architecture="decoder", num_encoder_layers=6)
    experiment = Experiment(
        model=model, objective=ObjectiveConfig("language_model", window=16),
        checkpoint=CheckpointConfig(best_by="loss"), evaluation=EvaluationConfig(bleu_sentences=0),
        data=DataConfig(max_length=16, tokens_per_batch=128),
    )  # fmt: skip
    _, batch, *_ = itertools.islice(report(experiment, None, None, None), 2)
    assert batch == "batch: 8 x 16 positions, the longest of its shapes"


# Numbers that an optimizer keeps beside each of the parameters of a model, at least and at most.
KEPT = {
    "adam": (2, 2), "muon": (1, 2), "sgd": (1, 1), "lion": (1, 1), "adafactor": (0, 0.4),
    "ademamix": (3, 3), "schedule_free": (3, 3), "shampoo": (2, 14), "soap": (2, 14),
}  # fmt: skip


@pytest.mark.parametrize("word", OPTIMIZERS)
def test_what_an_optimizer_keeps_is_counted(word):
    """Schedule-free: squares, an offset, and the mean."""
    experiment = Experiment(model=MODEL, optimizer=OptimizerConfig(algorithm=word))
    held, kept = state_bytes(experiment, (VOCAB, VOCAB))
    assert held == 2 * 4 * by_formula.parameters(MODEL, VOCAB, VOCAB)
    low, high = KEPT[word]
    assert low - 0.01 <= 2 * kept / held <= high + 0.01


@pytest.mark.one_in(2)
@pytest.mark.parametrize("loop", ["unrolled", "scan"])
def test_active_parameters_are_those_of_the_chosen_experts(loop):
    """Those of the same model with no more experts than are chosen, and the router's for all."""
    shape = {"feed_forward_pattern": ("experts",), "num_experts": 6, "shared_experts": 1,
             "biases": ("feed_forward",), "layer_loop": loop, "num_decoder_layers": 2}  # fmt: skip
    model = dataclasses.replace(MODEL, experts_per_token=2, **shape)
    layers = model.num_encoder_layers + model.num_decoder_layers
    few = by_formula.parameters(dataclasses.replace(model, num_experts=2), 260, 260)
    router = layers * (6 - 2) * (model.d_model + 1)
    sides = {"src": SourceConfig("bytes"), "tgt": SideConfig("bytes")}
    _, active, *_ = itertools.islice(report(Experiment(model=model, **sides), None, None, None), 3)
    assert active == (f"active: {few + router:,} parameters for each piece, with 2 of 6 experts")


def test_vocabulary_sizes_are_those_of_the_codecs():
    """Bytes are 260 pieces, whatever config.tokenizer says."""
    sides = {"src": SourceConfig("bytes"), "tgt": SideConfig("bytes")}
    lines = report(Experiment(model=MODEL, **sides), None, None, None)
    count = by_formula.parameters(MODEL, 260, 260)
    assert next(lines) == f"parameters: {count:,} with 260 pieces"


@pytest.mark.e2e
@pytest.mark.skipif(
    "TRANSFORMER_JAX_LIBTPU" not in os.environ, reason="needs libtpu in a directory"
)
def test_a_step_compiles_for_a_tpu():
    """libtpu compiles a small step for a slice, in a separate process."""
    model = dataclasses.replace(MODEL, num_heads=2)
    experiment = Experiment(model=model, data=DataConfig(max_length=16, tokens_per_batch=256))
    found = compile_for_tpu(experiment, "v5e:2x2", os.environ["TRANSFORMER_JAX_LIBTPU"])
    assert isinstance(found, Compiled)
    assert 0 < found.peak_bytes < 1e9
    assert any("TPU: fits on v5e:2x2" in line for line in report(
        experiment, os.environ["TRANSFORMER_JAX_LIBTPU"], None, None
    ))  # fmt: skip
