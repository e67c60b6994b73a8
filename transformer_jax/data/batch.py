"""The batch: the contract between data and model."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.data.random import Draw
from transformer_jax.vocabulary import PAD


class Side(NamedTuple):
    """What a stack of layers reads, one row a sequence or several packed ones.

    A segment numbers the sequences of a row from 1 and is 0 on padding, which nothing else marks.
    Positions count from 0 within each segment. A position sees those of its segment whose rank is
    at most its own. `rank` is None where the objective's order says it all: "causal" (rank is
    position) or "all" (every rank is 0). `kind` is None where there is one kind of token.
    """

    # Arrays of int32, held by numpy or by jax.
    inputs: Any  # ids [B L], or vectors [B L C] of float32
    pos: Any  # [B L]
    seg: Any  # [B L]
    rank: Any = None  # [B L]
    kind: Any = None  # [B L], token types


class Target(NamedTuple):
    """What is predicted: the weight, not the segment, says where."""

    labels: Any  # ids [B T], or [B T K] of which each is right by its weight; or numbers
    weight: Any  # float32, of the same shape; 0: not predicted


class Batch(NamedTuple):
    """One batch. `targets` has an entry for each loss, by the name of the model's output."""

    src: Side | None  # what an encoder reads; None: there is none
    tgt: Side | None  # what a decoder reads, already shifted; None: there is none
    targets: dict[str, Target]

    @property
    def main(self) -> str:
        """The target whose weight makes means: pieces, where there are any, else the only one."""
        if "tokens" in self.targets:
            return "tokens"
        (name,) = self.targets
        return name


# What is read of stored vectors [N C], those of sequences of some lengths [n] and numbers [n] one
# after the other: float32 [N C'].
Read = Callable[[np.ndarray, np.ndarray, np.ndarray, Draw], np.ndarray]


def channels_of(batch: Batch) -> int | None:
    """Return how many channels the source side has, where it has vectors."""
    return None if batch.src is None or batch.src.inputs.ndim < 3 else batch.src.inputs.shape[2]


class Ragged(NamedTuple):
    """Sequences of ids: sequence i is ids[starts[i]:starts[i] + lengths[i]]; they may overlap.

    Or of vectors, as they are stored; `read` makes of them what a model reads.
    """

    ids: np.ndarray  # [N], or [N C]
    starts: np.ndarray  # int64
    lengths: np.ndarray  # int64
    read: Read | None = None

    def sequence(self, index: int) -> np.ndarray:
        """Return the ids of one sequence."""
        return self.ids[self.starts[index] : self.starts[index] + self.lengths[index]]

    @classmethod
    def from_offsets(cls, ids: np.ndarray, offsets: np.ndarray) -> "Ragged":
        """Cut ids into sequences that follow one another: one offset more than sequences."""
        return cls(ids, offsets[:-1], np.diff(offsets))

    @classmethod
    def from_lists(cls, lists: Sequence[Sequence[int]] | Sequence[np.ndarray]) -> "Ragged":
        """Join lists of ids, or arrays of vectors [L C]."""
        lengths = np.fromiter((len(x) for x in lists), np.int64, len(lists))
        if len(lists) and isinstance(lists[0], np.ndarray):
            ids = np.concatenate(lists)
        else:
            ids = np.fromiter(chain.from_iterable(lists), np.int32, int(lengths.sum()))
        return cls(ids, np.cumsum(lengths) - lengths, lengths)

    def windows(self, most: int) -> "Ragged":
        """Cut each sequence into windows of at most `most` ids."""
        count = -(-self.lengths // most)
        first = np.repeat(np.cumsum(count) - count, count)  # window of the same sequence
        begin = (np.arange(int(count.sum())) - first) * most
        lengths = np.minimum(most, np.repeat(self.lengths, count) - begin)
        return self._replace(starts=np.repeat(self.starts, count) + begin, lengths=lengths)

    def cut(self, most: int, last: int) -> "Ragged":
        """Return copies of at most `most` ids; `last` is the last of those that had more."""
        lengths = np.minimum(self.lengths, most)
        ends = np.cumsum(lengths)
        place = np.arange(int(lengths.sum())) - np.repeat(ends - lengths, lengths)
        ids = np.array(self.ids[np.repeat(self.starts, lengths) + place])
        ids[ends[self.lengths > most] - 1] = last
        return Ragged(ids, ends - lengths, lengths)

    def joined(self) -> "Ragged":
        """Return one sequence of all, which follow one another."""
        return Ragged(self.ids, self.starts[:1], self.lengths.sum(keepdims=True))

    def runs(self, owner: np.ndarray, most: np.ndarray) -> np.ndarray:
        """Return which sequences begin a run: as many of one owner as have at most `most` ids
        together [n], and one at least. Owners do not decrease.
        """
        ends = np.cumsum(self.lengths)
        begin = np.arange(len(ends))
        reach = np.searchsorted(ends, ends - self.lengths + most, side="right")
        reach = np.maximum(np.minimum(reach, np.searchsorted(owner, owner, "right")), begin + 1)
        found, here = [], 0
        while here < len(ends):
            found.append(here)
            here = int(reach[here])
        return np.array(found, np.int64)

    def emptied(self) -> "Ragged":
        """Return as many sequences of nothing."""
        return Ragged(self.ids[:0], 0 * self.starts, 0 * self.lengths, self.read)


class Placement(NamedTuple):
    """Where examples go: number i to row `rows[i]` of a batch, from the offsets on, a segment."""

    pairs: np.ndarray  # [n], which examples
    rows: np.ndarray  # [n]
    src_offset: np.ndarray  # [n]
    tgt_offset: np.ndarray  # [n]
    segment: np.ndarray  # [n], from 1


def one_per_row(pairs: np.ndarray) -> Placement:
    """Place each example in a row of its own."""
    zeros = np.zeros(len(pairs), np.int64)
    return Placement(np.asarray(pairs), np.arange(len(pairs)), zeros, zeros, zeros + 1)


def lay_out(
    sequences: Ragged,
    placement: Placement,
    offset: np.ndarray,
    shape: tuple[int, int],
    ahead: int = 0,
    draw: Draw = Draw(),  # noqa: B008 (immutable)
) -> Side:
    """Copy the placed sequences into an array [B L], or [B L C], from `offset` of their rows on.

    With `ahead` they are as long, and begin so many ids later. All at once: a loop over rows would
    be the slowest part of the input.
    """
    start, length = (x[placement.pairs] for x in (sequences.starts, sequences.lengths))
    if sequences.ids.ndim == 1 and _begins_each_row(placement.rows, offset):
        return _rows(sequences.ids, start + ahead, length, placement.segment, shape)
    total = int(length.sum())
    within = np.arange(total) - np.repeat(np.cumsum(length) - length, length)
    where = np.repeat(placement.rows * shape[1] + offset, length) + within
    pos, seg = (np.zeros(shape[0] * shape[1], np.int32) for _ in range(2))
    found = sequences.ids[np.repeat(start + ahead, length) + within]
    if sequences.read is not None:
        found = sequences.read(found, length, placement.pairs, draw)
    inputs = np.zeros((shape[0] * shape[1], *found.shape[1:]), found.dtype)
    inputs[where] = found
    pos[where] = within
    seg[where] = np.repeat(placement.segment, length)
    return Side(inputs.reshape(*shape, *found.shape[1:]), pos.reshape(shape), seg.reshape(shape))


def _begins_each_row(rows: np.ndarray, offset: np.ndarray) -> bool:
    """Whether sequences stand one a row from the first row on, and begin there."""
    return not offset.any() and bool((rows == np.arange(len(rows))).all())


def _rows(
    ids: np.ndarray,
    start: np.ndarray,
    length: np.ndarray,
    segment: np.ndarray,
    shape: tuple[int, int],
) -> Side:
    """Return what `lay_out` does of one sequence a row, in a third of the time: all positions are
    read, also those behind a sequence's end, and these cleared.
    """
    column = np.arange(shape[1], dtype=np.int32)
    inputs, pos, seg = (np.zeros(shape, np.int32) for _ in range(3))
    if len(start) and len(ids) and shape[1]:
        here = (column < length[:, None]).astype(np.int32)
        found = ids.take(start[:, None] + column, mode="clip")
        inputs, n = inputs.astype(ids.dtype), len(start)
        np.multiply(found, here, out=inputs[:n])
        np.multiply(column, here, out=pos[:n])
        np.multiply(segment[:, None].astype(np.int32), here, out=seg[:n])
    return Side(inputs, pos, seg)


def predicted(labels: Side) -> Target:
    """Return labels that are predicted wherever they stand."""
    return Target(labels.inputs, (labels.seg > 0).astype(np.float32))


def shifted(labels: Side, first: int) -> Side:
    """Return the inputs that precede each label: `first` at the start of each segment."""
    inputs = np.full_like(labels.inputs, PAD)
    inputs[:, 1:] = labels.inputs[:, :-1]
    inputs = np.where(labels.pos == 0, labels.inputs.dtype.type(first), inputs)
    return labels._replace(inputs=np.where(labels.seg > 0, inputs, labels.inputs.dtype.type(PAD)))


def places(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return of each place of texts of such lengths, whose it is and the how-manieth there."""
    owner = np.repeat(np.arange(len(lengths)), lengths)
    return owner, np.arange(len(owner)) - (np.cumsum(lengths) - lengths)[owner]
