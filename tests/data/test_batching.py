"""Invariants of every batch plan, and of the choice of bucket lengths."""

import dataclasses
import hashlib
import itertools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS
from transformer_jax.config import DataConfig
from transformer_jax.data.batches.batch import Batch, Ragged
from transformer_jax.data.batches.batching import (
    PLANS,
    BatchSource,
    BucketPlan,
    PackPlan,
    choose_bounds,
    filled,
    fixed_batches,
    rows_for,
    shapes_from,
)
from transformer_jax.data.batches.mixing import Mixture
from transformer_jax.data.batches.packing import first_fit
from transformer_jax.data.objectives import Translate
from transformer_jax.data.store.token_store import TokenStore

TRANSLATE = Translate()
CONFIG = DataConfig(max_length=40, tokens_per_batch=700, num_buckets=3, rows_divisible_by=4)
EVERY_OTHER = np.arange(0, 300, 2)


@pytest.fixture(params=PLANS)
def plan(request, make_store):
    return PLANS[request.param](make_store(), EVERY_OTHER, CONFIG, 7)


def batches(plan, start: int = 0, count: int | None = None) -> list:
    """Return batches as plain lists, for comparison."""
    found = []
    for index in range(start, start + (len(plan) if count is None else count)):
        shape, placement = plan.batch(index)
        found.append((shape, [field.tolist() for field in placement]))
    return found


def pairs_of(batch: Batch) -> list[tuple[list[int], list[int]]]:
    """Read the pairs back out of a batch."""
    found = []
    for row in range(len(batch.src.inputs)):
        for segment in range(1, int(batch.tgt.seg[row].max(initial=0)) + 1):
            src = batch.src.inputs[row, batch.src.seg[row] == segment]
            tgt = batch.targets["tokens"].labels[row, batch.tgt.seg[row] == segment]
            found.append((src.tolist(), tgt.tolist()))
    return found


def sentences(side, pairs) -> list[list[int]]:
    return [side.sequence(i).tolist() for i in pairs]


# --- every plan ---------------------------------------------------------------------------------


def test_every_pair_appears_exactly_once_in_every_epoch(plan):
    for epoch in range(3):
        seen = [i for _, place in batches(plan, epoch * len(plan)) for i in place[0]]
        assert sorted(seen) == EVERY_OTHER.tolist()


def test_a_batch_depends_only_on_seed_and_index(plan, make_store):
    """Not on earlier requests: resuming is a jump to an index."""
    count = 3 * len(plan)
    expected = batches(plan, 0, count)
    fresh = type(plan)(make_store(), EVERY_OTHER, CONFIG, 7)
    for index in np.random.default_rng(0).permutation(count).tolist():
        assert batches(fresh, index, 1) == [expected[index]]


def test_epochs_and_seeds_have_different_orders(plan, make_store):
    other = type(plan)(make_store(), EVERY_OTHER, CONFIG, 8)
    orders = [batches(plan), batches(plan, len(plan)), batches(other), batches(other, len(other))]
    for one, another in itertools.combinations(orders, 2):
        assert one != another


def test_shapes_are_declared_and_within_the_token_budget(plan):
    for shape, _ in batches(plan, 0, 2 * len(plan)):
        assert shape in plan.shapes
    assert len(plan.shapes) <= CONFIG.num_buckets
    for shape in plan.shapes:
        assert shape.rows * max(shape.src_length, shape.tgt_length) <= CONFIG.tokens_per_batch
        assert shape.rows % CONFIG.rows_divisible_by == 0
        assert shape.rows > 0


@pytest.mark.parametrize("start", [0, 1, 7])
def test_expected_shapes_cover_all_later_batches(plan, start):
    """Even those long after the range that is inspected."""
    expected = shapes_from(plan, start, 10**9)
    assert set(expected) == {shape for shape, _ in batches(plan, start, 5 * len(plan))}
    assert expected[0] == plan.batch(start)[0]
    assert shapes_from(plan, start, start + 1) == expected[:1]


def test_pairs_fit_and_do_not_overlap(plan, make_store):
    store = make_store()
    for shape, (pairs, rows, src_offset, tgt_offset, segment) in batches(plan):
        assert 0 <= min(rows) <= max(rows) < shape.rows
        for side, length, offset in (
            (store.src, shape.src_length, src_offset),
            (store.tgt, shape.tgt_length, tgt_offset),
        ):
            taken = np.zeros((shape.rows, length), int)
            for pair, row, start in zip(pairs, rows, offset, strict=True):
                assert start + side.lengths[pair] <= length
                taken[row, start : start + side.lengths[pair]] += 1
            assert taken.max() == 1
        numbers: dict[int, list[int]] = {}
        for row, number in zip(rows, segment, strict=True):
            numbers.setdefault(row, []).append(number)
        assert all(sorted(x) == list(range(1, len(x) + 1)) for x in numbers.values())


def test_the_batches_of_an_epoch_reproduce_the_text(plan, make_store):
    store = make_store()
    source = BatchSource(store, plan, TRANSLATE)
    found = [pair for i in range(len(plan)) for pair in pairs_of(source[i])]
    expected = zip(
        sentences(store.src, EVERY_OTHER), sentences(store.tgt, EVERY_OTHER), strict=True
    )
    assert sorted(found) == sorted(expected)


def test_every_segment_starts_with_bos(plan, make_store):
    source = BatchSource(make_store(), plan, TRANSLATE)
    for index in range(len(plan)):
        batch = source[index]
        starts = (batch.tgt.pos == 0) & (batch.tgt.seg > 0)
        assert ((batch.tgt.inputs == BOS) == starts).all()


@pytest.mark.parametrize("processes", [2, 4])
def test_processes_together_read_the_rows_of_a_single_process(plan, make_store, processes):
    store = make_store()
    alone = BatchSource(store, plan, TRANSLATE)
    parts = [BatchSource(store, plan, TRANSLATE, i, processes) for i in range(processes)]
    for index in [0, 1, len(plan) - 1, len(plan), 5 * len(plan) + 1]:
        joined = jax.tree.map(lambda *x: np.concatenate(x), *(part[index] for part in parts))
        jax.tree.map(np.testing.assert_array_equal, joined, alone[index])


def test_rows_not_divisible_among_processes_are_rejected(plan, make_store):
    with pytest.raises(UserError, match=r"^config\.data\.rows_divisible_by: .* 3 processes; make"):
        BatchSource(make_store(), plan, TRANSLATE, 0, 3)


def test_padding_share(plan, make_store):
    store = make_store()
    source = BatchSource(store, plan, TRANSLATE)
    segments = [source[i].tgt.seg for i in range(len(plan))]
    padding = sum(int((seg == 0).sum()) for seg in segments)
    total = sum(seg.size for seg in segments)
    assert filled(store, plan) == (total, total - padding)


@pytest.mark.parametrize("kind", PLANS.values())
def test_a_single_pair(kind, make_store):
    plan = kind(make_store([3], [4]), np.array([0]), CONFIG, 0)
    assert len(plan) == 1
    assert batches(plan, 0)[0][1] == [[0], [0], [0], [0], [1]]
    assert batches(plan, 9, 1) == batches(plan, 0)


# --- individual plans ---------------------------------------------------------------------------


def test_a_pair_goes_to_the_shortest_bucket_that_fits_both_sides(make_store):
    store = make_store()
    plan = BucketPlan(store, EVERY_OTHER, CONFIG, 0)
    bounds = [shape.src_length for shape in plan.shapes]
    longest = np.maximum(store.src.lengths, store.tgt.lengths)
    for shape, (pairs, *_) in batches(plan):
        for pair in pairs:
            assert shape.src_length == next(b for b in bounds if b >= longest[pair])
    assert len(plan) == sum(
        -(-sum(shape.src_length == next(b for b in bounds if b >= n) for n in longest[EVERY_OTHER])
          // shape.rows)
        for shape in plan.shapes
    )  # fmt: skip


def test_packing_leaves_less_padding_than_a_single_bucket(make_store):
    store = make_store()
    packed = PackPlan(store, EVERY_OTHER, CONFIG, 0)
    bucket = BucketPlan(store, EVERY_OTHER, dataclasses.replace(CONFIG, num_buckets=1), 0)
    share = {plan: filled(store, plan)[1] / filled(store, plan)[0] for plan in (packed, bucket)}
    assert share[packed] > 0.75 > share[bucket]


@pytest.mark.parametrize(
    ("kind", "mixed", "digest"),
    [
        ("bucket", False, "5152178772bd555a"), ("bucket", True, "531fced7975a57b4"),
        ("pack", False, "5d7bbff3fa32309a"), ("pack", True, "4cddc3d8d2d72162"),
    ],
)  # fmt: skip
def test_plans_do_not_change_between_versions(kind, mixed, digest):
    """Resumed runs rely on this: the order of an epoch must not depend on the version."""
    chance = np.random.default_rng(0)
    src = chance.integers(2, 41, 1000)
    tgt = np.clip(src + chance.integers(-5, 6, 1000), 2, 40)
    texts = (Ragged(np.zeros(0, np.int32), np.cumsum(x) - x, x) for x in (src, tgt))
    mixture = Mixture(np.repeat([0, 1, 2], [600, 300, 100]), np.array([0.5, 1.0, 3.0]))
    plan = PLANS[kind](
        TokenStore(*texts), np.arange(0, 1000, 2), CONFIG, 7, mixture if mixed else None
    )
    hasher = hashlib.blake2b(digest_size=8)
    for index in range(3 * len(plan)):
        shape, place = plan.batch(index)
        hasher.update(repr((tuple(shape), [x.tolist() for x in place])).encode())
    assert hasher.hexdigest() == digest


def packed(order, src, tgt, length) -> list[list[tuple[int, int, int, int]]]:
    """Return the pairs of each row, with their offsets and segments."""
    rows = first_fit(order, src, tgt, length)
    found: list[list] = [[] for _ in rows.first[1:]]
    placed = rows.placed(np.arange(len(found)), src, tgt)
    for row, *item in zip(placed.rows.tolist(), *(x.tolist() for x in (placed.pairs, *placed[2:])),
                          strict=True):  # fmt: skip
        found[row].append(tuple(item))
    return found


def test_a_pair_goes_to_the_first_row_with_room_on_both_sides():
    src, tgt = np.array([5, 6, 4, 1, 8]), np.array([5, 6, 4, 3, 2])
    assert packed(np.arange(5), src, tgt, 10) == [
        [(0, 0, 0, 1), (2, 5, 5, 2)],
        [(1, 0, 0, 1), (3, 6, 6, 2)],  # row 0 has room for 1 source piece, not for 3 target pieces
        [(4, 0, 0, 1)],
    ]


@pytest.mark.parametrize("seed", range(20))
def test_packing_is_first_fit_over_the_64_newest_rows(seed):
    """As in a search pair by pair; also with pairs that are empty or too long for any row."""
    chance = np.random.default_rng(seed)
    length, count = int(chance.integers(2, 300)), 600
    longest = int(chance.integers(1, length + 1 + 20 * (seed % 5 == 0)))
    src, tgt = (chance.integers(seed % 2, longest + 1, count) for _ in range(2))
    order = chance.permutation(count)
    rows: list[list[int]] = []
    for pair in order.tolist():
        for row in rows[-64:]:
            if all(side[[*row, pair]].sum() <= length for side in (src, tgt)):
                row.append(pair)
                break
        else:
            rows.append([pair])
    found = packed(order, src, tgt, length)
    assert [[item[0] for item in row] for row in found] == rows
    for row in found:
        pairs = [pair for pair, *_ in row]
        for number, side in enumerate((src, tgt), 1):
            offsets = np.cumsum([0, *side[pairs[:-1]]]).tolist()
            assert [item[number] for item in row] == offsets
        assert [item[3] for item in row] == list(range(1, len(row) + 1))


# --- lengths and rows ---------------------------------------------------------------------------


def padding(lengths, bounds) -> int:
    return sum(min(b for b in bounds if b >= n) - n for n in lengths)


@settings(deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=15), st.integers(1, 5))
def test_bounds_minimise_padding(lengths, count):
    bounds = choose_bounds(np.array(lengths), count)
    assert bounds == sorted(set(bounds))
    assert len(bounds) <= count
    assert bounds[-1] == max(lengths)
    options = sorted(set(lengths))
    best = min(
        padding(lengths, [*some, options[-1]])
        for some in itertools.combinations(options[:-1], min(count, len(options)) - 1)
    )
    assert padding(lengths, bounds) == best


def test_bounds_by_hand():
    assert choose_bounds(np.array([3]), 8) == [3]
    assert choose_bounds(np.array([2, 2, 2, 9, 10]), 2) == [2, 10]
    assert choose_bounds(np.array([5, 1, 3]), 8) == [1, 3, 5]
    assert choose_bounds(np.array([7, 100_000]), 8) == [7, 100_000]  # no square of the longest


@pytest.mark.parametrize(
    ("tokens", "divisor", "length", "rows"),
    [(700, 4, 40, 16), (700, 4, 7, 100), (700, 8, 40, 16), (160, 4, 40, 4), (4096, 1, 3, 1365)],
)
def test_rows_per_batch(tokens, divisor, length, rows):
    config = DataConfig(max_length=40, tokens_per_batch=tokens, rows_divisible_by=divisor)
    assert rows_for(config, length) == rows


# --- validation ---------------------------------------------------------------------------------


def test_fixed_batches_contain_every_pair_once_sorted_by_length(make_store):
    store = make_store()
    longest = np.maximum(store.src.lengths, store.tgt.lengths)
    lengths = [10, 25, 40]
    found = fixed_batches(store, lengths, 400, 8)
    order = [pair for _, place in found for pair in place.pairs.tolist()]
    assert sorted(order) == list(range(len(store)))
    assert (np.diff(longest[order]) >= 0).all()
    for shape, place in found:
        assert shape.src_length == min(n for n in lengths if n >= longest[place.pairs].max())
        assert shape.rows == 400 // shape.src_length // 8 * 8
        assert len(place.pairs) <= shape.rows


def test_a_fixed_batch_has_rows_even_if_one_row_exceeds_the_budget(make_store):
    ((shape, _),) = fixed_batches(make_store([500], [3]), [500], 400, 8)
    assert shape == (8, 500, 3)
