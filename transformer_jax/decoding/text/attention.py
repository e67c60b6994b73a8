"""Cross-attention and word alignments of given or generated translations."""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float
from transformer_jax.base.errors import UserError
from transformer_jax.data.batches.batch import Batch
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.texts import first_difference
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.stepper import has_attention, stepper_of
from transformer_jax.decoding.text.teacher_forced import each_pair
from transformer_jax.models.model import Model

# (source word, target word), both counted from 0: what spaces separate in the texts
Alignments = list[tuple[int, int]]


class CrossAttention(NamedTuple):
    """The cross-attention of one pair."""

    weights: np.ndarray  # float32 [L N T S]: of each head while piece t is written
    source: list[str]  # the S pieces, </s> included
    target: list[str]  # the T pieces, </s> included if the translation has one
    alignments: Alignments  # see `align`


def cross_attention(loaded: Loaded, source: Sequence[int], target: Sequence[int]) -> CrossAttention:
    """Return the cross-attention of a pair given as ids; the source ends in EOS."""
    check_attention(loaded.model, loaded.params, "a plot of attention")
    ((_, weights),) = each_pair(_by_layer, loaded, [source], [target], 1)
    weights = weights[:, :, : len(target), : len(source)]
    return CrossAttention(
        weights,
        loaded.codecs.src.pieces(source),
        loaded.codecs.tgt.pieces(target),
        align(weights[-1].mean(0), loaded.codecs, source, target),
    )


def alignments(
    loaded: Loaded,
    sources: Sequence[Sequence[int]],
    targets: Sequence[Sequence[int]],
    tokens_per_batch: int = 4096,
) -> list[Alignments]:
    """Return the word alignments of pairs given as ids; the sources end in EOS."""
    aligned: list[Alignments] = [[] for _ in sources]
    for pair, weights in each_pair(_mean_of_last_layer, loaded, sources, targets, tokens_per_batch):
        aligned[pair] = align(weights, loaded.codecs, sources[pair], targets[pair])
    return aligned


def check_attention(model: Model, params: Any, purpose: str) -> None:
    """Check that the model has attention.

    Raises:
      UserError: if it has none.
    """
    if not has_attention(model, params):
        raise UserError(f"{purpose}: needs cross-attention, which this model does not have")


def align(
    weights: np.ndarray, tokenizers: TokenizerPair, source: Sequence[int], target: Sequence[int]
) -> Alignments:
    """Return the word alignments implied by attention weights [T S], sorted.

    Each target piece is aligned with the source piece it attends to most, except EOS, and each word
    with all that its pieces are aligned with; see `words`. More rows and columns may follow.
    """
    src_words, tgt_words = (
        words(side, ids) for side, ids in zip(tokenizers, (source, target), strict=True)
    )
    if not src_words or not tgt_words:
        return []
    attended_blocks = weights[: len(tgt_words), : len(src_words)].argmax(1)
    return sorted({(src_words[s], t) for s, t in zip(attended_blocks, tgt_words, strict=True)})


def words(tokenizer: Codec, ids: Sequence[int]) -> list[int]:
    """Return the number of the word that each piece belongs to, from 0; EOS belongs to none.

    Words are what spaces separate in the decoded text, whatever the codec: each piece belongs to
    the word of the first character that it adds, or to the next word if it adds none.
    """
    ids = [token for token in ids if token != tokenizer.special.get("eos")]
    numbers: list[int] = []
    before = text = ""
    for length in range(1, len(ids) + 1):
        before, text = text, tokenizer.decode(ids[:length])
        added = text[first_difference(before, text) :]
        written = len(text) - len(added.lstrip())
        known = text[: written + 1].split()
        goes_on = written < len(text) or (known and not text[-1].isspace())
        numbers.append(len(known) - bool(goes_on))
    # Some codecs attach a sign to the word before it only once they see what follows.
    last = len(text.split()) - 1
    return np.minimum.accumulate([last, *reversed(numbers)])[:0:-1].tolist() if last >= 0 else []


def _cross_attention(model: Model, params: Any, batch: Batch) -> list[Array]:
    """Return the weights [B N T S] of each layer: all targets written in one step."""
    stepper, batch = stepper_of(model, params), jax.tree.map(jnp.asarray, batch)
    assert batch.src is not None
    assert batch.tgt is not None
    rows, length = batch.tgt.inputs.shape
    state = stepper.start(stepper.context(batch.src), 1, length)
    # Padding has positions of its own, after those it must not overwrite.
    positions = jnp.broadcast_to(jnp.arange(length)[None], (rows, length))
    tokens, active = batch.tgt.inputs[:, None], jnp.ones(rows, bool)
    return stepper.step(state, tokens, positions, active)[1] or []


@functools.partial(jax.jit, static_argnums=0)
def _by_layer(model: Model, params: Any, batch: Batch) -> Float[Array, "B L N T S"]:
    return jnp.stack(_cross_attention(model, params, batch), axis=1)


@functools.partial(jax.jit, static_argnums=0)
def _mean_of_last_layer(model: Model, params: Any, batch: Batch) -> Float[Array, "B T S"]:
    return _cross_attention(model, params, batch)[-1].mean(1)
