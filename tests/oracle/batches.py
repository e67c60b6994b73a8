"""Small ragged batches, laid out cell by cell rather than by the code under test."""

from collections.abc import Mapping

import numpy as np

from transformer_jax.base.vocabulary import BOS, EOS, UNK
from transformer_jax.data.batches.batch import Batch, Side, Target

# Each row is a list of (source length, target length). The longest source and the longest target
# are in different rows, so that each side has padding where the other has none.
ONE_PER_ROW = [[(7, 4)], [(3, 8)], [(5, 1)], [(1, 5)]]
PACKED = [[(4, 3), (2, 6)], [(5, 5)], [(1, 2), (3, 1), (2, 2)]]


def make_batch(lengths: list[list[tuple[int, int]]], src_vocab: int, tgt_vocab: int) -> Batch:
    """Return a batch of random sentences, deterministic in its arguments."""
    rng = np.random.default_rng(len(lengths))

    def sentence(length, vocab):
        return [*rng.integers(UNK, vocab, length - 1).tolist(), EOS]

    src = [[sentence(n, src_vocab) for n, _ in row] for row in lengths]
    tgt = [[sentence(n, tgt_vocab) for _, n in row] for row in lengths]
    shifted = [[[BOS, *words[:-1]] for words in row] for row in tgt]
    arrays = *_lay_out(src), _lay_out(shifted)[0], *_lay_out(tgt)
    return unflat(dict(zip(FIELDS, arrays, strict=True)))


def prefixed(batch: Batch, prefixes: tuple[int, ...] = (2, 5, 1, 3)) -> Batch:
    """Return only the target side, with the first positions of each sentence as a prefix.

    The prefix has rank 0, the positions after it 1, 2, and so on; only the latter are predicted.
    """
    tgt, prefix = batch.tgt, np.asarray(prefixes)[: len(batch.tgt.pos), None]
    rank = np.where(tgt.seg > 0, np.maximum(tgt.pos - prefix + 1, 0), 0).astype(np.int32)
    return _ranked(batch, rank, ((rank > 0) & (tgt.seg > 0)).astype(np.float32))


def permuted(batch: Batch) -> Batch:
    """Return only the target side, with ranks in random order, some of them equal."""
    rank = np.random.default_rng(5).integers(0, 6, batch.tgt.seg.shape).astype(np.int32)
    return _ranked(batch, rank, batch.targets["tokens"].weight)


def reordered(batch: Batch) -> Batch:
    """Return only the target side, each piece to be predicted at its own position.

    The first two positions of each sentence, or its only one, have rank 0 and are not predicted;
    the others have ranks 1, 2, and so on in random order.
    """
    tgt = batch.tgt
    later, rank = tgt.pos > 1, np.zeros_like(tgt.seg)
    generator = np.random.default_rng(6)
    for row in range(len(tgt.seg)):
        for segment in range(1, tgt.seg[row].max() + 1):
            at = np.flatnonzero(later[row] & (tgt.seg[row] == segment))
            rank[row, at] = generator.permutation(len(at)) + 1
    target = Target(tgt.inputs, (rank > 0).astype(np.float32))
    return Batch(None, tgt._replace(rank=rank), {"tokens": target})


def masked(batch: Batch) -> Batch:
    """Return only the source side, with two token types and every third piece to be predicted."""
    src = _with_kinds(batch.src)
    labels = np.random.default_rng(7).integers(UNK, UNK + 50, src.seg.shape).astype(np.int32)
    weight = ((src.seg > 0) & (src.pos % 3 == 1)).astype(np.float32)
    return Batch(src, None, {"tokens": Target(labels, weight)})


def asked(batch: Batch) -> Batch:
    """Return the source side, with two token types, and a class to be predicted for each text."""
    most = int(batch.src.seg.max())
    seg = np.arange(1, most + 1, dtype=np.int32) * np.ones_like(batch.src.seg[:, :1])
    seg = np.where(seg <= batch.src.seg.max(1, keepdims=True), seg, 0)
    labels = np.random.default_rng(8).integers(0, 50, seg.shape).astype(np.int32)
    tgt = Side(0 * seg, 0 * seg, seg)
    return Batch(
        _with_kinds(batch.src), tgt, {"class": Target(labels, (seg > 0).astype(np.float32))}
    )


def _with_kinds(side: Side) -> Side:
    return side._replace(kind=np.where(side.pos % 4 > 1, side.seg > 0, 0).astype(np.int32))


def _ranked(batch: Batch, rank: np.ndarray, weight: np.ndarray) -> Batch:
    target = batch.targets["tokens"]._replace(weight=weight)
    return Batch(None, batch.tgt._replace(rank=rank), {"tokens": target})


def _lay_out(rows: list[list[list[int]]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return ids, positions and segments."""
    longest = max(sum(map(len, row)) for row in rows)
    ids, positions, segments = (np.zeros((len(rows), longest), np.int32) for _ in range(3))
    for r, row in enumerate(rows):
        column = 0
        for number, words in enumerate(row, start=1):
            for position, word in enumerate(words):
                ids[r, column], positions[r, column], segments[r, column] = word, position, number
                column += 1
    return ids, positions, segments


FIELDS = ("src_ids", "src_pos", "src_seg", "tgt_in", "tgt_out", "tgt_pos", "tgt_seg")


def flat(batch: Batch) -> dict[str, np.ndarray]:
    """Return the arrays of a batch under the names that peers and recordings use."""
    nothing = Side(None, None, None)
    src, tgt = (nothing if side is None else side for side in batch[:2])
    ((labels, _),) = batch.targets.values()
    arrays = dict(zip(FIELDS, (*src[:3], tgt.inputs, labels, tgt.pos, tgt.seg), strict=True))
    arrays |= {"tgt_rank": tgt.rank, "src_kind": src.kind}
    return {name: array for name, array in arrays.items() if array is not None}


def unflat(arrays: Mapping[str, np.ndarray]) -> Batch:
    """Return the batch that `flat` converted to these arrays."""
    src = Side(arrays["src_ids"], arrays["src_pos"], arrays["src_seg"])
    tgt = Side(arrays["tgt_in"], arrays["tgt_pos"], arrays["tgt_seg"])
    target = Target(arrays["tgt_out"], (tgt.seg > 0).astype(np.float32))
    return Batch(src, tgt, {"tokens": target})
