"""Next-sentence prediction: half of the second segments are from elsewhere; only the text tells."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS, EOS
from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Ragged, one_per_row
from transformer_jax.data.batches.batching import PLANS, BatchSource, blank
from transformer_jax.data.codecs.codec import SPECIAL
from transformer_jax.data.objectives.next_sentence import NextSentence
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import TokenStore

MASK, FIRST, SIZE = 4, 10, 40_000
CODEC: Any = SimpleNamespace(size=SIZE, special={**SPECIAL, "mask": MASK})
CONFIG = ObjectiveConfig("masked_lm_nsp", window=19)  # segments of up to 8 pieces
DATA = DataConfig(max_length=48, tokens_per_batch=400, num_buckets=3, rows_divisible_by=4)
NEXT = NextSentence()


def store(documents: list[list[int]]) -> TokenStore:
    """Return documents with sentences of these lengths; each piece is the previous one plus 1."""
    lengths = [n for sentences in documents for n in (*sentences, 0)]
    ids = np.arange(FIRST, FIRST + sum(lengths), dtype=np.int32)
    starts = np.cumsum(lengths) - lengths
    return TokenStore(Ragged.from_lists([]), Ragged(ids, starts, np.array(lengths)))


def documents(count: int, sentences: int = 7) -> list[list[int]]:
    generator = np.random.default_rng(count)
    return [generator.integers(1, 7, sentences).tolist() for _ in range(count)]


def items_of(found: list[list[int]], config: ObjectiveConfig = CONFIG) -> TokenStore:
    return NEXT.items(store(found), config, CODEC)


def whole(items: TokenStore, draw: Draw = Draw(), length: int = 19) -> Batch:  # noqa: B008
    """Return all pairs, one per row."""
    count = len(items)
    return NEXT.examples(items, one_per_row(np.arange(count)), count, length, 1, draw)


def read(batch: Batch) -> list[tuple[list[int], list[int], bool]]:
    """Return (first segment, second segment, whether it follows) as they were before masking."""
    pieces, weight = batch.targets["tokens"]
    ids = np.where(weight > 0, pieces, batch.src.inputs)
    found = []
    for row, column in np.argwhere(batch.tgt.seg > 0):
        at = batch.src.seg[row] == batch.tgt.seg[row, column]
        text, kind, pos = (x[row, at] for x in (ids, batch.src.kind, batch.src.pos))
        assert pos.tolist() == list(range(len(pos)))
        one, two = text[kind == 0].tolist(), text[kind == 1].tolist()
        assert (one[0], one[-1], two[-1]) == (BOS, EOS, EOS)
        assert kind.tolist() == sorted(kind.tolist())
        label = batch.targets["next_sentence"].labels[row, column]
        found.append((one[1:-1], two[:-1], label == 0))
    return found


def test_labels_match_the_texts():
    """A second segment continues where the first ends, or is from another document."""
    sentences = documents(40)
    items = items_of(sentences)
    ends = FIRST + np.cumsum([sum(x) for x in sentences])
    for one, two, follows in read(whole(items, Draw(1, 2))):
        for part in (one, two):
            assert part == list(range(part[0], part[-1] + 1))
            assert len(part) <= 8
        first, second = np.searchsorted(ends, [one[0], two[0]], "right")
        assert first == np.searchsorted(ends, one[-1], "right")  # none spans two documents
        assert (two[0] == one[-1] + 1) == follows == (first == second)


@pytest.mark.parametrize("count", [1, 300])
def test_half_of_the_second_segments_follow(count):
    """Within four standard errors; which ones follow depends on the epoch, reproducibly."""
    items = items_of(documents(count, 2100 // count))
    drawn = [[x[2] for x in read(whole(items, Draw(5, epoch)))] for epoch in (1, 2, 1)]
    assert drawn[0] == drawn[2] != drawn[1]
    shares = np.array(drawn[:2])
    assert abs(shares.mean() - 0.5) < 4 * 0.5 / shares.size**0.5
    both = (shares[0] == shares[1]).mean()  # epochs are independent
    assert abs(both - 0.5) < 4 * 0.5 / shares.shape[1] ** 0.5


def test_second_segments_alone_reveal_nothing():
    """Those from elsewhere are the same segments as the others, each equally often."""
    items = items_of(documents(12))
    own = {tuple(two) for _, two, follows in read(whole(items, Draw(0, 0))) if follows}
    found = Counter()
    for epoch in range(400):
        for _, two, follows in read(whole(items, Draw(0, epoch))):
            own |= {tuple(two)} if follows else set()
            found[tuple(two)] += not follows
    assert {two for two, count in found.items() if count} <= own
    counts = np.array(list(found.values()))
    assert len(counts) == len(items)
    assert (np.abs(counts - 200) < 5 * 200**0.5).all()


def test_no_sentence_is_lost():
    """Every sentence is in a pair, none that fits is cut, and only the last segments of an odd
    number are in two pairs.
    """
    sentences = documents(30, 9)
    items = items_of(sentences)
    pieces = Counter(i for n in range(len(items)) for i in items.src.sequence(n).tolist())
    assert set(pieces) == set(range(FIRST, FIRST + sum(map(sum, sentences))))
    assert set(pieces.values()) <= {1, 2}
    assert sum(count == 2 for count in pieces.values()) <= 8 * len(sentences)
    lengths = np.array([n for x in sentences for n in x])
    begins = {FIRST, *(FIRST + np.cumsum(lengths)).tolist()}
    for number in range(len(items)):
        start = int(items.src.sequence(number)[0])
        assert {start, start + items.split[number]} <= begins


def test_short_documents_and_long_sentences():
    """A document that fits into one segment still gives two; a document of one sentence gives none;
    a sentence longer than a segment is cut.
    """
    items = items_of([[2, 3], [4], [30], [1, 1, 1, 1]])
    assert items.split.tolist() == [2, 8, 8, 2]
    assert items.src.lengths.tolist() == [5, 16, 14, 4]
    assert NEXT.select(items, DATA).dropped == {"sentences alone in a document": 1}
    with pytest.raises(UserError, match=r"a split of 1 pairs .* too small to draw"):
        items_of([[2, 3]])


def test_a_pair_weighs_as_much_as_its_masked_pieces():
    """So the loss, divided by the weight of the pieces, is the sum of both means."""
    batch = whole(items_of(documents(40)))
    hidden = batch.targets["tokens"].weight.sum(1)
    np.testing.assert_array_equal(batch.targets["next_sentence"].weight[:, 0], hidden)
    special = np.isin(batch.src.inputs, [BOS, EOS])
    assert not (batch.targets["tokens"].weight[special] > 0).any()
    may = ((batch.src.seg > 0) & ~special).sum(1)
    np.testing.assert_array_equal(hidden, np.maximum(np.rint(0.15 * may), 1))
    assert not batch.tgt.inputs.any()
    assert batch.main == "tokens"


def test_masked_pieces_cannot_be_read():
    """Except for the tenth that is kept, in its own place."""
    batch = whole(items_of(documents(200)))
    labels, weight = batch.targets["tokens"]
    for row in range(len(labels)):
        for place in np.flatnonzero(weight[row]):
            others = np.delete(batch.src.inputs[row], place)
            assert labels[row, place] not in others


@pytest.mark.parametrize("plan", PLANS)
def test_batches_contain_the_same_pairs(plan):
    """They depend only on the number of the batch and the epoch, packed or not; shapes are those of
    the plan, and fit whatever is drawn.
    """
    items = items_of(documents(30))
    made = PLANS[plan](items, NEXT.select(items, DATA).pairs, DATA, 5)
    source, found = BatchSource(items, made, NEXT), []
    for index in range(len(made), 2 * len(made)):
        shape, batch = made.batch(index)[0], source[index]
        assert batch.src.seg.shape == (shape.rows, shape.src_length)
        assert batch.tgt.seg.shape == (shape.rows, shape.tgt_length)
        for side in (batch.src, batch.tgt):
            for array in side:
                assert array is None or not array[side.seg == 0].any()
        found += read(batch)
        empty = blank(NEXT, shape)
        assert all(x.dtype == np.int32 for x in (*empty.src[:3], empty.src.kind))
    assert sorted(found) == sorted(read(whole(items, Draw(5, 1))))
    rows = {made.batch(i)[1].segment.max() for i in range(len(made))}
    assert (max(rows) > 1) == (plan == "pack")
