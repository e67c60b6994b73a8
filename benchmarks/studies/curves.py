"""Loss curves that must agree: one training in several precisions, losses and batchings.

    python benchmarks/studies/curves.py --data=DIR --output=results/curves.svg [--steps=500]

Trains the small Multi30k model of Table 3 from the same initial values: in float32, with the plain
instead of the fused cross-entropy, with bfloat16 operands, with packed batches, and again in
float32 with another seed, which shows how much equivalent runs differ. Plots the training loss, and
prints a JSON line per run: the mean loss of the last 100 steps. DIR holds train.en and train.de.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np

from transformer_jax.config import (
    DataConfig,
    MeshConfig,
    ModelConfig,
    OptimizerConfig,
    TokenizerConfig,
    TrainingConfig,
)
from transformer_jax.data import sources
from transformer_jax.data.batches.batching import PLANS, BatchSource
from transformer_jax.data.codecs.pair import train_pair
from transformer_jax.data.objectives import Translate
from transformer_jax.data.store.token_store import TokenStore, open_store, select
from transformer_jax.models.build import build, roles_of
from transformer_jax.plots.picture import check_suffix, save
from transformer_jax.sharding.mesh import make_mesh, place_batch
from transformer_jax.training import step as step_module
from transformer_jax.training.loss import loss_sums
from transformer_jax.training.optimizer import make_optimizer
from transformer_jax.training.schedule import make_schedule
from transformer_jax.training.state import init_state
from transformer_jax.training.step import jit_train_step, make_train_step

MODEL = {
    "d_model": 128, "d_ff": 512, "num_heads": 8, "num_encoder_layers": 3, "num_decoder_layers": 3,
    "residual": "pre_norm",
}  # fmt: skip
DATA = {"max_length": 64, "tokens_per_batch": 1024, "num_buckets": 4}
OPTIMIZER = OptimizerConfig(schedule="linear", learning_rate=2e-3, warmup_steps=200)
VOCABULARY = 4000
CURVES: dict[str, dict[str, Any]] = {
    "float32": {},
    "float32, plain cross-entropy": {"plain_loss": True},
    "bfloat16 operands": {"compute_dtype": "bfloat16"},
    "float32, packed batches": {"batching": "pack"},
    "float32, another seed": {"seed": 1},
}


def plain(hidden, head, targets, weight, epsilon: float, smoothing: str, r_drop: float = 0.0):
    """Return the loss of fully materialised logits, differentiated by JAX."""
    logits = hidden.astype(head.table.dtype) @ head.table.T
    return loss_sums(logits, targets, weight, epsilon, smoothing)


def losses(
    store: TokenStore, directory: str, steps: int, compute_dtype: str = "float32",
    batching: str = "bucket", seed: int = 0, plain_loss: bool = False,
) -> list[float]:  # fmt: skip
    """Train, and return the loss of each step."""
    data = DataConfig(directory=directory, batching=batching, **DATA)  # type: ignore[arg-type]
    plan = PLANS[batching](store, select(store, data).pairs, data, seed)
    source = BatchSource(store, plan, Translate())
    config = ModelConfig(**MODEL, compute_dtype=compute_dtype)  # type: ignore[arg-type]
    model = build(config, VOCABULARY, VOCABULARY)
    schedule = make_schedule(OPTIMIZER, config.d_model, steps)
    tx = make_optimizer(OPTIMIZER, schedule, roles_of(model))
    mesh = make_mesh(MeshConfig())
    state = init_state(model, tx, seed, mesh)
    loss = plain if plain_loss else step_module.fused_loss_sums
    with mock.patch.object(step_module, "fused_loss_sums", loss):
        step = jit_train_step(make_train_step(model, tx, TrainingConfig(), seed), state, mesh)
        found = []
        for number in range(steps):
            state, metrics = step(state, place_batch(source[number], mesh))
            found.append(metrics.sums)
    return [float(sums.loss / sums.tokens) for sums in jax.device_get(found)]


def draw(curves: dict[str, Sequence[float]], path: Path) -> None:
    """Plot each curve as a running mean over 20 steps, and its difference from the first."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    window = np.ones(20) / 20
    smooth = {name: np.convolve(curve, window, "valid") for name, curve in curves.items()}
    steps = np.arange(20, 20 + len(next(iter(smooth.values()))))
    first = next(iter(smooth.values()))
    styles = ["-", "--", ":", "-.", (0, (1, 4))]
    for (name, curve), style in zip(smooth.items(), styles, strict=True):
        above.plot(steps, curve, linestyle=style, label=name)
        below.plot(steps, curve - first, linestyle=style)
    above.set_ylabel("training loss, nats per token")
    below.set_ylabel("difference from the first")
    below.set_xlabel("step (mean of 20)")
    above.legend(frameon=False)
    save(figure, path)


def main() -> None:
    """Train all runs, print their losses and plot the curves."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="directory with train.en and train.de")
    parser.add_argument("--output", type=Path, required=True, help="picture: .svg, .pdf or .png")
    parser.add_argument("--steps", type=int, default=500)
    arguments = parser.parse_args()
    check_suffix(arguments.output, "--output")
    corpus = sources.load(DataConfig(directory=arguments.data), "train")
    tokenizers = train_pair(TokenizerConfig(vocab_size=VOCABULARY), corpus.src, corpus.tgt)
    curves = {}
    with tempfile.TemporaryDirectory() as cache:
        store = open_store(corpus, tokenizers, Path(cache))
        for name, changes in CURVES.items():
            curves[name] = losses(store, arguments.data, arguments.steps, **changes)
            row = {"curve": name, "last_100_steps": round(float(np.mean(curves[name][-100:])), 4)}
            print(json.dumps(row), flush=True)
    draw(curves, arguments.output)


if __name__ == "__main__":
    main()
