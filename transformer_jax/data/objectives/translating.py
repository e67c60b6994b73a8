"""Targets predicted after their sources: by an encoder-decoder or, in one row, a prefix LM."""

import numpy as np

from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import (
    Batch,
    Placement,
    Side,
    lay_out,
    predicted,
    shifted,
)
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.objectives.objective import BaseObjective, Order
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import (
    Lengths,
    Selection,
    TokenStore,
    Uneven,
    select,
)


class Translate(BaseObjective):
    """Read the source, predict the target with teacher forcing (paper 3)."""

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective."""
        kind = type(store) if store.src.read is None else Uneven  # frames outnumber pieces
        return kind(store.src, store.tgt, store.special.both())

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        shape = rows, src_length
        src = lay_out(items.src, placement, placement.src_offset, shape, draw=draw)
        tgt = lay_out(items.tgt, placement, placement.tgt_offset, (rows, tgt_length))
        return Batch(src, shifted(tgt, items.special.begin), {"tokens": predicted(tgt)})


class _Joined(TokenStore):
    """Pairs whose source and target are concatenated on the target side."""

    @property
    def lengths(self) -> Lengths:
        """See TokenStore."""
        both = self.src.lengths + self.tgt.lengths
        return Lengths(0 * both, both)


class PrefixLM(BaseObjective):
    """Read the source as a prefix with bidirectional attention, predict the target after it (Raffel
    et al. 2020, arXiv:1910.10683, section 3.2.1).

    A row is source, EOS, BOS, target: the prefix has rank 0, BOS rank 1, and so on.
    """

    order: Order = "ranked"

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective."""
        return _Joined(store.src, store.tgt, store.special.both())

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: both sides together are limited as one side is in translation."""
        return select(items, config)

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        shape, begin = (rows, tgt_length), placement.tgt_offset
        prefix = lay_out(items.src, placement, begin, shape)
        behind = begin + items.src.lengths[placement.pairs]
        labels = lay_out(items.tgt, placement, behind, shape)
        seg = prefix.seg + labels.seg
        inputs = prefix.inputs + shifted(labels, items.special.begin).inputs
        first = np.zeros(shape, np.int32)  # first column of the segment at each position
        first[placement.rows, begin] = begin
        first = np.maximum.accumulate(first, axis=1)
        pos = np.where(seg > 0, np.arange(tgt_length, dtype=np.int32) - first, 0)
        rank = np.where(labels.seg > 0, labels.pos + 1, 0)
        return Batch(None, Side(inputs, pos, seg, rank), {"tokens": predicted(labels)})


WORDS = {"translate": Translate(), "prefix_lm": PrefixLM()}
