"""Conversations: what the assistant says is predicted, all else is read."""

import numpy as np

from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Placement, Ragged, Target, lay_out
from transformer_jax.data.codecs.codec import Codec
from transformer_jax.data.objectives.objective import BaseObjective
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import Frame, Selection, TokenStore

_PIECES = 2**22  # looked through at a time


class Conversations(TokenStore):
    """Conversations up to their last answer that fits. A predicted piece is stored as ~id, and a
    sequence is one shorter than its pieces, as its labels are.
    """

    dropped: dict[str, int] = {}  # noqa: RUF012 (replaced, never changed)


class Chat(BaseObjective):
    """Predict each piece of the assistant's answers, with the piece that ends them, from all before
    it (Ouyang et al. 2022, arXiv:2203.02155, section 3.5).

    A conversation longer than the window is cut behind the last answer that fits.
    """

    noun = "conversation"

    def frame(self, config: ObjectiveConfig) -> Frame:
        """See Objective: all special pieces are the template's."""
        return Frame(eos=False, cut="turns")

    def items(
        self, store: TokenStore, config: ObjectiveConfig, codec: Codec | None = None
    ) -> TokenStore:
        """See Objective. Lengths are those of the labels, which equal those of the inputs."""
        texts = store.tgt
        ends, answers, fitting = _last_answers(texts, config.window + 1)
        kept = np.flatnonzero(ends > 0)
        labels = Ragged(texts.ids, texts.starts[kept], ends[kept] - 1)
        items = Conversations(labels.emptied(), labels, store.special)
        items.dropped = {
            f"whose first answer ends beyond {config.window + 1} pieces": len(ends) - len(kept),
            "later answers beyond that": int((answers - fitting)[kept].sum()),
        }
        return items

    def select(self, items: TokenStore, config: DataConfig) -> Selection:
        """See Objective: all that have an answer in the window."""
        dropped = items.dropped if isinstance(items, Conversations) else {}
        return Selection(np.arange(len(items)), dropped)

    def batch(
        self, items: TokenStore, placement: Placement, rows: int, src_length: int, tgt_length: int,
        draw: Draw,
    ) -> Batch:  # fmt: skip
        """See Objective."""
        where = placement, placement.tgt_offset, (rows, tgt_length)
        labels = lay_out(items.tgt, *where, ahead=1)
        inputs = lay_out(items.tgt, *where)
        weight = (labels.inputs < 0).astype(np.float32)
        target = Target(np.where(weight > 0, plain(labels.inputs), 0), weight)
        return Batch(None, inputs._replace(inputs=plain(inputs.inputs)), {"tokens": target})


def plain(ids: np.ndarray) -> np.ndarray:
    """Return pieces without the mark of those that are predicted."""
    return np.where(ids < 0, ~ids, ids)


def _last_answers(texts: Ragged, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each text the end of its last answer within `most` pieces, 0 if there is none; and
    the numbers of its answers, and of those that end there or before. A first piece is read, not
    predicted.
    """
    count = len(texts.lengths)
    ends, answers, fitting = (np.zeros(count, np.int64) for _ in range(3))
    size = max(1, _PIECES // max(1, int(texts.lengths.max(initial=1))))
    for first in range(0, count, size):
        part = slice(first, min(first + size, count))
        starts, lengths = texts.starts[part], texts.lengths[part]
        width = int(lengths.max(initial=0))
        column = np.arange(width)
        within = column < lengths[:, None]
        if not width or not within.any():
            continue
        cells = texts.ids.take(starts[:, None] + column, mode="clip")
        said = (cells < 0) & within & (column > 0)
        ahead = np.zeros_like(said)
        ahead[:, :-1] = said[:, 1:]
        last = said & ~ahead
        ends[part] = np.where(last & (column < most), column + 1, 0).max(axis=1)
        answers[part] = last.sum(axis=1)
        fitting[part] = (last & (column < most)).sum(axis=1)
    return ends, answers, fitting


WORDS = {"chat": Chat()}
