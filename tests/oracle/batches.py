"""Small ragged batches, laid out cell by cell and not with the code that is to be checked."""

import numpy as np

from transformer_jax.data.batch import Batch
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
    return Batch(*_lay_out(src), _lay_out(shifted)[0], *_lay_out(tgt))


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
