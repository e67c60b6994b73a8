"""Regression: predicting a number for a text."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from transformer_jax.base.arrays import Array, Float
from transformer_jax.data.batches.batch import Batch, Ragged
from transformer_jax.data.codecs.codec import encoded
from transformer_jax.data.codecs.values import Values
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.teacher_forced import each_item
from transformer_jax.models.model import Model


def values(
    loaded: Loaded,
    texts: Sequence[str],
    tokens_per_batch: int = 4096,
) -> list[float]:
    """Return the number predicted for each text, in the unit of the training text.

    Raises:
      UserError: if the model does not predict numbers.
    """
    reads, codec = loaded.codecs
    if "value" not in loaded.task.predicts or not isinstance(codec, Values):
        raise loaded.refusal("predicts no number of a text")
    nothing = Ragged.from_lists([[0]] * len(texts))  # placeholder: not read
    items = loaded.items(encoded(reads, texts), nothing)
    numbers = np.zeros(len(texts))
    for item, row, _ in each_item(_logits, loaded, items, tokens_per_batch):
        numbers[item] = row[0, 0]
    return codec.unscaled(numbers).tolist()


@functools.partial(jax.jit, static_argnums=0)
def _logits(model: Model, params: Any, batch: Batch) -> Float[Array, "B T 1"]:
    return model.outputs(params, batch, None)["value"].logits()
