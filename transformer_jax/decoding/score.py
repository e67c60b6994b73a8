"""Log-probabilities of given translations."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.arrays import Array, Float, at_least_float32
from transformer_jax.data.batch import Batch, Ragged, collate
from transformer_jax.data.batching import fixed_batches
from transformer_jax.data.token_store import TokenStore
from transformer_jax.data.tokenizer import TokenizerPair
from transformer_jax.models.encoder_decoder import EncoderDecoder


class PairScore(NamedTuple):
    """What the model thinks of one pair."""

    ids: list[int]  # the target's pieces, EOS included
    log_probs: list[float]  # of each piece, nats

    @property
    def total(self) -> float:
        """The log-probability of the whole target, nats."""
        return sum(self.log_probs)


def score_pairs(
    model: EncoderDecoder,
    params: Any,
    tokenizers: TokenizerPair,
    src: Sequence[str],
    tgt: Sequence[str],
    tokens_per_batch: int = 4096,
) -> list[PairScore]:
    """Return the log-probability of each piece of each target, given its source."""
    store = TokenStore(
        Ragged.from_lists(tokenizers.src.encode(src)), Ragged.from_lists(tokenizers.tgt.encode(tgt))
    )
    longest = int(max(store.src.lengths.max(), store.tgt.lengths.max()))
    lengths = [*range(16, longest, 16), -(-longest // 16) * 16]
    compiled = jax.jit(lambda params, batch: _log_probs(model, params, batch))
    scores: list[PairScore] = [PairScore([], [])] * len(store)
    for shape, placement in fixed_batches(store, lengths, tokens_per_batch, 1):
        batch = collate(store.src, store.tgt, placement, *shape)
        found = np.asarray(compiled(params, jax.tree.map(jnp.asarray, batch)))
        for row, pair in enumerate(placement.pairs.tolist()):
            count = int(store.tgt.lengths[pair])
            scores[pair] = PairScore(
                batch.tgt_out[row, :count].tolist(), found[row, :count].tolist()
            )
    return scores


def _log_probs(model: EncoderDecoder, params: Any, batch: Batch) -> Float[Array, "B T"]:
    apply: Any = model.apply
    logits = apply(
        {"params": params},
        batch.src_ids, batch.src_pos, batch.src_seg, batch.tgt_in, batch.tgt_pos, batch.tgt_seg,
        train=False,
    )  # fmt: skip
    log_probs = jax.nn.log_softmax(at_least_float32(logits))
    return jnp.take_along_axis(log_probs, jnp.asarray(batch.tgt_out)[..., None], axis=2)[..., 0]
