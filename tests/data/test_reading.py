"""Masked language modelling, by counting masks and replacements; and text classification."""

from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS, EOS, UNK
from transformer_jax.config import DataConfig, ObjectiveConfig, TokenizerConfig
from transformer_jax.data.batches.batch import Batch, Ragged, one_per_row
from transformer_jax.data.batches.batching import BucketPlan, PackPlan, blank
from transformer_jax.data.codecs.codec import SPECIAL
from transformer_jax.data.codecs.utf8 import train
from transformer_jax.data.objectives.labelling import Classify
from transformer_jax.data.objectives.masked_lm import MaskedLM, one_by_one
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import TokenStore

MASK, SIZE = 4, 200
STARTS = np.arange(SIZE) % 3 == 0  # every third id starts a word
CODEC: Any = SimpleNamespace(
    size=SIZE, special={**SPECIAL, "mask": MASK}, word_starts=lambda: STARTS
)  # fmt: skip
DATA = DataConfig(max_length=24, tokens_per_batch=200, num_buckets=3, rows_divisible_by=4)
NOTHING = Ragged.from_lists([])


def texts(count: int, length: int) -> list[list[int]]:
    """Return random texts that end with EOS; one piece in ten is UNK."""
    generator = np.random.default_rng(0)
    pieces = generator.integers(5, SIZE, (count, length))
    pieces[generator.random(pieces.shape) < 0.1] = UNK
    return [[*row.tolist(), EOS] for row in pieces]


def masked(lists: list[list[int]], draw: Draw = Draw(), **fields: Any) -> tuple[Batch, np.ndarray]:  # noqa: B008
    """Return a batch of texts, one per row, and its inputs before masking."""
    config = ObjectiveConfig("masked_lm", **fields)
    items = MaskedLM().items(TokenStore(NOTHING, Ragged.from_lists(lists)), config, CODEC)
    longest = int(items.lengths.src.max())
    place = one_per_row(np.arange(len(items)))
    batch = MaskedLM().examples(items, place, len(items), longest, 0, draw)
    original = np.zeros_like(batch.src.inputs)
    for row, text in enumerate(items.src.sequence(i) for i in range(len(items))):
        original[row, : len(text) + 1] = [BOS, *text]
    return batch, original


def test_shares_of_masked_replaced_and_kept_pieces():
    """15 % are selected, eight in ten of them masked; of 8,000 draws, to four standard errors."""
    batch, original = masked(texts(600, 100))
    hidden = batch.targets["tokens"].weight > 0
    labels, inputs = batch.targets["tokens"].labels, batch.src.inputs
    special = np.isin(original, [*SPECIAL.values(), MASK])
    assert not (hidden & special).any()
    np.testing.assert_array_equal(labels, np.where(hidden, original, 0))
    np.testing.assert_array_equal(inputs[~hidden], original[~hidden])
    count, may = hidden.sum(1), (~special).sum(1)
    np.testing.assert_array_equal(count, np.rint(0.15 * may))
    read, wanted = inputs[hidden], labels[hidden]
    total = len(read)
    shares = (read == MASK).mean(), (read == wanted).mean()
    # One drawn from 195 pieces is by chance the piece itself.
    for share, expected in zip(shares, (0.8, 0.1 + 0.1 / 195), strict=True):
        assert abs(share - expected) < 4 * (expected * (1 - expected) / total) ** 0.5
    others = read[(read != MASK) & (read != wanted)]
    assert len(set(others.tolist())) > 180  # from all ordinary pieces
    assert others.min() >= 5


def test_every_position_is_equally_likely_to_be_masked():
    """Across epochs, each of which draws anew; the same epoch always draws the same."""
    lists = [[*range(5, 25), EOS]]
    same = [masked(lists, Draw(3, 1))[0].src.inputs for _ in range(2)]
    np.testing.assert_array_equal(*same)
    counts = sum(masked(lists, Draw(3, e))[0].targets["tokens"].weight[0] for e in range(1000))
    assert counts[0] == counts[21] == 0  # BOS and EOS
    assert (np.abs(counts[1:21] - 150) < 4 * (1000 * 0.15 * 0.85) ** 0.5).all()


def test_short_texts_have_one_masked_piece():
    batch, _ = masked([[5, EOS], [6, 7, EOS], [UNK, EOS], [EOS]], mask_rate=0.01)
    assert batch.targets["tokens"].weight.sum(1).tolist() == [1, 1, 0, 0]


def test_words_are_masked_whole():
    """All of their pieces or none; the mask rate applies to words."""
    batch, original = masked(texts(200, 100), whole_words=True)
    hidden = batch.targets["tokens"].weight > 0
    for row, pieces in zip(hidden, original, strict=True):
        word = np.cumsum(STARTS[pieces] | (np.arange(len(pieces)) == 1))
        ordinary = ~np.isin(pieces, [*SPECIAL.values(), MASK])
        found = {w: set(row[(word == w) & ordinary].tolist()) for w in set(word[ordinary].tolist())}
        assert all(len(states) == 1 for states in found.values())
        assert sum(map(max, found.values())) == np.rint(0.15 * len(found))


@pytest.mark.parametrize("document", ["line", "joined"])
def test_windows_contain_the_whole_text(document):
    """Each starts with BOS; no piece is lost, none is repeated."""
    lists = texts(5, 9)
    batch, original = masked(lists, window=8, document=document)
    assert (original[:, 0] == BOS).all()
    joined = [i for row in original for i in row.tolist() if i not in (0, BOS)]
    assert joined == [i for text in lists for i in text]
    lengths = (batch.src.seg > 0).sum(1).tolist()
    assert lengths == ([8, 4] * 5 if document == "line" else [8] * 7 + [2])


def test_one_by_one_masks_every_piece_once():
    """Each ordinary piece of every window is replaced by MASK once, and all others are read."""
    lists = [*texts(4, 6), [EOS]]
    config = ObjectiveConfig("masked_lm", window=5)
    items = MaskedLM().items(TokenStore(NOTHING, Ragged.from_lists(lists)), config, CODEC)
    found = one_by_one(items, 10**6)
    batch = MaskedLM().examples(found, one_per_row(np.arange(len(found))), len(found), 5, 0)
    labels, weight = batch.targets["tokens"]
    assert (weight.sum(1) == 1).all()
    assert (batch.src.inputs[weight > 0] == MASK).all()
    ordinary = [i for text in lists for i in text if i not in SPECIAL.values()]
    assert sorted(labels[weight > 0].tolist()) == sorted(ordinary)
    whole = np.where(weight > 0, labels, batch.src.inputs)
    windows = {tuple(items.src.sequence(i).tolist()) for i in range(len(items))}
    assert {tuple(i for i in row[1:].tolist() if i) for row in whole} <= windows
    few = one_by_one(items, 1)  # at least one window, however long
    assert 1 <= len(few) <= 4


def test_empty_lines_are_dropped():
    store = TokenStore(NOTHING, Ragged.from_lists([[5, EOS], [EOS], [7, EOS]]))
    items = MaskedLM().items(store, ObjectiveConfig("masked_lm"), CODEC)
    selection = MaskedLM().select(items, DATA)
    assert (selection.pairs.tolist(), selection.dropped) == ([0, 2], {"empty": 1})


def test_a_codec_without_a_mask_is_rejected():
    codec = train(TokenizerConfig(), [])
    with pytest.raises(UserError, match=r"'masked_lm': the tokenizer has no piece <mask>.*False$"):
        MaskedLM().items(TokenStore(NOTHING, NOTHING), ObjectiveConfig("masked_lm"), codec)


def classified(plan_of: Any, most: int = 1) -> list[Batch]:
    """Return texts: number i has the class i % 3, or 1 + i % most classes from there on."""
    lengths = [3, 9, 2, 5, 12, 7, 4, 30]
    src = Ragged.from_lists([[100 + i] * (n - 1) + [EOS] for i, n in enumerate(lengths)])
    tgt = Ragged.from_lists([[i % 3 + k for k in range(1 + i % most)] for i in range(len(lengths))])
    items = Classify().items(TokenStore(src, tgt), ObjectiveConfig("classify", window=12))
    plan = plan_of(items, Classify().select(items, DATA).pairs, DATA, 0)
    batches = []
    for index in range(len(plan)):
        shape, placement = plan.batch(index)
        batch = Classify().examples(items, placement, *shape)
        assert (batch.src.seg.shape[1], batch.tgt.seg.shape[1]) == shape[1:]
        empty = blank(Classify(), shape, most=most)  # for which programs are compiled
        one, other = (jax.tree.map(lambda x: (x.shape, x.dtype), x) for x in (batch, empty))
        assert one == other
        batches.append(batch)
    return batches


@pytest.mark.parametrize("plan_of", [BucketPlan, PackPlan])
def test_each_text_has_a_class(plan_of):
    """A text is read after BOS and ends with EOS, even if cut to the window; its class is predicted
    at a position that reads nothing.
    """
    seen = {}
    for batch in classified(plan_of):
        labels, weight = batch.targets["class"]
        assert not batch.tgt.inputs.any()
        np.testing.assert_array_equal(weight > 0, batch.tgt.seg > 0)
        for row, column in np.argwhere(weight > 0):
            at = batch.src.seg[row] == batch.tgt.seg[row, column]
            read, pos = batch.src.inputs[row, at], batch.src.pos[row, at]
            assert (read[0], read[-1]) == (BOS, EOS)
            assert pos.tolist() == list(range(len(pos)))
            assert set(read[1:-1].tolist()) <= {read[1]}
            seen[read[1] - 100] = labels[row, column], len(read)
    read = [4, 10, 3, 6, 12, 8, 5, 12]
    assert seen == {i: (i % 3, length) for i, length in enumerate(read)}


@pytest.mark.parametrize("plan_of", [BucketPlan, PackPlan])
def test_several_classes_of_a_text_share_its_position(plan_of):
    """The rest of a batch is as if each had one class, so the model answers once per text."""
    alone, several = classified(plan_of), classified(plan_of, most=4)
    for one, batch in zip(alone, several, strict=True):
        np.testing.assert_equal(batch[:2], one[:2])
        labels, weight = batch.targets["class"]
        first, counts = one.targets["class"]
        np.testing.assert_array_equal(labels[..., 0], first)
        np.testing.assert_allclose(weight.sum(2), counts, rtol=1e-6)  # thirds are rounded
        for row, column in np.argwhere(counts > 0):
            number = (
                batch.src.inputs[row, batch.src.seg[row] == batch.tgt.seg[row, column]][1] - 100
            )
            mine = 1 + number % 4
            assert labels[row, column, :mine].tolist() == [number % 3 + k for k in range(mine)]
            np.testing.assert_array_equal(weight[row, column] > 0, np.arange(4) < mine)
            assert len({*weight[row, column, :mine].tolist()}) == 1


def test_a_row_of_one_text_has_one_class_position():
    assert {batch.tgt.seg.shape[1] for batch in classified(BucketPlan)} == {1}
