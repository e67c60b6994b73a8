"""What a chat model makes of given answers."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from transformer_jax.data.codecs.preferences import last_answer
from transformer_jax.data.conversations import Compared, Conversation
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.score import log_probs_of


def answer_log_probs(
    loaded: Loaded, talks: Sequence[Conversation], tokens_per_batch: int = 4096
) -> np.ndarray:
    """Return the log-probability (nats) of the last answer of each conversation, given all before
    it: the sum over its pieces, with the one that ends it.

    Raises:
      UserError: if the model has no chat template, or it refuses a conversation.
    """
    chat = loaded.in_chats()
    template, codec = loaded.codecs.template, loaded.codecs.tgt
    assert template is not None
    if not talks:
        return np.zeros(0)
    encoded = [last_answer(ids) for ids in template.encoded(codec, talks)]
    window = max(loaded.objective.window, max(map(len, encoded)))
    chat = replace(chat, objective=replace(chat.objective, window=window))
    parts = log_probs_of(chat, [], encoded, tokens_per_batch)
    return np.array([part.sum(dtype=np.float64) for part in parts])


def compared_log_probs(loaded: Loaded, pairs: Sequence[Compared]) -> np.ndarray:
    """Return the log-probabilities of both answers of each pair [n 2]; see `answer_log_probs`."""
    talks = [talk for pair in pairs for talk in (pair.one, pair.other)]
    return answer_log_probs(loaded, talks).reshape(-1, 2)
