"""Small ragged batches, laid out cell by cell and not with the code that is to be checked."""

from collections.abc import Mapping

import numpy as np

from transformer_jax.data.batch import Batch, Side, Target
from transformer_jax.vocabulary import BOS, EOS, UNK

# Each row a list of (source length, target length). The longest source and the longest target are
# in different rows, so that both sides have padding wherever the other has none.
ONE_PER_ROW = [[(7, 4)], [(3, 8)], [(5, 1)], [(1, 5)]]
PACKED = [[(4, 3), (2, 6)], [(5, 5)], [(1, 2), (3, 1), (2, 2)]]


def make_batch(lengths: list[list[tuple[int, int]]], src_vocab: int, tgt_vocab: int) -> Batch:
    """Return a batch of random sentences, the same for the same arguments."""
    rng = np.random.default_rng(len(lengths))

    def sentence(length, vocab):
        return [*rng.integers(UNK, vocab, length - 1).tolist(), EOS]

    src = [[sentence(n, src_vocab) for n, _ in row] for row in lengths]
    tgt = [[sentence(n, tgt_vocab) for _, n in row] for row in lengths]
    shifted = [[[BOS, *words[:-1]] for words in row] for row in tgt]
    arrays = *_lay_out(src), _lay_out(shifted)[0], *_lay_out(tgt)
    return unflat(dict(zip(FIELDS, arrays, strict=True)))


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
    """Return the arrays of a batch of pairs by the names that peers and recordings use."""
    src, tgt, labels = batch.src, batch.tgt, batch.targets["tokens"].labels
    arrays = src.inputs, src.pos, src.seg, tgt.inputs, labels, tgt.pos, tgt.seg
    return dict(zip(FIELDS, arrays, strict=True))


def unflat(arrays: Mapping[str, np.ndarray]) -> Batch:
    """Return the batch that `flat` made them of."""
    src = Side(arrays["src_ids"], arrays["src_pos"], arrays["src_seg"])
    tgt = Side(arrays["tgt_in"], arrays["tgt_pos"], arrays["tgt_seg"])
    target = Target(arrays["tgt_out"], (tgt.seg > 0).astype(np.float32))
    return Batch(src, tgt, {"tokens": target})
