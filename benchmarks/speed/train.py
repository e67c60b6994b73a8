"""Training speed against PyTorch, on the same batches of real text.

    python benchmarks/speed/train.py --data=DIR [--model=tiny|base] [--bfloat16] [--peers]

Each engine runs full steps: forward, backward, label smoothing, dropout 0.1, Adam; 2 threads;
float32, or with --bfloat16 products of bfloat16 operands (ours) against torch's autocast. DIR holds
train.en and train.de. Every engine gets the same sentences, grouped by length; torch, which needs
no fixed shapes, pads them only to the longest. Engines run in separate processes, set up as their
users would, and take turns in one run; the median of each one's rounds counts, without compile
time. torch's modules run eager and with torch.compile. Rates count real target tokens, not padding;
our line also has our share of the machine's matmul rate, and the rate at which the input pipeline
alone makes batches, on one core. --peers needs the extra `bench`.
"""

import argparse
import dataclasses
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "2")

import jax
from turns import Run, Worker, matmul, show, show_processor, take_turns

from transformer_jax.config import (
    DataConfig,
    Experiment,
    MeshConfig,
    ModelConfig,
    OptimizerConfig,
    TokenizerConfig,
)
from transformer_jax.data import sources
from transformer_jax.data.batches.batch import Batch
from transformer_jax.data.batches.batching import BatchSource, BucketPlan
from transformer_jax.data.codecs.pair import train_pair
from transformer_jax.data.objectives import Translate
from transformer_jax.data.store.token_store import open_store, select
from transformer_jax.experiments.process import keep_freed_memory
from transformer_jax.models.build import build_for, roles_of
from transformer_jax.sharding.mesh import make_mesh, place_batch
from transformer_jax.training.cost import step_cost
from transformer_jax.training.optimizer import make_optimizer
from transformer_jax.training.programs import shape_of
from transformer_jax.training.schedule import make_schedule
from transformer_jax.training.state import init_state
from transformer_jax.training.step import jit_train_step, make_train_step

TINY = ModelConfig(d_model=128, d_ff=256, num_heads=4, num_encoder_layers=4, num_decoder_layers=4)
SIZES = {"tiny": (TINY, 4096), "base": (ModelConfig(), 1024)}  # model, tokens_per_batch
VOCABULARY = 8000
Engine = Callable[[list[Batch]], None]  # one step on each batch


def target_tokens(batch: Batch) -> int:
    """Return the number of non-padding targets."""
    return int((batch.tgt.seg > 0).sum())


def load_batches(directory: str, tokens_per_batch: int, count: int) -> tuple[list[Batch], float]:
    """Return `count` batches of the first epoch, and the input pipeline's target tokens/s."""
    data = DataConfig(directory=directory, tokens_per_batch=tokens_per_batch, max_length=64)
    corpus = sources.load(data, "train")
    tokenizers = train_pair(TokenizerConfig(vocab_size=VOCABULARY), corpus.src, corpus.tgt)
    with tempfile.TemporaryDirectory() as cache:
        store = open_store(corpus, tokenizers, Path(cache))
    plan = BucketPlan(store, select(store, data).pairs, data, seed=0)
    source = BatchSource(store, plan, Translate())
    start = time.perf_counter()
    tokens = sum(target_tokens(source[i]) for i in range(len(plan)))
    return [source[i] for i in range(count)], tokens / (time.perf_counter() - start)


def ours(config: ModelConfig) -> Engine:
    """Return our step."""
    keep_freed_memory()  # as train.py does
    experiment = Experiment(model=config)
    model = build_for(experiment, VOCABULARY, VOCABULARY)
    schedule = make_schedule(OptimizerConfig(), config.d_model, 1000)
    tx = make_optimizer(OptimizerConfig(), schedule, roles_of(model))
    mesh = make_mesh(MeshConfig())
    state = init_state(model, tx, 0, mesh)
    step = jit_train_step(make_train_step(model, tx, experiment.training, 0), state, mesh)

    def run(batches: list[Batch]) -> None:
        nonlocal state
        with jax.set_mesh(mesh):
            for batch in batches:
                state, _ = step(state, place_batch(batch, mesh))
        jax.block_until_ready(state.params)

    return run


def trimmed(batch: Batch) -> Batch:
    """Return the batch without rows and columns that are all padding."""
    rows = batch.src.seg.any(1)
    cut = {side: (rows, slice(getattr(batch, side).seg.any(0).sum())) for side in ("src", "tgt")}
    src = jax.tree.map(lambda x: x[cut["src"]], batch.src)
    tgt, targets = jax.tree.map(lambda x: x[cut["tgt"]], (batch.tgt, batch.targets))
    return Batch(src, tgt, targets)


def torch_engine(
    network: Any, forward: Callable[[Any, Any], Any], config: ModelConfig, compiled: bool
) -> Engine:
    """Return a step of a torch module; forward(network, batch of tensors) gives the logits."""
    import torch

    torch.set_num_threads(2)
    network.train()
    optimizer = torch.optim.Adam(network.parameters(), 1e-4, (0.9, 0.98), 1e-9, fused=True)

    def loss_of(tensors: Batch) -> Any:
        with torch.autocast("cpu", torch.bfloat16, enabled=config.compute_dtype == "bfloat16"):
            logits = forward(network, tensors)
        labels = tensors.targets["tokens"].labels
        return torch.nn.functional.cross_entropy(
            logits.float().flatten(0, 1), labels.flatten(), ignore_index=0, label_smoothing=0.1
        )

    if compiled:
        loss_of = torch.compile(loss_of, dynamic=True)

    def run(batches: list[Batch]) -> None:
        for batch in batches:
            loss = loss_of(jax.tree.map(lambda x: torch.from_numpy(x).long(), trimmed(batch)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return run


def torch_nn(config: ModelConfig, compiled: bool) -> Engine:
    """Return torch.nn.Transformer with a shared embedding."""
    import torch

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            d = config.d_model
            self.embedding = torch.nn.Embedding(VOCABULARY, d)
            self.positions = torch.nn.Parameter(torch.zeros(512, d), requires_grad=False)
            self.dropout = torch.nn.Dropout(0.1)
            self.transformer = torch.nn.Transformer(
                d, config.num_heads, config.num_encoder_layers, config.num_decoder_layers,
                config.d_ff, 0.1, batch_first=True,
            )  # fmt: skip
            for module in self.transformer.modules():  # dropout where the others have it
                if isinstance(module, torch.nn.MultiheadAttention):
                    module.dropout = 0.0
                elif hasattr(module, "linear1"):
                    module.dropout.p = 0.0  # after the ReLU

        def embed(self, ids: Any) -> Any:
            scaled = self.embedding(ids) * config.d_model**0.5
            return self.dropout(scaled + self.positions[: ids.shape[1]])

        def forward(self, batch: Any) -> Any:
            length = batch.tgt.inputs.shape[1]
            causal = torch.ones(length, length, dtype=torch.bool).triu(1)
            padding = batch.src.seg == 0
            x = self.transformer(
                self.embed(batch.src.inputs), self.embed(batch.tgt.inputs), tgt_mask=causal,
                src_key_padding_mask=padding, memory_key_padding_mask=padding, tgt_is_causal=True,
            )  # fmt: skip
            return x @ self.embedding.weight.T

    return torch_engine(Network(), lambda network, batch: network(batch), config, compiled)


def marian(config: ModelConfig, compiled: bool) -> Engine:
    """Return MarianMTModel of `transformers`."""
    import transformers

    sides = {
        f"{side}_{name}": value
        for side, layers in (
            ("encoder", config.num_encoder_layers),
            ("decoder", config.num_decoder_layers),
        )
        for name, value in (
            ("layers", layers),
            ("ffn_dim", config.d_ff),
            ("attention_heads", config.num_heads),
        )
    }
    network = transformers.MarianMTModel(transformers.MarianConfig(
        vocab_size=VOCABULARY, d_model=config.d_model, max_position_embeddings=512, **sides,
        activation_function="relu", scale_embedding=True, dropout=0.1, pad_token_id=0,
        decoder_start_token_id=1, eos_token_id=2, forced_eos_token_id=None,
    ))  # fmt: skip

    def forward(network: Any, batch: Any) -> Any:
        return network(
            input_ids=batch.src.inputs,
            attention_mask=(batch.src.seg > 0).long(),
            decoder_input_ids=batch.tgt.inputs,
            use_cache=False,
        ).logits

    return torch_engine(network, forward, config, compiled)


def products(config: ModelConfig, batches: list[Batch]) -> int:
    """Return the matmul operations of one step on each batch, including padding."""
    sizes = VOCABULARY, VOCABULARY
    costs = [step_cost(Experiment(model=config), sizes, shape_of(batch)) for batch in batches]
    return sum(cost.operations.products for cost in costs)


OURS = "transformer_jax"
ENGINES: dict[str, Callable[[ModelConfig], Engine]] = {
    OURS: ours,
    "torch.nn": partial(torch_nn, compiled=False),
    "torch.nn, compiled": partial(torch_nn, compiled=True),
    "transformers": partial(marian, compiled=False),
    "transformers, compiled": partial(marian, compiled=True),
}


def engine(name: str, config: ModelConfig, batches: list[Batch]) -> Run:
    """Return the work of one turn: a step on each batch."""
    return partial(ENGINES[name](config), batches)


def main() -> None:
    """Measure, and print one JSON line per engine."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="directory with train.en and train.de")
    parser.add_argument("--model", choices=SIZES, default="tiny")
    parser.add_argument("--steps", type=int, default=12, help="batches in a round")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--bfloat16", action="store_true")
    parser.add_argument("--peers", action="store_true")
    arguments = parser.parse_args()
    show_processor()
    config, tokens_per_batch = SIZES[arguments.model]
    dtype = "bfloat16" if arguments.bfloat16 else "float32"
    config = dataclasses.replace(config, dropout_rate=0.1, compute_dtype=dtype)
    batches, supply = load_batches(arguments.data, tokens_per_batch, arguments.steps)
    tokens = sum(target_tokens(batch) for batch in batches)
    sentences = sum(int(batch.src.seg.any(1).sum()) for batch in batches)
    workers = {"matmul": Worker(matmul)}
    for name in ENGINES if arguments.peers else [OURS]:
        workers[name] = Worker(engine, name, config, batches)
        print(f"{name}: compiled in {workers[name].first_seconds:.0f} s", file=sys.stderr)
    middle = take_turns(workers, arguments.rounds)
    rate = workers["matmul"].result / middle.pop("matmul")
    peers = [value for name, value in middle.items() if name != OURS]
    for name, value in middle.items():
        row: dict[str, Any] = {
            "engine": name,
            "model": arguments.model,
            "dtype": dtype,
            "target_tokens_per_s": round(tokens / value, 1),
            "sentences_per_s": round(sentences / value, 1),
        }
        if name == OURS:
            if peers:
                row["ratio_to_best_peer"] = round(min(peers) / value, 3)
            row["share_of_matmul_rate"] = round(products(config, batches) / value / rate, 3)
            row["input_tokens_per_s"] = round(supply)
        show(row)


if __name__ == "__main__":
    main()
