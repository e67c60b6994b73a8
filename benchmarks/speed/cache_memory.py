"""Key-value cache memory while continuing prompts: contiguous caches against pages.

    python benchmarks/speed/cache_memory.py [--prompts=64] [--common=96] [--block=16]

A decoder with random weights and the sizes of configs/shakespeare.py continues prompts of 8 to 128
pieces, drawn uniformly, by --max-tokens each. All prompts share their first --common pieces. For
contiguous caches, the largest batch counts; for pages, the largest number of blocks in use at once,
and the pool with room for --tokens-per-batch positions. The blocks that a step on pages gathers,
one layer at a time, come on top: `gathered_mb`. One JSON line per engine.
"""

import argparse
import json

import flax.linen as nn
import jax
import numpy as np

from transformer_jax.base.vocabulary import UNK
from transformer_jax.config import DecodingConfig, ModelConfig
from transformer_jax.decoding.batching.batch_shapes import batch_shapes
from transformer_jax.decoding.batching.engine import Engine
from transformer_jax.decoding.batching.paged import PagedStream
from transformer_jax.decoding.batching.stream import Sentence, stream
from transformer_jax.decoding.search.sampling import Sampling
from transformer_jax.models.build import build, init_params

MODEL = ModelConfig(
    architecture="decoder", d_model=128, d_ff=512, num_heads=4, num_decoder_layers=4,
    num_encoder_layers=6,
)  # fmt: skip
VOCAB = 64


def megabytes(tree) -> float:
    """Return the size of a tree of arrays or abstract shapes."""
    leaves = jax.tree.leaves(tree)
    return round(sum(leaf.size * leaf.dtype.itemsize for leaf in leaves) / 1e6, 3)


def main() -> None:
    """Measure, and print one JSON line per engine."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, value in (("prompts", 64), ("common", 96), ("max-tokens", 32), ("block", 16),
                        ("tokens-per-batch", 8192)):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    arguments = parser.parse_args()
    rng, model = np.random.default_rng(0), build(MODEL, VOCAB, VOCAB)
    params = jax.jit(lambda key: nn.unbox(init_params(model, key)))(jax.random.key(0))
    common = rng.integers(UNK, VOCAB, arguments.common).tolist()
    sentences = []
    for length in rng.integers(8, 129, arguments.prompts).tolist():
        ids = (common + rng.integers(UNK, VOCAB, 128).tolist())[:length]
        sentences.append(Sentence(ids, arguments.max_tokens, arguments.max_tokens))
    search, budget = Sampling.of(DecodingConfig(beam_size=1)), arguments.tokens_per_batch

    mesh = jax.sharding.Mesh(jax.devices()[:1], "rows")
    engine = Engine(model.stepper, mesh)
    lengths, limits = [len(s.ids) for s in sentences], [s.limit for s in sentences]
    states = [
        jax.eval_shape(lambda p, s=shape: engine.empty(p, search, s, 0), params)
        for shape in batch_shapes(lengths, limits, 1, budget, 1)
    ]
    largest = max(megabytes(state.model_state.caches) for state in states)
    streamed = stream(engine, search, params, sentences, budget)
    found = {number: tokens for number, tokens, _ in streamed}
    print(json.dumps({"engine": "contiguous", "cache_mb": largest}), flush=True)

    paged = PagedStream(model.stepper, search, params, arguments.block, budget)
    same = sum(
        (tokens[:, : arguments.max_tokens] == found[number][:, : arguments.max_tokens]).all()
        for number, tokens, _ in paged.run(sentences)
    )
    block = paged.block_bytes / 1e6
    row = {
        "engine": "paged",
        "cache_mb": round(paged.most_used * block, 3),
        "pool_mb": round(paged.count * block, 3),
        "gathered_mb": round(paged.gathered * block / MODEL.num_decoder_layers, 3),
        "same_texts": f"{same} of {len(sentences)}",
    }
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
