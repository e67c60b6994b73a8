"""From a config to a model and its parameters."""

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.choices import pick
from transformer_jax.config import Experiment, ModelConfig
from transformer_jax.data.objectives import OBJECTIVES
from transformer_jax.models.decoder import Decoder
from transformer_jax.models.encoder_decoder import EncoderDecoder
from transformer_jax.models.model import Model
from transformer_jax.models.network import Network
from transformer_jax.nn.view import Order

MODELS: dict[str, type[Network]] = {"encoder_decoder": EncoderDecoder, "decoder": Decoder}


def build(
    config: ModelConfig,
    src_vocab_size: int,
    tgt_vocab_size: int,
    dtype: Any = None,
    order: Order = "causal",
    single: bool = False,
) -> Network:
    """Return the model.

    Args:
      config: its choices and sizes.
      src_vocab_size: pieces of the source side; ignored where there is none.
      tgt_vocab_size: pieces of the target side.
      dtype: overrides the config's, for float64 comparisons.
      order: what the objective promises of the target side's ranks.
      single: that every row of every batch holds one segment, from its start on.
    """
    network = pick(MODELS, config.architecture, "config.model.architecture")
    dtype = jnp.dtype(dtype or config.compute_dtype)
    return network(config, src_vocab_size, tgt_vocab_size, dtype, order, single)


def build_for(experiment: Experiment, src_vocab_size: int, tgt_vocab_size: int) -> Network:
    """Return the model of an experiment."""
    objective = pick(OBJECTIVES, experiment.objective.name, "config.objective.name")
    single = experiment.data.batching != "pack"
    sizes = src_vocab_size, tgt_vocab_size
    return build(experiment.model, *sizes, order=objective.order, single=single)


def init_params(model: Model, key: jax.Array) -> Any:
    """Return fresh float32 parameters, boxed with their logical axes (`flax.linen.unbox`)."""
    example = jax.tree.map(jnp.asarray, model.example())
    return model.init(key, example, train=False)["params"]


def abstract_params(model: Model) -> Any:
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
