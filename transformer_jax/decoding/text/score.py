"""Log-probabilities of given translations."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Float
from transformer_jax.data.batch import Batch
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.decoding.text.teacher_forced import each_pair
from transformer_jax.models.model import Model


class PairScore(NamedTuple):
    """What the model thinks of one pair."""

    ids: list[int]  # the target's pieces, EOS included
    log_probs: list[float]  # of each piece, nats
    pieces: list[str]

    @property
    def total(self) -> float:
        """The log-probability of the whole target, nats."""
        return sum(self.log_probs)


def score_pairs(
    model: Model,
    params: Any,
    tokenizers: TokenizerPair,
    src: Sequence[str],
    tgt: Sequence[str],
    tokens_per_batch: int = 4096,
) -> list[PairScore]:
    """Return the log-probability of each piece of each target, given its source."""
    sources, targets = tokenizers.src.encode(src), tokenizers.tgt.encode(tgt)
    scores: list[PairScore] = [PairScore([], [], [])] * len(src)
    rows = each_pair(_log_probs, model, params, sources, targets, tokens_per_batch)
    for pair, found in rows:
        ids = targets[pair]
        scores[pair] = PairScore(ids, found[: len(ids)].tolist(), tokenizers.tgt.pieces(ids))
    return scores


@functools.partial(jax.jit, static_argnums=0)
def _log_probs(model: Model, params: Any, batch: Batch) -> Float[Array, "B T"]:
    logits = model.outputs(params, batch, None)["tokens"].logits()
    labels = jnp.asarray(batch.targets["tokens"].labels)
    return jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], axis=2)[..., 0]
