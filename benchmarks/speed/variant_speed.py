"""Speed and memory of each variant of configs/variants.py relative to its base.

    python benchmarks/speed/variant_speed.py --data=DIR [--variants=NAME,...]

Full training steps on the first batches of one epoch, and beam search (beam 5) of 24 forced tokens
for 128 sentences with fresh weights; one thread, as in the training runs of the table. The base and
a variant run in separate processes and take turns; a ratio is the median of paired rounds, above 1
if the variant is faster. Memory is the compiler's estimate for a step on the largest batch. One
JSON line per variant. DIR holds the files that the config names.
"""

import argparse
import os
import runpy
import statistics
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("NPROC", os.environ["OMP_NUM_THREADS"])  # XLA's threads

import flax.linen as nn
import jax
from turns import Run, Worker, show, show_processor

from transformer_jax.cli.arguments import load_config
from transformer_jax.config import Experiment, MeshConfig
from transformer_jax.config.convert import parse
from transformer_jax.data import sources
from transformer_jax.data.batches.batch import Batch
from transformer_jax.data.batches.batching import PLANS, BatchSource
from transformer_jax.data.codecs.pair import TokenizerPair, train_pair
from transformer_jax.data.objectives import OBJECTIVES
from transformer_jax.data.store.token_store import open_store
from transformer_jax.decoding.batching.engine import Engine
from transformer_jax.decoding.batching.stream import Sentence, stream
from transformer_jax.decoding.search.beam import BeamSearch
from transformer_jax.experiments.process import keep_freed_memory
from transformer_jax.models.build import build_for, init_params, roles_of
from transformer_jax.sharding.mesh import make_mesh, place_batch
from transformer_jax.training.optimizer import make_optimizer
from transformer_jax.training.schedule import make_schedule
from transformer_jax.training.state import init_state
from transformer_jax.training.step import jit_train_step, make_train_step

CONFIG = Path(__file__).parents[2] / "configs/variants.py"
BATCHES, SENTENCES, FORCED = 8, 128, 24


def prepare(experiment: Experiment) -> tuple[int, list[Batch], list[list[int]]]:
    """Return the vocabulary size, the first batches, and sources to translate."""
    data, objective = experiment.data, OBJECTIVES[experiment.objective.name]
    corpus = sources.load(data, "train", experiment.objective)
    codecs: TokenizerPair = train_pair(experiment.tokenizer, corpus.src, corpus.tgt)
    with tempfile.TemporaryDirectory() as cache:
        store = open_store(corpus, codecs, Path(cache))
        plan = PLANS[data.batching](store, objective.select(store, data).pairs, data, 0)
        source = BatchSource(store, plan, objective)
        batches = [source[i] for i in range(BATCHES)]
    return codecs.tgt.size, batches, codecs.src.encode(list(corpus.src[:SENTENCES]))


def training(experiment: Experiment, pieces: int, batches: list[Batch]) -> Run:
    """Return a step on each batch, whose result is the memory of the largest in MB."""
    model = build_for(experiment, pieces, pieces)
    steps = experiment.training.steps
    rates = make_schedule(experiment.optimizer, experiment.model.d_model, steps)
    tx = make_optimizer(experiment.optimizer, rates, roles_of(model))
    mesh = make_mesh(MeshConfig(), jax.devices()[:1])
    state = init_state(model, tx, 0, mesh, experiment.training.ema_decay is not None)
    step = jit_train_step(make_train_step(model, tx, experiment.training, 0), state, mesh)
    with jax.set_mesh(mesh):
        placed = [place_batch(batch, mesh) for batch in batches]
        by_shape = {batch.tgt.inputs.shape: batch for batch in placed}
        programs = {shape: step.lower(state, batch).compile() for shape, batch in by_shape.items()}
    needed = [program.memory_analysis().temp_size_in_bytes for program in programs.values()]

    def run() -> float:
        nonlocal state
        for batch in placed:
            state, _ = programs[batch.tgt.inputs.shape](state, batch)
        jax.block_until_ready(state.params)
        return max(needed) / 1e6

    return run


def decoding(experiment: Experiment, pieces: int, sentences: list[list[int]]) -> Run:
    """Return beam search for outputs of a fixed length, with fresh weights."""
    model = build_for(experiment, pieces, pieces)
    engine = Engine(model.stepper, jax.sharding.Mesh(jax.devices()[:1], "rows"))
    params = jax.jit(lambda key: nn.unbox(init_params(model, key)))(jax.random.key(0))
    search = BeamSearch.of(experiment.decoding)
    asked = [Sentence(ids, FORCED, FORCED) for ids in sentences]

    def run() -> int:
        found = stream(engine, search, params, asked, experiment.decoding.tokens_per_batch)
        return sum(1 for _ in found)

    return run


WORKS: dict[str, Any] = {"train": training, "decode": decoding}


def work(name: str, experiment: Experiment, pieces: int, material: list[Any]) -> Run:
    """Return the work of one turn."""
    keep_freed_memory()  # as train.py and translate do
    return WORKS[name](experiment, pieces, material)


def ratio(base: Worker, other: Worker, rounds: int) -> float:
    """Return the speed of `other` relative to `base`: the median of paired rounds."""
    return round(statistics.median(base.turn() / other.turn() for _ in range(rounds)), 3)


def main() -> None:
    """Measure, and print one JSON line per variant."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="directory of the text files")
    parser.add_argument("--variants", help="comma-separated; default: all")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    show_processor()
    names = list(runpy.run_path(str(CONFIG))["CHANGES"])
    names = arguments.variants.split(",") if arguments.variants else names
    overrides = [("data.directory", arguments.data)]
    experiments = {
        name: parse(load_config(f"{CONFIG}:{name}", overrides)) for name in ["base", *names]
    }
    pieces, batches, sentences = prepare(experiments["base"])
    material = {"train": batches, "decode": sentences}
    bases = {
        name: Worker(work, name, experiments["base"], pieces, material[name]) for name in WORKS
    }
    for variant in names:
        row: dict[str, Any] = {"variant": variant}
        for name, base in bases.items():
            other = Worker(work, name, experiments[variant], pieces, material[name])
            row[name] = ratio(base, other, arguments.rounds)
            if name == "train":
                row["memory_mb"] = round(other.result, 1)
            other.close()
        show(row)
    for base in bases.values():
        base.close()


if __name__ == "__main__":
    main()
