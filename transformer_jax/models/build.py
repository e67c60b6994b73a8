"""From a config to a model and its parameters."""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.config import ModelConfig
from transformer_jax.models.encoder_decoder import EncoderDecoder


def build(
    config: ModelConfig, src_vocab_size: int, tgt_vocab_size: int, dtype: Any = None
) -> EncoderDecoder:
    """Return the model; `dtype` overrides the config's, for float64 comparisons."""
    return EncoderDecoder(
        config, src_vocab_size, tgt_vocab_size, jnp.dtype(dtype or config.compute_dtype)
    )


def init_params(model: EncoderDecoder, key: jax.Array) -> Any:
    """Return fresh float32 parameters, boxed with their logical axes (`flax.linen.unbox`)."""
    ids = jnp.ones((1, 2), jnp.int32)
    return model.init(key, ids, ids, ids, ids, ids, ids, train=False)["params"]


def abstract_params(model: EncoderDecoder) -> Any:
    """Return shapes and logical axes of the parameters, computing nothing."""
    return jax.eval_shape(lambda key: init_params(model, key), jax.random.key(0))


def count_params(params: Any) -> int:
    """Return the number of parameters, of arrays or of shapes."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(nn.unbox(params)))


def formula(config: ModelConfig, src_vocab_size: int, tgt_vocab_size: int) -> int:
    """Return the number of parameters by arithmetic, to check the model against.

    V d for each piece table, and per layer: attention 3 d inward maps and one outward with biases,
    feed-forward 2 d d_ff + d_ff + d, and 2 d for each norm.
    """
    c = config
    d, keys, values = c.d_model, c.num_heads * c.key_size, c.num_heads * c.value_size
    attention = 2 * (d * keys + keys) + (d * values + values) + (values * d + d)
    feed_forward = 2 * d * c.d_ff + c.d_ff + d
    norm = 2 * d
    pre = c.residual == "pre_norm"
    encoder = c.num_encoder_layers * (attention + feed_forward + 2 * norm) + pre * norm
    decoder = c.num_decoder_layers * (2 * attention + feed_forward + 3 * norm) + pre * norm
    tables = {
        "all": tgt_vocab_size,
        "decoder": src_vocab_size + tgt_vocab_size,
        "none": src_vocab_size + 2 * tgt_vocab_size,
    }[c.tied_embeddings]
    learned = 2 * c.max_positions if c.positions == "learned" else 0
    return (tables + learned) * d + encoder + decoder


def operations(
    config: ModelConfig, tgt_vocab_size: int, rows: int, src_length: int, tgt_length: int
) -> int:
    """Return the floating-point operations of the matrix products of one training step.

    A multiplication and an addition each; the way back has twice those of the way forward. On all
    positions, padding included, and all pairs of positions, whether or not a mask hides them:
    per layer, n d^2 and n^2 d as in the paper's Table 1.
    """
    c = config
    heads = c.num_heads * (c.key_size + c.value_size)
    source, target = rows * src_length, rows * tgt_length
    attention, feed_forward = 2 * c.d_model * heads, 2 * c.d_model * c.d_ff
    encoder = source * (attention + feed_forward) + source * src_length * heads
    decoder = target * (attention + feed_forward) + target * tgt_length * heads
    across = (source + target) * c.d_model * heads + target * src_length * heads
    layers = c.num_encoder_layers * encoder + c.num_decoder_layers * (decoder + across)
    return 6 * (layers + target * c.d_model * tgt_vocab_size)
