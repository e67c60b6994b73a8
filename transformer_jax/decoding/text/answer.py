"""Answers to questions, found in a text."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from transformer_jax.base.arrays import Array, Float
from transformer_jax.base.errors import UserError
from transformer_jax.data.batches.batch import Batch, Ragged
from transformer_jax.data.objectives.answering import Windows
from transformer_jax.data.sources.questions import Asked
from transformer_jax.data.store.encoding import encode_words
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.teacher_forced import each_item
from transformer_jax.models.model import Model

_LONGEST = 30  # words and signs of an answer, as in BERT's code


class Found(NamedTuple):
    """The most likely answer in a context."""

    text: str
    begin: int  # characters of the context before it
    log_prob: float  # of its first and last place, in the best window


def answers(
    loaded: Loaded,
    lines: Sequence[str],
    tokens_per_batch: int = 4096,
) -> list[Found]:
    """Return the answer for each line, which is a question, a TAB and a context.

    Raises:
      UserError: if the model does not answer questions, or a question or context is empty.
    """
    if "span" not in loaded.task.predicts:
        raise loaded.refusal("answers no question")
    asked = [Asked.read(line) for line in lines]
    for number, one in enumerate(asked, 1):
        if not one.question.strip() or not one.units:
            raise UserError(f"answer: question {number} or its context is empty")
    parts = encode_words(loaded.codecs.src, [part for one in asked for part in one.parts()])
    nowhere = Ragged.from_lists([[len(one.units), 0, 0] for one in asked])  # placeholders: not read
    items = loaded.items(Ragged.from_lists(parts), nowhere)
    assert isinstance(items, Windows)
    best = [Found("", 0, -np.inf)] * len(asked)
    for item, row, _ in each_item(_log_probs, loaded, items, tokens_per_batch):
        line, before = int(items.line[item]), int(items.before[item])
        first, last, log_prob = _best(items, item, row)
        if log_prob > best[line].log_prob:
            one = asked[line]
            begin, end = one.units[before + first][0], one.units[before + last][1]
            best[line] = Found(one.context[begin:end], begin, log_prob)
    return best


def _best(items: Windows, item: int, row: np.ndarray) -> tuple[int, int, float]:
    """Return the first and the last word of the most likely answer in a window."""
    edge = int(items.questions.lengths[item]) + 2
    first, last = (
        row[i, edge + x.sequence(item)] for i, x in enumerate((items.firsts, items.lasts))
    )
    both = first[:, None] + last[None, :]
    length = np.arange(len(last))[None, :] - np.arange(len(first))[:, None]
    both = np.where((length >= 0) & (length < _LONGEST), both, -np.inf)
    i, j = np.unravel_index(int(both.argmax()), both.shape)
    return int(i), int(j), float(both[i, j])


@functools.partial(jax.jit, static_argnums=0)
def _log_probs(model: Model, params: Any, batch: Batch) -> Float[Array, "B T S"]:
    return jax.nn.log_softmax(model.outputs(params, batch, None)["span"].logits())
