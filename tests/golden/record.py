"""Record the golden tests' expected values; run from tests/, and only to change them on purpose.

    python -m golden.record names     names and shapes of our parameters: parameter_names.json
    python -m golden.record arrays    results of `transformers`: post_norm.npz, pre_norm.npz

An array file holds batch/*; in float64, logits [tokens V] and losses/<smoothing>; and, under their
names in `transformers`, tensors/* [2 ...]: a weight and the gradient of the tensor2tensor loss.
(They share an array because each entry of a zip file costs 250 bytes; and weights that fit float32
compress well.)
"""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
from flax.traverse_util import flatten_dict
from oracle.batches import ONE_PER_ROW, flat, make_batch
from oracle.compare import EPSILON, shapes

from transformer_jax.config import ModelConfig

HERE = Path(__file__).parent
VOCAB = 40
POST_NORM = ModelConfig(
    d_model=8, d_ff=20, num_heads=2, num_encoder_layers=2, num_decoder_layers=2, dropout_rate=0.0
)
ARRAYS = {
    residual: dataclasses.replace(POST_NORM, residual=residual)
    for residual in ("post_norm", "pre_norm")
}

# No two sizes are equal, so that a shape identifies its axes.
_SMALL = ModelConfig(
    d_model=20, d_ff=36, num_heads=4, head_dim=5, v_head_dim=3, max_positions=16,
    num_encoder_layers=2, num_decoder_layers=2,
)  # fmt: skip
NAMES = {
    "post_norm": _SMALL,
    "pre_norm": dataclasses.replace(_SMALL, residual="pre_norm"),
    "learned_untied": dataclasses.replace(_SMALL, positions="learned", tied_embeddings="none"),
}


def parameter_names() -> dict[str, dict[str, str]]:
    """Return {config: {path: shape}}."""
    names = {}
    for name, config in NAMES.items():
        sizes = (40, 40) if config.tied_embeddings == "all" else (50, 40)
        leaves = flatten_dict(shapes(config, *sizes), sep="/")
        names[name] = {path: str(leaves[path].shape) for path in sorted(leaves)}
    return names


def write_names() -> None:
    (HERE / "parameter_names.json").write_text(json.dumps(parameter_names(), indent=1) + "\n")


def write_arrays() -> None:
    from oracle import peers  # needs torch and transformers, which the golden tests do not

    batch = make_batch(ONE_PER_ROW, VOCAB, VOCAB)
    for name, config in ARRAYS.items():
        model = peers.Transformers(config, VOCAB)
        peers.randomise(model)
        weights = peers.to_numpy(model.tensors())
        logits, losses, gradients = peers.run(model.double(), batch, EPSILON)
        np.savez_compressed(
            HERE / f"{name}.npz",
            logits=logits,
            **{f"batch/{field}": array for field, array in flat(batch).items()},
            **{f"losses/{smoothing}": loss for smoothing, loss in losses.items()},
            **{
                f"tensors/{tensor}": np.stack([weight, gradients["tensor2tensor"][tensor]])
                for tensor, weight in weights.items()
            },
        )


if __name__ == "__main__":
    {"names": write_names, "arrays": write_arrays}[sys.argv[1]]()
