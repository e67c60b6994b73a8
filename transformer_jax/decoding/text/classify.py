"""Classification of texts."""

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
from transformer_jax.data.objectives import objective_named
from transformer_jax.data.objectives.labelling import CHOICES
from transformer_jax.data.sources.labelled import check_pairs, two_texts
from transformer_jax.data.store.encoding import encode_words
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.decoding.text.teacher_forced import each_item
from transformer_jax.models.model import Model


def classify(
    model: Model,
    params: Any,
    tokenizers: TokenizerPair,
    config: ObjectiveConfig,
    texts: Sequence,
    tokens_per_batch: int = 4096,
) -> list[dict[str, float]]:
    """Return the probability of each class, most likely first, for each text, or for each pair
    separated by a TAB if the model reads pairs.

    Raises:
      UserError: if the model does not predict classes, or a pair is malformed.
    """
    objective = objective_named(config.name)
    if CHOICES.isdisjoint(objective.predicts):
        raise UserError(
            f"config.objective.name={config.name!r}: such a model predicts no class of a text"
        )
    names = tokenizers.tgt.pieces(range(tokenizers.tgt.size))
    nothing = Ragged.from_lists([[0]] * len(texts))  # placeholder class: not read
    if objective.frame(config).cut == "texts":
        check_pairs(texts, lambda number: f"text {number}")
        words = [part for text in texts for part in two_texts(text)]
        src = Ragged.from_lists(encode_words(tokenizers.src, words))
    else:
        src = encoded(tokenizers.src, texts)
    store = TokenStore(src, nothing)
    items = objective.items(store, config, tokenizers.src)
    found: list[dict[str, float]] = [{}] * len(texts)
    given = model, params, objective, items, tokens_per_batch
    for item, row, _ in each_item(_probabilities, *given):
        order = np.argsort(-row[0], kind="stable")
        found[item] = {names[i]: float(row[0, i]) for i in order}
    return found


@functools.partial(jax.jit, static_argnums=0)
def _probabilities(model: Model, params: Any, batch: Batch) -> Float[Array, "B T C"]:
    found = model.outputs(params, batch, None)
    (name,) = CHOICES & set(found)
    return jax.nn.softmax(found[name].logits())
