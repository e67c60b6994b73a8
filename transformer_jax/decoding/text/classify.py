"""Classification of texts."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from transformer_jax.base.arrays import Array, Float
from transformer_jax.data.batches.batch import Batch, Ragged
from transformer_jax.data.codecs.codec import encoded
from transformer_jax.data.objectives.labelling import CHOICES
from transformer_jax.data.sources.labelled import check_pairs, two_texts
from transformer_jax.data.store.encoding import encode_words
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.teacher_forced import each_item
from transformer_jax.models.model import Model


def classify(
    loaded: Loaded,
    texts: Sequence,
    tokens_per_batch: int = 4096,
) -> list[dict[str, float]]:
    """Return the probability of each class, most likely first, for each text, or for each pair
    separated by a TAB if the model reads pairs.

    Raises:
      UserError: if the model does not predict classes, or a pair is malformed.
    """
    if CHOICES.isdisjoint(loaded.task.predicts):
        raise loaded.refusal("predicts no class of a text")
    reads, classes = loaded.codecs
    names = classes.pieces(range(classes.size))
    nothing = Ragged.from_lists([[0]] * len(texts))  # placeholder class: not read
    if loaded.task.frame(loaded.objective).cut == "texts":
        check_pairs(texts, lambda number: f"text {number}")
        words = [part for text in texts for part in two_texts(text)]
        src = Ragged.from_lists(encode_words(reads, words))
    else:
        src = encoded(reads, texts)
    items = loaded.items(src, nothing)
    probabilities: list[dict[str, float]] = [{}] * len(texts)
    for item, row, _ in each_item(_probabilities, loaded, items, tokens_per_batch):
        order = np.argsort(-row[0], kind="stable")
        probabilities[item] = {names[i]: float(row[0, i]) for i in order}
    return probabilities


def features(
    loaded: Loaded, values: Sequence, tokens_per_batch: int = 4096
) -> Float[np.ndarray, "n D"]:
    """Return what a classifier predicts the class of each value from: the input of its last map.

    Raises:
      UserError: if the model does not predict classes.
    """
    if "class" not in loaded.task.predicts:
        raise loaded.refusal("predicts no class of a text")
    nothing = Ragged.from_lists([[0]] * len(values))
    items = loaded.items(encoded(loaded.codecs.src, values), nothing)
    vectors: list[Any] = [None] * len(values)
    for item, row, _ in each_item(_features, loaded, items, tokens_per_batch):
        vectors[item] = row[0]
    return np.stack(vectors)


@functools.partial(jax.jit, static_argnums=0)
def _features(model: Model, params: Any, batch: Batch) -> Float[Array, "B T D"]:
    return model.outputs(params, batch, None)["class"].hidden


@functools.partial(jax.jit, static_argnums=0)
def _probabilities(model: Model, params: Any, batch: Batch) -> Float[Array, "B T C"]:
    outputs = model.outputs(params, batch, None)
    (name,) = CHOICES & set(outputs)
    return jax.nn.softmax(outputs[name].logits())
