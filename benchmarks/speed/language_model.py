"""Training speed of a decoder-only language model against the same model in PyTorch.

    python benchmarks/speed/language_model.py --data=DIR [--bfloat16]
    python benchmarks/speed/language_model.py --data=DIR --variant=baby --sequences=16 --steps=2

The model and recipe of configs/shakespeare.py, by default 4 layers of width 128 and windows of 64
characters; `baby` has 6 of width 384 and windows of 256. float32, or with --bfloat16 products of
bfloat16 operands (ours) against torch's autocast; no dropout. Each engine runs full steps (forward,
backward, gradient clipping by norm, Adam) with the same number of threads, by default 2. DIR holds
train.txt. The peer is a GPT with a fused query-key-value projection, `scaled_dot_product_attention`
and fused Adam, eager and with torch.compile (peers/gpt_torch.py). All engines start from the same
weights and get the same batches, so the losses must agree; otherwise, this ends with an error. They
run in separate processes and take turns in one run; the median of each one's rounds counts, without
compile time. A window counts as a sentence. Needs the extra `bench`.
"""

import argparse
import dataclasses
import itertools
import os
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "2")
os.environ.setdefault("NPROC", os.environ["OMP_NUM_THREADS"])  # XLA's threads

import jax
import numpy as np
from turns import Run, Worker, show, show_processor, take_turns

from transformer_jax.cli.arguments import load_config
from transformer_jax.config import Experiment, MeshConfig
from transformer_jax.config.convert import parse
from transformer_jax.data import sources
from transformer_jax.data.batches.batch import Batch
from transformer_jax.data.batches.batching import PLANS, BatchSource
from transformer_jax.data.codecs.pair import train_pair
from transformer_jax.data.objectives import OBJECTIVES
from transformer_jax.data.store.token_store import open_store
from transformer_jax.experiments.process import keep_freed_memory
from transformer_jax.models.build import build_for, roles_of
from transformer_jax.sharding.mesh import make_mesh, place_batch
from transformer_jax.training.optimizer import make_optimizer
from transformer_jax.training.schedule import make_schedule
from transformer_jax.training.state import TrainState, init_state
from transformer_jax.training.step import jit_train_step, make_train_step

CONFIG = Path(__file__).parents[2] / "configs/shakespeare.py"
PEERS = Path(__file__).parents[1] / "peers"


@dataclasses.dataclass
class Task:
    """Input of every engine; a turn is one step on each batch."""

    experiment: Experiment
    pieces: int
    batches: list[Batch]


def shakespeare(directory: str, variant: str, sequences: int, dtype: str = "float32") -> Experiment:
    """Return the experiment, with `sequences` windows per batch and no dropout."""
    given = [
        ("data.directory", directory), ("model.dropout_rate", 0.0), ("model.compute_dtype", dtype)
    ]  # fmt: skip
    experiment = parse(load_config(f"{CONFIG}:{variant}", given))
    tokens = sequences * experiment.objective.window
    data = dataclasses.replace(experiment.data, tokens_per_batch=tokens, rows_divisible_by=1)
    return dataclasses.replace(experiment, data=data)


def make_task(experiment: Experiment, steps: int) -> Task:
    """Return the first batches of the first epoch."""
    data, config = experiment.data, experiment.objective
    objective, corpus = OBJECTIVES[config.name], sources.load(data, "train", config)
    codecs = train_pair(experiment.tokenizer, corpus.src, corpus.tgt, experiment.codecs)
    with tempfile.TemporaryDirectory() as cache:
        text = open_store(corpus, codecs, Path(cache), frame=objective.frame(config))
        items = objective.items(text, config)
        pairs = objective.select(items, data).pairs
        plan = PLANS[data.batching](items, pairs, data, experiment.seed)
        source = BatchSource(items, plan, objective)
        return Task(experiment, codecs.tgt.size, [source[i] for i in range(steps)])


def begin(task: Task) -> tuple[Any, TrainState, Any]:
    """Return our step, the initial state, and the mesh."""
    experiment = task.experiment
    model = build_for(experiment, task.pieces, task.pieces)
    tx = make_optimizer(experiment.optimizer, schedule(experiment), roles_of(model))
    mesh = make_mesh(MeshConfig(), jax.devices()[:1])
    state = init_state(model, tx, experiment.seed, mesh)
    step = make_train_step(model, tx, experiment.training, experiment.seed)
    return jit_train_step(step, state, mesh), state, mesh


def schedule(experiment: Experiment) -> Any:
    """Return the learning-rate schedule."""
    steps = experiment.training.steps
    return make_schedule(experiment.optimizer, experiment.model.d_model, steps)


def ours(task: Task) -> Run:
    """Return our turn, whose result is the loss of its last batch."""
    keep_freed_memory()  # as train.py does
    step, state, mesh = begin(task)

    def run() -> float:
        nonlocal state
        with jax.set_mesh(mesh):
            for batch in task.batches:
                state, metrics = step(state, place_batch(batch, mesh))
        jax.block_until_ready(state.params)
        return float(metrics.sums.loss / metrics.sums.weight)

    return run


def torch_gpt(task: Task, compiled: bool) -> Run:
    """Return the same for the model in PyTorch."""
    sys.path.append(str(PEERS))
    import torch
    from gpt_torch import GPT

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    config, rates = task.experiment.optimizer, schedule(task.experiment)
    network = GPT(task.experiment.model, task.pieces)
    network.take(jax.device_get(begin(task)[1].params))
    betas = config.b1, config.b2
    optimizer = torch.optim.Adam(network.parameters(), 1.0, betas, config.epsilon, fused=True)
    updates = np.arange(task.experiment.training.steps)
    rate = itertools.cycle(np.asarray(rates(updates)).tolist())
    loss_of = torch.compile(network) if compiled else network
    narrow = task.experiment.model.compute_dtype == "bfloat16"

    def run() -> float:
        for batch in task.batches:
            arrays = batch.tgt.inputs, batch.targets["tokens"].labels
            with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
                loss = loss_of(*(torch.from_numpy(x).long() for x in arrays))
            optimizer.param_groups[0]["lr"] = next(rate)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), config.clip_norm)
            optimizer.step()
        return loss.item()

    return run


OURS = "transformer_jax"
ENGINES: dict[str, Callable[[Task], Run]] = {
    OURS: ours,
    "torch": partial(torch_gpt, compiled=False),
    "torch, compiled": partial(torch_gpt, compiled=True),
}


def engine(name: str, task: Task) -> Run:
    """Return the work of one turn."""
    return ENGINES[name](task)


def main() -> None:
    """Measure, and print one JSON line per engine."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="directory with train.txt")
    parser.add_argument("--variant", default="cpu", choices=("cpu", "baby"))
    parser.add_argument("--sequences", type=int, default=12, help="windows in a batch")
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--steps", type=int, default=40, help="batches in a round")
    parser.add_argument("--rounds", type=int, default=8)
    arguments = parser.parse_args()
    show_processor()
    dtype = "bfloat16" if arguments.bfloat16 else "float32"
    experiment = shakespeare(arguments.data, arguments.variant, arguments.sequences, dtype)
    task = make_task(experiment, arguments.steps)
    workers, losses = {}, {}
    for name in ENGINES:
        workers[name] = worker = Worker(engine, name, task)
        losses[name] = worker.result
        shown = f"compiled in {worker.first_seconds:.0f} s, loss {worker.result:.4f}"
        print(f"{name}: {shown}", file=sys.stderr, flush=True)
    middle = take_turns(workers, arguments.rounds)
    near = 1e-2 if arguments.bfloat16 else 1e-3  # rounding differences accumulate over steps
    if not np.allclose(list(losses.values()), losses[OURS], rtol=near):
        sys.exit(f"the engines differ in their loss after the first round: {losses}")
    tokens = sum(float(batch.targets["tokens"].weight.sum()) for batch in task.batches)
    windows = sum(int(batch.tgt.seg.any(1).sum()) for batch in task.batches)
    for name, seconds in middle.items():
        row: dict[str, Any] = {
            "engine": name,
            "model": f"{CONFIG.stem}:{arguments.variant}",
            "dtype": task.experiment.model.compute_dtype,
            "target_tokens_per_s": round(tokens / seconds, 1),
            "sentences_per_s": round(windows / seconds, 1),
        }
        if name == OURS:
            peers = [value for peer, value in middle.items() if peer != OURS]
            row["ratio_to_best_peer"] = round(min(peers) / seconds, 3)
        show(row)


if __name__ == "__main__":
    main()
