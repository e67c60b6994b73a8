"""Rewards: how good a model says that answers are."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from transformer_jax.base.arrays import Array, Float
from transformer_jax.data.batches.batch import Batch, Ragged
from transformer_jax.data.codecs.preferences import last_answer
from transformer_jax.data.conversations import Conversation
from transformer_jax.data.objectives.chatting import plain
from transformer_jax.data.objectives.preferring import WholePairs
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.teacher_forced import each_item
from transformer_jax.models.model import Model


def rewards(
    loaded: Loaded, talks: Sequence[Conversation], tokens_per_batch: int = 4096
) -> np.ndarray:
    """Return the number [n] that a reward model gives to the last answer of each conversation. Only
    the difference of two answers to the same prompt means something: the log-odds (nats) that the
    one is better.

    Raises:
      UserError: if it is no reward model, or its chat template refuses a conversation.
    """
    if "reward" not in loaded.task.predicts:
        raise loaded.refusal("gives no rewards")
    template, codec = loaded.codecs.template, loaded.codecs.tgt
    assert template is not None
    numbers = np.zeros(len(talks))
    if not talks:
        return numbers
    encoded = [last_answer(ids) for ids in template.encoded(codec, talks)]
    read = Ragged.from_lists(encoded)
    read = read._replace(ids=plain(read.ids))
    alone = WholePairs(read, read.emptied(), loaded.codecs.special(True))
    for item, row, _ in each_item(_logits, loaded, alone, tokens_per_batch):
        numbers[item] = row[0, 0]
    return numbers


@functools.partial(jax.jit, static_argnums=0)
def _logits(model: Model, params: Any, batch: Batch) -> Float[Array, "B T 1"]:
    return model.outputs(params, batch, None)["reward"].logits()
