"""Accelerators as their makers describe them, and the memory of a step by arithmetic."""

from typing import NamedTuple

from transformer_jax.config import Experiment
from transformer_jax.data.batching import Shape
from transformer_jax.models.build import formula


class Chip(NamedTuple):
    """One accelerator."""

    memory: float  # bytes
    operations: float  # most a second, bfloat16 matrix products without sparsity
    watts: float | None  # board power; None: not published


_V5E, _V6E, _V5P = Chip(16e9, 197e12, None), Chip(32e9, 918e12, None), Chip(95e9, 459e12, None)

# By topology, as libtpu names them: the smallest first.
TPUS = {
    "v5e:2x2": _V5E,
    "v5e:2x4": _V5E,
    "v5e:4x4": _V5E,
    "v6e:2x4": _V6E,
    "v5p:2x2x2": _V5P,
}

GPUS = {
    "L4": Chip(24e9, 121e12, 72),
    "RTX 4090": Chip(24e9, 165e12, 450),
    "A100 40GB": Chip(40e9, 312e12, 400),
    "A100 80GB": Chip(80e9, 312e12, 400),
    "H100 SXM": Chip(80e9, 989e12, 700),
    "H200 SXM": Chip(141e9, 989e12, 700),
    "B200": Chip(180e9, 2250e12, 1000),
}


def gpu_memory(experiment: Experiment, shape: Shape) -> float:
    """Return the bytes that one step takes on one GPU, estimated.

    Float32 parameters, their gradients, the two moments of Adam (Muon keeps one) and the running
    mean, and what the way back reads of each layer: inputs and outputs of its products and norms in
    the compute dtype, attention weights in float32 as well. With `remat`, the input of each layer
    and one layer's share of the rest.
    """
    c, size = experiment.model, experiment.tokenizer.vocab_size
    copies = 4 if experiment.training.ema_decay is None else 5
    state = 4 * copies * formula(c, size, size)
    width = 2 if c.compute_dtype == "bfloat16" else 4
    heads = c.num_heads * (c.key_size + c.value_size)
    slices = experiment.training.accumulation_steps
    source, target = shape.rows * shape.src_length, shape.rows * shape.tgt_length

    def attention(queries: int, keys: int, length: int) -> float:
        weights = 0 if c.attention == "fused" else queries * length * c.num_heads * (4 + width)
        return width * (queries + keys) * heads + weights

    # A sub-layer: its output, the sum with the stream, and the norm's output.
    feed_forward = width * (2 * c.d_ff + 3 * c.d_model)
    block = 3 * width * c.d_model
    encoder = source * (feed_forward + block) + attention(source, source, shape.src_length)
    decoder: float = target * (feed_forward + 2 * block)
    decoder += attention(target, target, shape.tgt_length)
    decoder += attention(target, source, shape.src_length)
    inputs = width * c.d_model * (c.num_encoder_layers * source + c.num_decoder_layers * target)
    kept = {
        "none": c.num_encoder_layers * encoder + c.num_decoder_layers * decoder,
        "dots": (c.num_encoder_layers * encoder + c.num_decoder_layers * decoder) / 2,
        "full": inputs + max(encoder, decoder),
    }[c.remat]
    return state + kept / slices
