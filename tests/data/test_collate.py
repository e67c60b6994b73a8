"""Collation: from sequences and their placement to the arrays of a batch."""

import numpy as np
import pytest

from transformer_jax.base.vocabulary import BOS, EOS, PAD
from transformer_jax.data.batches.batch import Placement, Ragged, lay_out, one_per_row
from transformer_jax.data.objectives import Translate
from transformer_jax.data.store.token_store import TokenStore

SRC = Ragged.from_lists([[11, 12, EOS], [21, EOS], [31, 32, 33, EOS]])
TGT = Ragged.from_lists([[51, EOS], [61, 62, EOS], [71, EOS]])
PAIRS = TokenStore(SRC, TGT)
examples = Translate().examples


def test_truncation_keeps_the_last_id():
    texts = Ragged.from_lists([[5, 6, 7, 8, 2], [5, 2], [], [5, 6, 2], [9, 8, 7, 2]])
    found = texts.cut(3, 2)
    lists = [found.sequence(i).tolist() for i in range(len(found.lengths))]
    assert lists == [[5, 6, 2], [5, 2], [], [5, 6, 2], [9, 8, 2]]
    assert texts.sequence(0).tolist() == [5, 6, 7, 8, 2]  # a copy


def test_ragged():
    assert SRC.lengths.tolist() == [3, 2, 4]
    assert SRC.starts.tolist() == [0, 3, 5]
    assert SRC.sequence(1).tolist() == [21, EOS]
    assert SRC.ids.dtype == np.int32
    empty = Ragged.from_lists([])
    assert (empty.starts.tolist(), empty.ids.tolist()) == ([], [])


def test_one_pair_per_row():
    batch = examples(PAIRS, one_per_row(np.array([2, 0])), 3, 5, 3)
    assert batch.src.inputs.tolist() == [[31, 32, 33, EOS, 0], [11, 12, EOS, 0, 0], [0] * 5]
    assert batch.src.pos.tolist() == [[0, 1, 2, 3, 0], [0, 1, 2, 0, 0], [0] * 5]
    assert batch.src.seg.tolist() == [[1, 1, 1, 1, 0], [1, 1, 1, 0, 0], [0] * 5]
    assert batch.tgt.inputs.tolist() == [[BOS, 71, 0], [BOS, 51, 0], [0] * 3]
    assert batch.targets["tokens"].labels.tolist() == [[71, EOS, 0], [51, EOS, 0], [0] * 3]
    assert batch.tgt.pos.tolist() == [[0, 1, 0], [0, 1, 0], [0] * 3]
    assert batch.tgt.seg.tolist() == [[1, 1, 0], [1, 1, 0], [0] * 3]
    assert batch.targets["tokens"].weight.tolist() == [[1, 1, 0], [1, 1, 0], [0] * 3]
    arrays = [x for side in (batch.src, batch.tgt) for x in side if x is not None]
    assert {x.dtype for x in arrays} == {np.dtype(np.int32)}


def test_several_pairs_per_row():
    """Each pair starts with BOS and position 0, and nothing leaks from the one before."""
    place = Placement(*map(np.array, ([1, 0, 2], [0, 0, 1], [0, 2, 0], [0, 3, 0], [1, 2, 1])))
    batch = examples(PAIRS, place, 2, 6, 5)
    assert batch.src.inputs.tolist() == [[21, EOS, 11, 12, EOS, 0], [31, 32, 33, EOS, 0, 0]]
    assert batch.src.pos.tolist() == [[0, 1, 0, 1, 2, 0], [0, 1, 2, 3, 0, 0]]
    assert batch.src.seg.tolist() == [[1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 0, 0]]
    assert batch.targets["tokens"].labels.tolist() == [[61, 62, EOS, 51, EOS], [71, EOS, 0, 0, 0]]
    assert batch.tgt.inputs.tolist() == [[BOS, 61, 62, BOS, 51], [BOS, 71, 0, 0, 0]]
    assert batch.tgt.pos.tolist() == [[0, 1, 2, 0, 1], [0, 1, 0, 0, 0]]
    assert batch.tgt.seg.tolist() == [[1, 1, 1, 2, 2], [1, 1, 0, 0, 0]]


def test_a_batch_without_pairs():
    batch = examples(PAIRS, one_per_row(np.array([], np.int64)), 2, 3, 4)
    assert batch.src.inputs.shape == (2, 3)
    assert batch.tgt.inputs.shape == (2, 4)
    assert not batch.src.seg.any()
    assert not batch.targets["tokens"].weight.any()


@pytest.mark.parametrize("seed", range(5))
def test_target_inputs_are_the_labels_shifted_right(seed, make_store):
    """Within a segment the input is the previous label; at its start it is BOS."""
    store = make_store(count=20, longest=9, seed=seed)
    batch = examples(store, one_per_row(np.arange(20)), 24, 9, 9)
    for row in range(24):
        length = int((batch.tgt.seg[row] > 0).sum())
        expected = [BOS, *batch.targets["tokens"].labels[row, : length - 1]] if length else []
        assert batch.tgt.inputs[row].tolist() == expected + [PAD] * (9 - length)


@pytest.mark.parametrize("ahead", [0, 1])
def test_single_sequence_rows_are_laid_out_like_any_others(ahead):
    """The fast path for one sequence per row, in row order, agrees with the general one."""
    chance = np.random.default_rng(0)
    lengths = chance.integers(0, 9, 40)
    lengths[-1] = 0  # begins where the ids end
    ids = chance.integers(4, 99, int(lengths.sum()) + ahead).astype(np.int32)
    texts = Ragged(ids, np.cumsum(lengths) - lengths, lengths)
    pairs = np.concatenate([[39], chance.permutation(39)[:30]])
    rows, shape = np.arange(31), (35, 8)
    where = Placement(pairs, rows, 0 * rows, 0 * rows, chance.integers(1, 4, 31))
    one = lay_out(texts, where, where.src_offset, shape, ahead)
    turned = where._replace(rows=30 - rows)
    other = lay_out(texts, turned, turned.src_offset, shape, ahead)
    for x, y in zip(one[:3], other[:3], strict=True):
        assert x.dtype == y.dtype == np.int32
        assert x[:31].tolist() == y[:31][::-1].tolist()
        assert not x[31:].any()
