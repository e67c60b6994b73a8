"""A plan's numbers: counted by hand, by the program's own products, and by a compiler."""

import dataclasses
import math
import os

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from jax.extend.core import jaxprs_in_params
from tiny import MODEL, VOCAB, alone, random_store

from transformer_jax.cli.main import dispatch
from transformer_jax.config import DataConfig, Experiment, ModelConfig, TrainingConfig
from transformer_jax.data.batching import Shape
from transformer_jax.errors import UserError
from transformer_jax.experiments.accelerators import gpu_memory
from transformer_jax.experiments.plan import Compiled, compile_for_tpu, longest_shape, report
from transformer_jax.models.build import abstract_params, build, formula, operations
from transformer_jax.training.step import batch_sums

BIG = ModelConfig(d_model=1024, d_ff=4096, num_heads=16)
PAPER = Experiment(model=BIG, data=DataConfig(tokens_per_batch=25_000))


def products(jaxpr) -> int:
    """Return the operations of all matrix products of a program, in loops as often as they run."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = equation.invars[0].aval.shape
            inner = math.prod(shape[axis] for axis in contracted)
            total += 2 * inner * math.prod(equation.outvars[0].aval.shape)
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        total += times * sum(products(inner) for inner in jaxprs_in_params(equation.params))
    return total


@pytest.mark.parametrize(
    "changes",
    [{}, {"v_head_dim": 5, "num_decoder_layers": 2}, {"layer_loop": "scan", "num_heads": 3}],
    ids=str,
)
def test_operations_are_those_of_the_program(changes):
    """The formula is exactly what the gradient's own products take."""
    config = dataclasses.replace(MODEL, num_encoder_layers=2, **changes)
    model = build(config, VOCAB, VOCAB)
    batch = jax.tree.map(jnp.asarray, alone(random_store([(5, 7)] * 4), 4, 6, 8))
    params = nn.unbox(abstract_params(model))
    loss = jax.grad(lambda p: batch_sums(model, TrainingConfig(), p, batch, jax.random.key(0)).loss)
    program = jax.make_jaxpr(loss)(params)
    assert products(program.jaxpr) == operations(config, VOCAB, 4, 6, 8)


def test_operations_of_the_paper():
    """n d^2 and n^2 d as in Table 1, written out for the big model at 25,000 pieces of 50."""
    n, d, pairs, pieces = 25_000, 1024, 50, 37_000
    attention, feed_forward, mixing = 4 * n * d**2, 8 * n * d**2, 2 * n * pairs * d
    encoder = 6 * (attention + feed_forward + mixing)
    decoder = 6 * (2 * attention + feed_forward + 2 * mixing)
    by_hand = 6 * (encoder + decoder + n * d * pieces)
    assert operations(BIG, pieces, 500, 50, 50) == by_hand
    # 6 operations a parameter and position of the sequence that it works on, but for the table.
    weights = formula(BIG, pieces, pieces) - pieces * d
    assert by_hand == pytest.approx(6 * n * (weights + pieces * d), rel=0.03)


def test_memory_of_gpus():
    """Parameters, gradients and Adam are 16 bytes a parameter; the rest grows with the batch."""
    shape = longest_shape(PAPER)
    assert shape == Shape(96, 256, 256)
    state = 16 * formula(BIG, 32_000, 32_000)
    one, two = (gpu_memory(PAPER, Shape(rows, 256, 256)) - state for rows in (48, 96))
    assert two == pytest.approx(2 * one)
    need = {}
    for remat in ("none", "dots", "full"):
        model = dataclasses.replace(BIG, remat=remat)
        need[remat] = gpu_memory(dataclasses.replace(PAPER, model=model), shape)
    assert need["none"] > need["dots"] > need["full"] > state


def test_command(tmp_path, capsys):
    """It tells counts, what this machine's compiler says, a GPU, and how to get a TPU's answer."""
    config = tmp_path / "small.py"
    config.write_text(
        "from transformer_jax.config import Experiment\nfrom transformer_jax.door import door\n"
        "def get_config():\n    return door(Experiment())\n"
    )
    fields = {
        "model.d_model": 16, "model.d_ff": 24, "model.num_heads": 2, "tokenizer.vocab_size": 40,
        "model.num_encoder_layers": 1, "model.num_decoder_layers": 1, "data.max_length": 16,
        "data.tokens_per_batch": 128, "training.steps": 1000,
    }  # fmt: skip
    overrides = [f"--config.{path}={value}" for path, value in fields.items()]
    with pytest.raises(UserError, match=r"^--watts=100: .*--rate"):
        dispatch(["plan", f"--config={config}", "--watts=100", *overrides])
    argv = ["plan", f"--config={config}", "--rate=1e9", "--watts=100", *overrides]
    assert dispatch(argv) == 0
    told = capsys.readouterr().out
    model = dataclasses.replace(
        ModelConfig(), d_model=16, d_ff=24, num_heads=2, num_encoder_layers=1, num_decoder_layers=1
    )
    whole = 1000 * operations(model, 40, 8, 16, 16)
    assert f"parameters: {formula(model, 40, 40):,} with 40 pieces" in told
    assert "batch: 8 x 16 source and 8 x 16 target" in told
    assert "this machine: 8 cpu, peak" in told
    assert f"{whole / 8e9 / 3600:,.1f} h at 1e+09 operations/s a device" in told
    assert "TPU: not compiled for; pip install" in told
    assert "GPU: fits on one L4" in told
    assert "by formula and not compiled" in told


@pytest.mark.e2e
@pytest.mark.skipif(
    "TRANSFORMER_JAX_LIBTPU" not in os.environ, reason="needs libtpu in a directory"
)
def test_tpu():
    """libtpu compiles a small step for a slice, in a process of its own."""
    model = dataclasses.replace(MODEL, num_heads=2)
    experiment = Experiment(model=model, data=DataConfig(max_length=16, tokens_per_batch=256))
    found = compile_for_tpu(experiment, "v5e:2x2", os.environ["TRANSFORMER_JAX_LIBTPU"])
    assert isinstance(found, Compiled)
    assert 0 < found.peak_bytes < 1e9
    assert any("TPU: fits on v5e:2x2" in line for line in report(
        experiment, os.environ["TRANSFORMER_JAX_LIBTPU"], None, None
    ))  # fmt: skip
