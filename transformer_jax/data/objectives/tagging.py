"""Tagging: a label for each word of a text."""

import numpy as np

from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Placement, Ragged, Target, places
from transformer_jax.data.codecs.codec import Codec, special_of
from transformer_jax.data.objectives.masked_lm import begun
from transformer_jax.data.objectives.objective import BaseObjective, Order
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import Frame, Lengths, Selection, TokenStore


class Tagged(TokenStore):
    """Texts of whole words, their pieces on the source side and their labels on the target side."""

    firsts: Ragged  # the position of each word's first piece
    left_out: int = 0  # texts without words

    @property
    def lengths(self) -> Lengths:
        """See TokenStore; includes BOS and EOS; the target side has no input."""
        return Lengths(self.src.lengths + 2, 0 * self.tgt.lengths)


class Tag(BaseObjective):
    """Read a text, predict the label of each word at its first piece (Devlin et al. 2019,
    arXiv:1810.04805, section 5.3).

    Words are encoded one by one, so that with any codec each has its own pieces. A text longer than
    the window is cut between words; a single word longer than the window is truncated.
    """

    order: Order = "all"
    predicts: tuple[str, ...] = ("tags",)
    noun = "text"

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective."""
        return Frame(eos=False, cut="words")

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective. The source side of the store has a sequence for each word."""
        words, labels, most = store.src, store.tgt, config.window - 2
        text, place = places(labels.lengths)  # of each word
        assert len(text) == len(words.lengths), "not as many words as labels"
        begins = words.runs(text, np.full(len(text), most))
        count = np.diff(np.append(begins, len(text)))
        sizes = np.add.reduceat(words.lengths, begins) if len(begins) else begins
        first = words.starts[begins]
        items = Tagged(
            Ragged(words.ids, first, np.minimum(sizes, most)),
            Ragged(labels.ids, (labels.starts[text] + place)[begins], count),
            special_of(codec).both(),
        )
        offsets = words.starts - np.repeat(first, count) + 1
        items.firsts = Ragged(offsets, begins, count)
        items.left_out = int((labels.lengths == 0).sum())
        return items

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: all texts except empty ones."""
        left_out = items.left_out if isinstance(items, Tagged) else 0
        return Selection(np.arange(len(items)), {"empty": left_out})

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        side, pairs = begun(items, placement, (rows, src_length)), placement.pairs
        last = items.src.lengths[pairs] + 1
        end = placement.rows, placement.src_offset + last
        side.inputs[end], side.pos[end], side.seg[end] = items.special.end, last, placement.segment
        labels, weight = np.zeros_like(side.inputs), np.zeros(side.inputs.shape, np.float32)
        if isinstance(items, Tagged):
            item, within = places(items.tgt.lengths[pairs])
            first = items.firsts.ids[items.firsts.starts[pairs][item] + within]
            at = placement.rows[item], placement.src_offset[item] + first
            labels[at] = items.tgt.ids[items.tgt.starts[pairs][item] + within]
            weight[at] = 1
        return Batch(side, None, {"tags": Target(labels, weight)})


WORDS = {"tag": Tag()}
