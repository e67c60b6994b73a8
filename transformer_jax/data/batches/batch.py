"""The batch, the interface between data and model."""

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.base.vocabulary import PAD
from transformer_jax.data.random import VALIDATION, Draw


class Side(NamedTuple):
    """The input of a stack of layers; each row is one sequence, or several packed ones.

    Segments number the sequences of a row from 1; padding has segment 0 and no other mark.
    Positions count from 0 within each segment. A position attends to those of its segment whose
    rank is at most its own. `rank` is None where the objective's order suffices: "causal" (rank is
    position) or "all" (every rank is 0). `kind` is None where there is one token type.
    """

    # int32 arrays, of NumPy or JAX.
    inputs: Any  # ids [B L], or vectors [B L C] of float32
    pos: Any  # [B L]
    seg: Any  # [B L]
    rank: Any = None  # [B L]
    kind: Any = None  # [B L], token types


class Target(NamedTuple):
    """The labels to predict; the weight, not the segment, marks where."""

    labels: Any  # ids [B T], or [B T K], each correct in proportion to its weight; or numbers
    weight: Any  # float32, of the same shape; 0: not predicted


class Teacher(NamedTuple):
    """What a teacher predicts where pieces are predicted: its likeliest pieces, and the logarithms
    of their probabilities, nats; the last of these is that of all other pieces together.
    """

    ids: Any  # int32 [B T K]
    log_probs: Any  # float32 [B T K+1]


class Batch(NamedTuple):
    """One batch. `targets` has an entry for each loss, by the name of the model's output."""

    src: Side | None  # encoder input, if any
    tgt: Side | None  # decoder input, already shifted, if any
    targets: dict[str, Target]
    time: Any = None  # float32 [B], from 0 to 1: of the noise in vectors, if there is any
    teacher: Teacher | None = None  # of the target "tokens", if there is one

    @property
    def main(self) -> str:
        """The target whose weight normalises means: pieces, if there are any, else the only one."""
        if "tokens" in self.targets:
            return "tokens"
        (name,) = self.targets
        return name


# Maps stored vectors [N C], concatenated sequences with given lengths [n] and numbers [n], to model
# inputs, float32 [N C'].
Read = Callable[[np.ndarray, np.ndarray, np.ndarray, Draw], np.ndarray]


# Of the vectors of the source side and of the target side; None: that side has none.
Channels = tuple[int | None, int | None]


def channels_of(batch: Batch) -> Channels:
    """Return the numbers of channels of both sides."""
    src, tgt = (
        None if side is None or side.inputs.ndim < 3 else side.inputs.shape[2]
        for side in (batch.src, batch.tgt)
    )
    return src, tgt


class Ragged(NamedTuple):
    """Sequences of ids: sequence i is ids[starts[i]:starts[i] + lengths[i]]; they may overlap.

    Or of stored vectors, which `read` converts to model inputs.
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
        """Cut ids into consecutive sequences, given one more offset than sequences."""
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
        """Return copies truncated to at most `most` ids; truncated ones end with `last`."""
        lengths = np.minimum(self.lengths, most)
        ends = np.cumsum(lengths)
        place = np.arange(int(lengths.sum())) - np.repeat(ends - lengths, lengths)
        ids = np.array(self.ids[np.repeat(self.starts, lengths) + place])
        ids[ends[self.lengths > most] - 1] = last
        return Ragged(ids, ends - lengths, lengths)

    def joined(self) -> "Ragged":
        """Return all sequences, which must be consecutive, as one."""
        return Ragged(self.ids, self.starts[:1], self.lengths.sum(keepdims=True))

    def runs(self, owner: np.ndarray, most: np.ndarray) -> np.ndarray:
        """Return the sequences that begin a run: consecutive ones of one owner with at most `most`
        ids [n] together, and at least one. Owners must not decrease.
        """
        ends = np.cumsum(self.lengths)
        begin = np.arange(len(ends))
        reach = np.searchsorted(ends, ends - self.lengths + most, side="right")
        reach = np.maximum(np.minimum(reach, np.searchsorted(owner, owner, "right")), begin + 1)
        begins, here = [], 0
        while here < len(ends):
            begins.append(here)
            here = int(reach[here])
        return np.array(begins, np.int64)

    def emptied(self) -> "Ragged":
        """Return the same number of empty sequences."""
        return Ragged(self.ids[:0], 0 * self.starts, 0 * self.lengths, self.read)


class Placement(NamedTuple):
    """Where examples go: example i to row `rows[i]` of a batch, at the offsets, as a segment."""

    pairs: np.ndarray  # [n], indices of the examples
    rows: np.ndarray  # [n]
    src_offset: np.ndarray  # [n]
    tgt_offset: np.ndarray  # [n]
    segment: np.ndarray  # [n], from 1


def one_per_row(pairs: np.ndarray) -> Placement:
    """Place each example in its own row."""
    zeros = np.zeros(len(pairs), np.int64)
    return Placement(np.asarray(pairs), np.arange(len(pairs)), zeros, zeros, zeros + 1)


def lay_out(
    sequences: Ragged,
    placement: Placement,
    offset: np.ndarray,
    shape: tuple[int, int],
    ahead: int = 0,
    draw: Draw = VALIDATION,
) -> Side:
    """Copy the placed sequences into an array [B L], or [B L C], at `offset` in their rows.

    With `ahead` they start that many ids later, with the same length. Vectorised, because a loop
    over rows would be the slowest part of the input pipeline.
    """
    start, length = (x[placement.pairs] for x in (sequences.starts, sequences.lengths))
    if sequences.ids.ndim == 1 and _begins_each_row(placement.rows, offset):
        return _rows(sequences.ids, start + ahead, length, placement.segment, shape)
    total = int(length.sum())
    within = np.arange(total) - np.repeat(np.cumsum(length) - length, length)
    where = np.repeat(placement.rows * shape[1] + offset, length) + within
    pos, seg = (np.zeros(shape[0] * shape[1], np.int32) for _ in range(2))
    values = sequences.ids[np.repeat(start + ahead, length) + within]
    if sequences.read is not None:
        values = sequences.read(values, length, placement.pairs, draw)
    inputs = np.zeros((shape[0] * shape[1], *values.shape[1:]), values.dtype)
    inputs[where] = values
    pos[where] = within
    seg[where] = np.repeat(placement.segment, length)
    return Side(inputs.reshape(*shape, *values.shape[1:]), pos.reshape(shape), seg.reshape(shape))


def _begins_each_row(rows: np.ndarray, offset: np.ndarray) -> bool:
    """Return whether there is one sequence per row, from the first row on, each at offset 0."""
    return not offset.any() and bool((rows == np.arange(len(rows))).all())


def _rows(
    ids: np.ndarray,
    start: np.ndarray,
    length: np.ndarray,
    segment: np.ndarray,
    shape: tuple[int, int],
) -> Side:
    """Do what `lay_out` does for one sequence per row, in a third of the time: read all positions,
    including those after a sequence's end, and clear these.
    """
    column = np.arange(shape[1], dtype=np.int32)
    inputs, pos, seg = (np.zeros(shape, np.int32) for _ in range(3))
    if len(start) and len(ids) and shape[1]:
        here = (column < length[:, None]).astype(np.int32)
        cells = ids.take(start[:, None] + column, mode="clip")
        inputs, n = inputs.astype(ids.dtype), len(start)
        np.multiply(cells, here, out=inputs[:n])
        np.multiply(column, here, out=pos[:n])
        np.multiply(segment[:, None].astype(np.int32), here, out=seg[:n])
    return Side(inputs, pos, seg)


def predicted(labels: Side) -> Target:
    """Return labels as a target that is predicted at all their positions."""
    return Target(labels.inputs, (labels.seg > 0).astype(np.float32))


def shifted(labels: Side, first: int) -> Side:
    """Return the inputs that precede each label: `first` at the start of each segment."""
    inputs = np.full_like(labels.inputs, PAD)
    inputs[:, 1:] = labels.inputs[:, :-1]
    inputs = np.where(labels.pos == 0, labels.inputs.dtype.type(first), inputs)
    return labels._replace(inputs=np.where(labels.seg > 0, inputs, labels.inputs.dtype.type(PAD)))


def places(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return for each position of texts of these lengths its text and its index in the text."""
    owner = np.repeat(np.arange(len(lengths)), lengths)
    return owner, np.arange(len(owner)) - (np.cumsum(lengths) - lengths)[owner]
