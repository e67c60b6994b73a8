"""The batch: the contract between data and model."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from transformer_jax.vocabulary import BOS, PAD


class Batch(NamedTuple):
    """One batch of pairs, each array int32, one row a pair or several packed ones.

    A segment numbers the pairs of a row from 1 and is 0 on padding: it is the only padding mask.
    Positions count from 0 within each segment. `tgt_in` is `tgt_out` shifted right behind BOS.
    """

    src_ids: np.ndarray  # [B S], EOS-terminated
    src_pos: np.ndarray  # [B S]
    src_seg: np.ndarray  # [B S]
    tgt_in: np.ndarray  # [B T]
    tgt_out: np.ndarray  # [B T], EOS-terminated
    tgt_pos: np.ndarray  # [B T]
    tgt_seg: np.ndarray  # [B T]


class Ragged(NamedTuple):
    """Sequences of piece ids, one after another: sequence i is ids[offsets[i]:offsets[i + 1]]."""

    ids: np.ndarray
    offsets: np.ndarray  # int64, one more than there are sequences

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]]) -> "Ragged":
        """Join lists of ids."""
        lengths = np.fromiter((len(x) for x in lists), np.int64, len(lists))
        ids = np.fromiter((i for x in lists for i in x), np.int32, int(lengths.sum()))
        return cls(ids, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))


class Placement(NamedTuple):
    """Where pairs go in a batch: pair i to row `rows[i]`, from the offsets on, as a segment."""

    pairs: np.ndarray  # [n], which pairs
    rows: np.ndarray  # [n]
    src_offset: np.ndarray  # [n]
    tgt_offset: np.ndarray  # [n]
    segment: np.ndarray  # [n], from 1


def one_per_row(pairs: np.ndarray) -> Placement:
    """Place each pair in a row of its own."""
    zeros = np.zeros(len(pairs), np.int64)
    return Placement(np.asarray(pairs), np.arange(len(pairs)), zeros, zeros, zeros + 1)


def collate(
    src: Ragged, tgt: Ragged, placement: Placement, num_rows: int, src_length: int, tgt_length: int
) -> Batch:
    """Build a Batch of shape [num_rows, src_length] and [num_rows, tgt_length]."""
    src_ids, src_pos, src_seg = _lay_out(
        src, placement, placement.src_offset, (num_rows, src_length)
    )
    tgt_out, tgt_pos, tgt_seg = _lay_out(
        tgt, placement, placement.tgt_offset, (num_rows, tgt_length)
    )
    tgt_in = np.full_like(tgt_out, PAD)
    tgt_in[:, 1:] = tgt_out[:, :-1]
    tgt_in[(tgt_pos == 0) & (tgt_seg > 0)] = BOS
    tgt_in[tgt_seg == 0] = PAD
    return Batch(src_ids, src_pos, src_seg, tgt_in, tgt_out, tgt_pos, tgt_seg)


def _lay_out(
    side: Ragged, placement: Placement, offset: np.ndarray, shape: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Copy all sequences at once: a loop over rows would be the slowest part of the input."""
    start = side.offsets[placement.pairs]
    length = side.offsets[placement.pairs + 1] - start
    total = int(length.sum())
    within = np.arange(total) - np.repeat(np.cumsum(length) - length, length)
    where = np.repeat(placement.rows * shape[1] + offset, length) + within
    ids, pos, seg = (np.zeros(shape[0] * shape[1], np.int32) for _ in range(3))
    ids[where] = side.ids[np.repeat(start, length) + within]
    pos[where] = within
    seg[where] = np.repeat(placement.segment, length)
    return ids.reshape(shape), pos.reshape(shape), seg.reshape(shape)
