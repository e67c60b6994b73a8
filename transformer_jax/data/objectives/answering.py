"""Extractive question answering: the position of an answer in its context."""

import numpy as np

from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Placement, Ragged, Target, lay_out, places
from transformer_jax.data.codecs.codec import Codec, special_of
from transformer_jax.data.objectives.masked_lm import two_segments
from transformer_jax.data.objectives.objective import BaseObjective, Order
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import Frame, Lengths, Selection, TokenStore


class Windows(TokenStore):
    """Windows of contexts on the source side, and two positions that predict an answer's ends."""

    questions: Ragged  # [n]
    firsts: Ragged  # the first piece of each word or sign, relative to the window's first
    lasts: Ragged  # its last piece
    line: np.ndarray  # [n], index of the question
    before: np.ndarray  # [n], number of words and signs of the context before the window
    ends: np.ndarray  # [n 2], the first and the last word of the answer; -1: not in this window

    @property
    def lengths(self) -> Lengths:
        """See TokenStore; includes BOS and two EOS."""
        return Lengths(self.questions.lengths + self.src.lengths + 3, self.tgt.lengths)


class Answer(BaseObjective):
    """Read a question and a context, BOS question EOS context EOS, and predict where the answer
    begins and ends (SQuAD: Rajpurkar et al. 2016, arXiv:1606.05250; Devlin et al. 2019, section
    4.2).

    A context longer than the window is cut between words; if a window does not contain the answer,
    both ends are the position of BOS. A question takes at most half of a window.
    """

    order: Order = "all"
    predicts: tuple[str, ...] = ("span",)
    noun = "window"

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective."""
        return Frame(eos=False, cut="questions")

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective. The source side of the store has a sequence for each question, followed by
        one for each word or sign of its context.
        """
        ids, starts, lengths, _ = store.src
        numbers = store.tgt.ids[store.tgt.starts[:, None] + np.arange(3)].astype(np.int64)
        count = numbers[:, 0]
        at = np.cumsum(count + 1) - count - 1  # of each question
        asked = Ragged(ids, starts[at], np.minimum(lengths[at], (config.window - 3) // 2))
        line, place = places(count)  # of each word
        units = Ragged(ids, starts[at[line] + 1 + place], lengths[at[line] + 1 + place])
        room = (config.window - 3 - asked.lengths)[line]
        begins = units.runs(line, room)
        many = np.diff(np.append(begins, len(line)))
        sizes = np.add.reduceat(units.lengths, begins) if len(begins) else begins
        first, whose = units.starts[begins], line[begins]
        context = Ragged(ids, first, np.minimum(sizes, room[begins]))
        two = Ragged(np.zeros(2, np.int32), 0 * begins, 0 * begins + 2)
        items = Windows(context, two, special_of(codec).both())
        items.questions = Ragged(ids, asked.starts[whose], asked.lengths[whose])
        offsets = units.starts - np.repeat(first, many)
        most = np.repeat(context.lengths, many) - 1  # truncates a word longer than the window
        items.firsts = Ragged(offsets, begins, many)
        items.lasts = Ragged(np.minimum(offsets + units.lengths - 1, most), begins, many)
        items.line, items.before = whose, place[begins]
        ends = numbers[whose, 1:] - items.before[:, None]
        here = (ends[:, 0] >= 0) & (ends[:, 1] < many)
        items.ends = np.where(here[:, None], ends, -1)
        return items

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: all windows, including those without the answer."""
        return Selection(np.arange(len(items)), {"empty": 0})

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective. Labels are columns of the row."""
        tgt = lay_out(items.tgt, placement, placement.tgt_offset, (rows, tgt_length))
        pairs, labels = placement.pairs, np.zeros_like(tgt.inputs)
        if not isinstance(items, Windows):  # blank
            items, pairs = _NOTHING, pairs[:0]
        one, two = (Ragged(x.ids, x.starts[pairs], x.lengths[pairs])
                    for x in (items.questions, items.src))  # fmt: skip
        side, _ = two_segments(one, two, placement, (rows, src_length), items.special)
        for end, edges in enumerate((items.firsts, items.lasts)):
            unit = items.ends[pairs, end]
            piece = edges.ids[edges.starts[pairs] + np.maximum(unit, 0)]
            column = np.where(unit < 0, 0, one.lengths + 2 + piece)
            labels[placement.rows, placement.tgt_offset + end] = placement.src_offset + column
        weight = (tgt.seg > 0).astype(np.float32)
        return Batch(side, tgt, {"span": Target(labels, weight)})


_EMPTY = Ragged.from_lists([])
_NOTHING = Windows(_EMPTY, _EMPTY)
_NOTHING.questions = _NOTHING.firsts = _NOTHING.lasts = _EMPTY
_NOTHING.ends = np.zeros((0, 2), np.int64)


WORDS = {"answer": Answer()}
