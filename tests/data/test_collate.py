"""From sequences and places to the arrays of a batch."""

import numpy as np
import pytest

from transformer_jax.data.batch import Placement, Ragged, collate, one_per_row
from transformer_jax.vocabulary import BOS, EOS, PAD

SRC = Ragged.from_lists([[11, 12, EOS], [21, EOS], [31, 32, 33, EOS]])
TGT = Ragged.from_lists([[51, EOS], [61, 62, EOS], [71, EOS]])


def test_ragged():
    assert SRC.lengths.tolist() == [3, 2, 4]
    assert SRC.offsets.tolist() == [0, 3, 5, 9]
    assert SRC.ids.dtype == np.int32
    empty = Ragged.from_lists([])
    assert (empty.offsets.tolist(), empty.ids.tolist()) == ([0], [])


def test_one_pair_a_row():
    batch = collate(SRC, TGT, one_per_row(np.array([2, 0])), 3, 5, 3)
    assert batch.src_ids.tolist() == [[31, 32, 33, EOS, 0], [11, 12, EOS, 0, 0], [0] * 5]
    assert batch.src_pos.tolist() == [[0, 1, 2, 3, 0], [0, 1, 2, 0, 0], [0] * 5]
    assert batch.src_seg.tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 0, 0], [0] * 5]
    assert batch.tgt_in.tolist() == [[BOS, 71, 0], [BOS, 51, 0], [0] * 3]
    assert batch.tgt_out.tolist() == [[71, EOS, 0], [51, EOS, 0], [0] * 3]
    assert batch.tgt_pos.tolist() == [[0, 1, 0], [0, 1, 0], [0] * 3]
    assert batch.tgt_seg.tolist() == [[1, 1, 0], [1, 1, 0], [0] * 3]
    assert {field.dtype for field in batch} == {np.dtype(np.int32)}


def test_several_pairs_a_row():
    """Each pair starts with BOS and position 0, and nothing leaks over from the one before."""
    place = Placement(*map(np.array, ([1, 0, 2], [0, 0, 1], [0, 2, 0], [0, 3, 0], [1, 2, 1])))
    batch = collate(SRC, TGT, place, 2, 6, 5)
    assert batch.src_ids.tolist() == [[21, EOS, 11, 12, EOS, 0], [31, 32, 33, EOS, 0, 0]]
    assert batch.src_pos.tolist() == [[0, 1, 0, 1, 2, 0], [0, 1, 2, 3, 0, 0]]
    assert batch.src_seg.tolist() == [[1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 0, 0]]
    assert batch.tgt_out.tolist() == [[61, 62, EOS, 51, EOS], [71, EOS, 0, 0, 0]]
    assert batch.tgt_in.tolist() == [[BOS, 61, 62, BOS, 51], [BOS, 71, 0, 0, 0]]
    assert batch.tgt_pos.tolist() == [[0, 1, 2, 0, 1], [0, 1, 0, 0, 0]]
    assert batch.tgt_seg.tolist() == [[1, 1, 1, 2, 2], [1, 1, 0, 0, 0]]


def test_nothing_at_all():
    batch = collate(SRC, TGT, one_per_row(np.array([], np.int64)), 2, 3, 4)
    assert batch.src_ids.shape == (2, 3)
    assert batch.tgt_in.shape == (2, 4)
    assert not any(field.any() for field in batch)


@pytest.mark.parametrize("seed", range(5))
def test_the_shift_in_general(seed, make_store):
    """Where a segment goes on, the input is the output before it; where it starts, BOS."""
    store = make_store(count=20, longest=9, seed=seed)
    batch = collate(store.src, store.tgt, one_per_row(np.arange(20)), 24, 9, 9)
    for row in range(24):
        length = int((batch.tgt_seg[row] > 0).sum())
        expected = [BOS, *batch.tgt_out[row, : length - 1]] if length else []
        assert batch.tgt_in[row].tolist() == expected + [PAD] * (9 - length)
