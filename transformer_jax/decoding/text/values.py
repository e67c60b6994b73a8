"""Regression: predicting a number for a text."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from transformer_jax.base.arrays import Array, Float
from transformer_jax.base.errors import UserError
from transformer_jax.config import ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Ragged
from transformer_jax.data.codecs.codec import encoded
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.codecs.values import Values
from transformer_jax.data.objectives import objective_named
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.decoding.text.teacher_forced import each_item
from transformer_jax.models.model import Model


def values(
    model: Model,
    params: Any,
    tokenizers: TokenizerPair,
    config: ObjectiveConfig,
    texts: Sequence[str],
    tokens_per_batch: int = 4096,
) -> list[float]:
    """Return the number predicted for each text, in the unit of the training text.

    Raises:
      UserError: if the model does not predict numbers.
    """
    objective, codec = objective_named(config.name), tokenizers.tgt
    if "value" not in objective.predicts or not isinstance(codec, Values):
        raise UserError(
            f"config.objective.name={config.name!r}: such a model predicts no number of a text"
        )
    nothing = Ragged.from_lists([[0]] * len(texts))  # placeholder: not read
    store = TokenStore(encoded(tokenizers.src, texts), nothing)
    items = objective.items(store, config, tokenizers.src)
    found = np.zeros(len(texts))
    for item, row, _ in each_item(_logits, model, params, objective, items, tokens_per_batch):
        found[item] = row[0, 0]
    return codec.unscaled(found).tolist()


@functools.partial(jax.jit, static_argnums=0)
def _logits(model: Model, params: Any, batch: Batch) -> Float[Array, "B T 1"]:
    return model.outputs(params, batch, None)["value"].logits()
