"""Labelling the words of texts."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float
from transformer_jax.data.batches.batch import Batch, Ragged
from transformer_jax.data.sources.labelled import words_of
from transformer_jax.data.store.encoding import encode_words
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.teacher_forced import each_item
from transformer_jax.models.model import Model


class Said(NamedTuple):
    """Predictions for each word of a text."""

    labels: list[str]  # the most likely
    probabilities: np.ndarray  # of these
    log_probs: np.ndarray  # of the given labels, nats


def tag(
    loaded: Loaded,
    texts: Sequence[str],
    given: Sequence[str] | None = None,
    tokens_per_batch: int = 4096,
) -> list[Said]:
    """Return the predictions for the words of each text; `given` are labels for each.

    Raises:
      UserError: if the model does not label words.
    """
    if "tags" not in loaded.task.predicts:
        raise loaded.refusal("predicts no labels of words")
    words = [words_of(text) for text in texts]
    reads, codec = loaded.codecs
    labels = [[0] * len(row) for row in words] if given is None else codec.encode(given)
    ids = encode_words(reads, [word for row in words for word in row])
    items = loaded.items(Ragged.from_lists(ids), Ragged.from_lists(labels))
    rows = [np.zeros((0, 3))] * len(items)
    for item, row, predicted in each_item(_of_words, loaded, items, tokens_per_batch):
        rows[item] = row[predicted]
    joined = np.concatenate([*rows, np.zeros((0, 3))])  # items are in the order of the texts
    ends = np.cumsum([len(row) for row in words])[:-1]
    return [
        Said(codec.pieces(best.astype(int)), np.exp(most), log_probs)
        for best, most, log_probs in (part.T for part in np.split(joined, ends))
    ][: len(texts)]


@functools.partial(jax.jit, static_argnums=0)
def _of_words(model: Model, params: Any, batch: Batch) -> Float[Array, "B S 3"]:
    logs = jax.nn.log_softmax(model.outputs(params, batch, None)["tags"].logits())
    labels = jnp.asarray(batch.targets["tags"].labels)[..., None]
    asked = jnp.take_along_axis(logs, labels, axis=2)[..., 0]
    return jnp.stack([logs.argmax(-1).astype(logs.dtype), logs.max(-1), asked], axis=-1)
