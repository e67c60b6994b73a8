"""Next-sentence prediction: whether one text follows another."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float
from transformer_jax.base.errors import UserError
from transformer_jax.data.batches.batch import Batch, Ragged
from transformer_jax.data.objectives.next_sentence import segments
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.score import validation_items
from transformer_jax.decoding.text.teacher_forced import each_item
from transformer_jax.models.model import Model


def validated(
    loaded: Loaded,
    texts: Sequence[str],
    tokens_per_batch: int = 4096,
) -> np.ndarray:
    """Return the log-probability of the true label of each validation pair [n]."""
    return _log_probs(loaded, validation_items(loaded, texts), tokens_per_batch)


def follows(
    loaded: Loaded,
    first: Sequence[str],
    second: Sequence[str],
    tokens_per_batch: int = 4096,
) -> list[float]:
    """Return the probability that each second text follows its first one; nothing is hidden.

    Raises:
      UserError: if the model does not predict it, or a text is empty.
    """
    if "next_sentence" not in loaded.task.predicts:
        raise loaded.refusal(
            "does not say whether one text follows another; train with 'masked_lm_nsp'"
        )
    codec, objective = loaded.codecs.tgt, loaded.objective
    half = (objective.window - 3) // 2
    one = [ids[-half:] for ids in codec.encode(first, eos=False)]
    two = [ids[:half] for ids in codec.encode(second, eos=False)]
    empty = [number for number, ids in enumerate(zip(one, two, strict=True)) if not all(ids)]
    if empty:
        raise UserError(f"follows: a text of pair {empty[0] + 1} is empty")
    both = Ragged.from_lists([[*a, *b] for a, b in zip(one, two, strict=True)])
    items = segments(both, np.array([len(ids) for ids in one]), objective, codec)
    items.alone = np.full(len(both.lengths), -1)  # no place
    return np.exp(_log_probs(loaded, items, tokens_per_batch)).tolist()


def _log_probs(loaded: Loaded, items: TokenStore, tokens_per_batch: int) -> np.ndarray:
    log_probs = np.zeros(len(items))
    for item, row, _ in each_item(_of_truth, loaded, items, tokens_per_batch):
        log_probs[item] = row[0]
    return log_probs


@functools.partial(jax.jit, static_argnums=0)
def _of_truth(model: Model, params: Any, batch: Batch) -> Float[Array, "B T"]:
    logits = model.outputs(params, batch, None)["next_sentence"].logits()
    labels = jnp.asarray(batch.targets["next_sentence"].labels)
    return jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=2)[..., 0]
