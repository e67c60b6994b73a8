"""Preferences: of two answers to a prompt, the better one is to become likelier, or to have the
greater reward.
"""

from typing import TypeVar

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.config.choices.conversations import PREFERENCE_LOSSES
from transformer_jax.data.batches.batch import Batch, Placement, Ragged, Side, Target, lay_out
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.codecs.preferences import KNOWN
from transformer_jax.data.objectives.chatting import plain
from transformer_jax.data.objectives.objective import BaseObjective, Order
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import Frame, Lengths, Selection, TokenStore, without


class Pairs(TokenStore):
    """Two conversations an item, one after the other in a row, each without its last piece."""

    known: np.ndarray  # [n] where its numbers are
    loss: str = "dpo"
    beta: float = 0.1
    window: int = 256

    @property
    def lengths(self) -> Lengths:
        """See TokenStore."""
        both = self.src.lengths + self.tgt.lengths
        return Lengths(0 * both, both)


class _OfPairs(BaseObjective):
    """An objective of pairs of conversations."""

    noun = "pair"

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective: all special pieces are the template's."""
        return Frame(eos=False, cut="preferences")

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: pairs in which neither conversation is too long."""
        longest = np.maximum(items.src.lengths, items.tgt.lengths)
        most = items.window if isinstance(items, Pairs) else config.max_length
        return without({f"longer than {most} pieces": longest > most})


class Prefer(_OfPairs):
    """Make the better of two answers likelier, and the worse one less likely, relative to a
    reference model, whose log-probabilities are columns of the data: direct preference optimisation
    (DPO: Rafailov et al. 2023, arXiv:2305.18290), IPO (Azar et al. 2023, arXiv:2310.12036), or KTO,
    which only asks whether an answer is desirable (Ethayarajh et al. 2024, arXiv:2402.01306).

    A row has both conversations, as two segments. The target's labels are, at each position: the
    piece that is predicted; whose answer it belongs to, 1 or -1, or 0 if it is only read; at the
    first of these, the reference's log-probability of the answer; beta; whether the answer is
    desirable, 1 or -1; and the loss, its place in PREFERENCE_LOSSES. The weight is 1 at one
    position of a pair.
    """

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective.

        Raises:
          UserError: if a pair has no log-probabilities of the reference.
        """
        items = _pairs(Pairs, store, config, without=1)
        items.loss, items.beta = config.preference_loss, config.preference_beta
        reference = [store.tgt.ids[items.known + place].view(np.float32) for place in (1, 2)]
        if np.isnan(reference).any():
            raise UserError(
                "preferences: rows have no 'reference', the log-probabilities of both answers "
                "before training; add them with: transformer-jax score --workdir=WORKDIR "
                "--preferences=FILE"
            )
        return items

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        shape, begin = (rows, tgt_length), placement.tgt_offset
        labels = np.zeros((*shape, 6), np.float32)
        weight = np.zeros(shape, np.float32)
        inputs, pos, seg = (np.zeros(shape, np.int32) for _ in range(3))
        if not isinstance(items, Pairs):  # a batch without examples
            return Batch(None, Side(inputs, pos, seg), {"preference": Target(labels, weight)})
        for number, (side, sign) in enumerate(((items.src, 1), (items.tgt, -1))):
            read = lay_out(side, placement, begin, shape)
            said = lay_out(side, placement, begin, shape, ahead=1).inputs
            inputs, pos = inputs + plain(read.inputs), pos + read.pos
            seg += np.where(read.seg > 0, 2 * read.seg - 1 + number, 0)
            answers = said < 0
            labels[..., 0] += np.where(answers, plain(said), 0)
            labels[..., 1] += sign * answers
            known = items.known[placement.pairs]
            first = answers & (np.cumsum(answers, axis=1) == 1)
            reference = side.ids[known + 1 + number].astype(np.int32).view(np.float32)
            desirable = side.ids[known + 3]
            labels[placement.rows, :, 2] += first[placement.rows] * reference[:, None]
            labels[placement.rows, :, 4] += answers[placement.rows] * desirable[:, None]
            if number == 0:
                weight[first] = 1
            begin = begin + side.lengths[placement.pairs]
        labels[..., 3] = items.beta * (labels[..., 1] != 0)
        labels[..., 5] = PREFERENCE_LOSSES.index(items.loss)
        return Batch(None, Side(inputs, pos, seg), {"preference": Target(labels, weight)})


class WholePairs(Pairs):
    """Two conversations an item, with all their pieces."""

    @property
    def lengths(self) -> Lengths:
        """See TokenStore: a number is predicted for each."""
        both = self.src.lengths + self.tgt.lengths
        return Lengths(both, 0 * both + 2)


class Reward(_OfPairs):
    """Predict a number for each of two answers, greater for the better one (Bradley and Terry 1952;
    Ouyang et al. 2022, arXiv:2203.02155, section 3.5).

    A source row has both conversations, as two segments, and the target side a position for each.
    A label is 1 for the better answer and -1 for the other, or 0 if there is none; the weight is 1
    at the first.
    """

    order: Order = "all"
    predicts: tuple[str, ...] = ("reward",)

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective."""
        return _pairs(WholePairs, store, config)

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        read, said = (rows, src_length), (rows, tgt_length)
        inputs, pos, seg = (np.zeros(read, np.int32) for _ in range(3))
        nothing, segments = (np.zeros(said, np.int32) for _ in range(2))
        labels, weight = (np.zeros(said, np.float32) for _ in range(2))
        source, target = Side(inputs, pos, seg), Side(nothing, nothing.copy(), segments)
        if not isinstance(items, WholePairs):  # a batch without examples
            return Batch(source, target, {"reward": Target(labels, weight)})
        begin, at = placement.src_offset, placement.tgt_offset
        for number, (side, sign) in enumerate(((items.src, 1), (items.tgt, -1))):
            one = lay_out(side, placement, begin, read)
            source = Side(
                source.inputs + plain(one.inputs), source.pos + one.pos,
                source.seg + np.where(one.seg > 0, 2 * one.seg - 1 + number, 0),
            )  # fmt: skip
            segments[placement.rows, at + number] = 2 * placement.segment - 1 + number
            labels[placement.rows, at + number] = sign
            begin = begin + side.lengths[placement.pairs]
        weight[placement.rows, at] = 1
        return Batch(source, target, {"reward": Target(labels, weight)})


P = TypeVar("P", bound=Pairs)


def _pairs(kind: type[P], store: TokenStore, config: ObjectiveConfig, without: int = 0) -> P:
    """Return pairs of conversations, see `codecs.preferences.encoded`, `without` so many of the
    last pieces of each.
    """
    rows = store.tgt
    first = rows.ids[rows.starts].astype(np.int64)  # pieces of the first conversation
    begin = rows.starts + KNOWN
    one = Ragged(rows.ids, begin, first - without)
    other = Ragged(rows.ids, begin + first, rows.lengths - KNOWN - first - without)
    items = kind(one, other, store.special)
    items.known, items.window = rows.starts, config.window
    return items


WORDS = {"prefer": Prefer(), "reward": Reward()}
