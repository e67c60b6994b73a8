"""BERT pre-training: masked pieces of two segments, and next-sentence prediction."""

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import (
    Batch,
    Placement,
    Ragged,
    Side,
    Target,
    lay_out,
    places,
)
from transformer_jax.data.codecs.codec import Codec, special_of
from transformer_jax.data.objectives.masked_lm import Masked, MaskedLM, Masks, hide, two_segments
from transformer_jax.data.random import Draw, random
from transformer_jax.data.store.token_store import Frame, Lengths, Selection, TokenStore

_FOLLOWS, _OTHER = 3, 4  # purposes of random numbers, besides those of masks


class Segments(Masked):
    """Two segments per item, the second right after the first, whose length is `split`."""

    split: np.ndarray  # [n]
    # Items excluded as the source of a random second segment: `own[1]` of them from `own[0]` on,
    # each [n]. None: every second segment is the item's own.
    own: tuple[np.ndarray, np.ndarray] | None = None
    alone_in_document: int = 0  # sentences that are in no pair

    @property
    def lengths(self) -> Lengths:
        """See TokenStore: for any second segment, including BOS and two EOS."""
        second = int((self.src.lengths - self.split).max(initial=0))
        return Lengths(self.split + second + 3, self.tgt.lengths)


class NextSentence(MaskedLM):
    """Predict masked pieces of two segments A and B, BOS A EOS B EOS, and whether B follows A
    (BERT: Devlin et al. 2019, arXiv:1810.04805, section 3.1). Half of the Bs are drawn from other
    documents, or from elsewhere in the document if there is only one.

    A segment is as many sentences as fit, and no sentence that fits into one is cut, so a random B
    begins and ends like any other. Every B, random or not, is the continuation of some A. The class
    of a pair, 0 if B follows, has the weight of its masked pieces: the loss is then the sum of both
    means, as in BERT.
    """

    predicts: tuple[str, ...] = ("tokens", "next_sentence")
    noun = "pair"

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective: EOS follows segments, not each sentence."""
        return Frame(bos=False, eos=False)

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective.

        Raises:
          UserError: if there are too few pairs to draw a second segment from another one.
        """
        assert codec is not None
        half = (config.window - 3) // 2
        document = np.cumsum(store.tgt.lengths == 0)  # of each sentence; an empty line ends one
        sentences = store.tgt.windows(half)
        document = np.repeat(document, -(-store.tgt.lengths // half))
        first, split, whole, document, lost = _paired(sentences, document, half)
        own = _of_document(document)
        if (own[1] >= len(split)).any():
            raise UserError(
                f"config.objective.name={config.name!r}: a split of {len(split)} pairs of "
                f"segments of up to {half} pieces is too small to draw one from elsewhere; provide "
                "more text, or lower config.objective.window"
            )
        return segments(Ragged(store.tgt.ids, first, whole), split, config, codec, own, lost)

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: all pairs."""
        lost = items.alone_in_document if isinstance(items, Segments) else 0
        return Selection(np.arange(len(items)), {"sentences alone in a document": lost})

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        tgt = lay_out(items.tgt, placement, placement.tgt_offset, (rows, tgt_length))
        shape, count, drawn = (rows, src_length), 0 * placement.pairs, 0 * placement.pairs
        ids, pos, seg, kind = (np.zeros(shape, np.int32) for _ in range(4))
        side, target = Side(ids, pos, seg, kind=kind), Target(ids, ids.astype(np.float32))
        if isinstance(items, Segments):
            drawn = _second(items, placement.pairs, draw)
            first, second = _parts(items, placement.pairs, drawn)
            side, halves = two_segments(first, second, placement, shape, items.special)
            side, target = hide(items, side, halves, draw)
            count = np.bincount(halves.item, target.weight[halves.at], len(drawn))
        labels, weight = np.zeros_like(tgt.inputs), np.zeros(tgt.inputs.shape, np.float32)
        where = placement.rows, placement.tgt_offset
        labels[where], weight[where] = drawn != placement.pairs, count
        return Batch(side, tgt, {"tokens": target, "next_sentence": Target(labels, weight)})


def segments(
    both: Ragged,
    split: np.ndarray,
    config: ObjectiveConfig,
    codec: Codec,
    own: tuple[np.ndarray, np.ndarray] | None = None,
    lost: int = 0,
) -> Segments:
    """Return items of two consecutive segments each."""
    asked = Ragged(np.zeros(1, np.int32), 0 * both.starts, 0 * both.lengths + 1)
    items = Segments(both, asked, special_of(codec).both())
    items.masks = Masks.of(config, codec)
    items.split, items.own, items.alone_in_document = split, own, lost
    return items


def _paired(sentences: Ragged, document: np.ndarray, half: int) -> tuple:
    """Return the start of each pair, the length of its first segment and of both, its document, and
    the number of sentences in no pair.

    A document is cut into at least two segments, so that even a short one has a pair. If their
    number is odd, the last but one is in two pairs, as the second segment and as the first.
    """
    _, document = np.unique(document, return_inverse=True)
    total = np.bincount(document, sentences.lengths).astype(np.int64)
    begins = sentences.runs(document, np.minimum(half, -(-total // 2))[document])
    lengths = np.add.reduceat(sentences.lengths, begins) if len(begins) else begins
    document = document[begins]
    count = np.bincount(document, minlength=len(total))
    pairs = np.where(count > 1, -(-count // 2), 0)
    owner, within = places(pairs)
    a = (np.cumsum(count) - count)[owner] + np.minimum(2 * within, count[owner] - 2)
    both = lengths[a] + lengths[np.minimum(a + 1, len(lengths) - 1)]
    return sentences.starts[begins[a]], lengths[a], both, owner, int((count == 1).sum())


def _of_document(document: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs in each pair's document, or, for a single document, the pair itself and its
    neighbours, as (first, count).
    """
    count = len(document)
    if count and document[0] != document[-1]:
        begin = np.searchsorted(document, document)
        return begin, np.searchsorted(document, document, "right") - begin
    begin = np.maximum(np.arange(count) - 1, 0)
    return begin, np.minimum(np.arange(count) + 2, count) - begin


def _second(items: Segments, pairs: np.ndarray, draw: Draw) -> np.ndarray:
    """Return the pair whose second segment follows the first segment of each pair."""
    if items.own is None:
        return pairs
    begin, count = (field[pairs] for field in items.own)
    free = (len(items) - count).astype(np.uint64)
    other = (random(*draw, pairs, _OTHER) % free).astype(np.int64)
    other += np.where(other >= begin, count, 0)
    return np.where(random(*draw, pairs, _FOLLOWS) % np.uint64(2) == 0, pairs, other)


def _parts(items: Segments, pairs: np.ndarray, second: np.ndarray) -> tuple[Ragged, Ragged]:
    """Return the first segments of `pairs` and the second segments of `second`."""
    ids, starts, lengths, _ = items.src
    split = items.split[second]
    one = Ragged(ids, starts[pairs], items.split[pairs])
    return one, Ragged(ids, starts[second] + split, lengths[second] - split)


WORDS = {"masked_lm_nsp": NextSentence()}
