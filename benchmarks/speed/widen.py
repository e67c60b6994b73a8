"""A trained model made wider and deeper without a change of what it computes (Net2Net, 1511.05641).

    python benchmarks/speed/widen.py --workdir=runs/multi30k --to=runs/multi30k_base_size

Speed depends on a model's size and on the lengths of its outputs, not on its weights, so a copy of
base size (6 + 6 layers, d_model 512, d_ff 2,048, 8 heads) stands in for a trained model of that
size: every feature, head and unit is repeated, kernels are divided by the repetitions that they
sum over, and layers that are added put out zeros. Sinusoids become a table of positions. Pre-norm
with layer norms, tied embeddings and biases everywhere.
"""

import argparse
import dataclasses
from math import prod
from typing import Any

import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

from transformer_jax.api import load
from transformer_jax.config import ModelConfig
from transformer_jax.models.build import abstract_params, build
from transformer_jax.nn.positions import Sinusoidal
from transformer_jax.runs.checkpoint import Checkpoints
from transformer_jax.runs.workdir import WorkDir

POSITIONS = 256  # in the table: no text is longer
SIZE = {
    "d_model": 512, "d_ff": 2048, "num_heads": 8, "num_encoder_layers": 6, "num_decoder_layers": 6,
    "positions": "learned", "max_positions": POSITIONS,
}  # fmt: skip


def widened(small: ModelConfig, params: Any, large: ModelConfig, vocab_size: int) -> Any:
    """Return the parameters of the large model."""
    given = flatten_dict(params, sep="/")
    table = Sinusoidal(small).table(POSITIONS)
    wanted = flatten_dict(abstract_params(build(large, vocab_size, vocab_size)), sep="/")
    depth = {"encoder": small.num_encoder_layers, "decoder": small.num_decoder_layers}
    found = {}
    for path, leaf in wanted.items():
        shape = leaf.value.shape if hasattr(leaf, "value") else leaf.shape
        source, new = path, False
        side, *rest = path.split("/")
        if rest and rest[0].startswith("layer_"):
            number = int(rest[0].removeprefix("layer_"))
            new = number >= depth[side]
            source = "/".join([side, f"layer_{min(number, depth[side] - 1)}", *rest[1:]])
        old = table if "positions" in path else np.asarray(given[source])
        factors = [n // o for n, o in zip(shape, old.shape, strict=True)]
        value = old
        for axis, factor in enumerate(factors):
            value = np.repeat(value, factor, axis)
        if path.endswith("kernel"):  # [in... out...]: output maps sum over heads, others over D
            summed = (
                factors[:-1] if path.endswith(("output/kernel", "down/kernel")) else factors[:1]
            )
            value = value / prod(summed)
        if "query/" in path:  # scores are sums of more products, divided by a larger square root
            value = value / (value.shape[-1] / old.shape[-1]) ** 0.5
        if path == "embedding/table":  # embeddings are multiplied by a larger square root
            value = value / factors[1] ** 0.5
        if path.startswith("decoder/final_norm"):  # only logits read it: D sums of these products
            value = value / factors[0] ** 0.5
        if new and path.split("/")[-2] in ("output", "down"):
            value = np.zeros_like(value)
        found[path] = value.astype(np.float32)
    return unflatten_dict(found, sep="/")


def main() -> None:
    """Write the work directory of the large model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workdir", required=True, help="work directory of a trained model")
    parser.add_argument("--to", required=True, help="new work directory")
    arguments = parser.parse_args()
    trained = load(arguments.workdir)
    small, size = trained.model.config, trained.tokenizers.tgt.size
    large = dataclasses.replace(small, **SIZE)
    params = widened(small, trained.params, large, size)
    experiment = dataclasses.replace(trained.experiment, model=large)
    place = WorkDir(arguments.to)
    with place.claim(experiment):
        trained.tokenizers.save(place.path)
        checkpoints = Checkpoints(place.checkpoints, experiment.checkpoint)
        host = {"step": 0, "tokenizer": trained.tokenizers.digest}
        checkpoints.save(0, params, {}, host, None)
        checkpoints.close()


if __name__ == "__main__":
    main()
