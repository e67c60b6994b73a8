"""From a config to a model and its parameters."""

from typing import Any

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
