"""Invariants of every objective: what a position sees, and that each piece is predicted once."""

from collections import Counter
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_jax.base.vocabulary import BOS, EOS, PAD, RESERVED
from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import Batch, Placement, Ragged, Side, one_per_row
from transformer_jax.data.batches.batching import PLANS, BatchSource, fixed_batches
from transformer_jax.data.codecs.codec import SPECIAL
from transformer_jax.data.objectives import OBJECTIVES, Objective, PrefixLM, Translate
from transformer_jax.data.objectives.language_modelling import LanguageModel, PermutationLM
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import Frame, TokenStore

DATA = DataConfig(max_length=24, tokens_per_batch=200, num_buckets=3, rows_divisible_by=4)
# A window of 7 cuts texts of up to 12 pieces in two.
CONFIGS = {name: ObjectiveConfig(name) for name in OBJECTIVES} | {
    "language_model": ObjectiveConfig("language_model", window=7),
    "text_prefix_lm": ObjectiveConfig("text_prefix_lm", window=7),
    "text_continuation": ObjectiveConfig("text_continuation", window=7),
    "permutation_lm": ObjectiveConfig("permutation_lm", window=7, partial_prediction=2),
    "masked_lm": ObjectiveConfig("masked_lm", window=7, mask_rate=0.3),
    "span_corruption": ObjectiveConfig("span_corruption", window=7, noise_density=0.4),
    "denoising": ObjectiveConfig("denoising", window=7, token_deletion_rate=0.2),
}
# Classes, pairs of segments, preferences and a model's own answers are tested elsewhere:
# test_reading.py, test_next_sentence.py, test_preferences.py, test_reinforcement.py.
OF_PIECES = [
    name for name, objective in OBJECTIVES.items()
    if objective.predicts == ("tokens",) and name not in ("prefer", "reinforce")
]  # fmt: skip
# PARTLY predict only some of the pieces; CORRUPTED also predict sentinels and EOS that they read.
CONTINUED = ["text_prefix_lm", "text_continuation"]
PARTLY = {"chat", "permutation_lm", "masked_lm", "span_corruption", *CONTINUED}
CORRUPTED = {"span_corruption", "denoising", "text_continuation"}
CODEC: Any = SimpleNamespace(
    size=3000, special={**SPECIAL, "mask": 4}, decode=lambda ids: "." if ids[0] % 5 == 0 else "x",
    piece_id=lambda piece: 4 if piece == "<mask>" else 10 + int(piece[10:-1]),
)  # fmt: skip
TEXT = 1000  # the pieces of texts start here


def counted(lengths, first: int, frame: Frame) -> Ragged:
    """Return texts whose pieces count up from `first`, so that none occurs twice."""
    numbers = np.split(np.arange(first, first + sum(lengths)), np.cumsum(lengths)[:-1])
    if frame.cut == "turns":  # a piece in three is read, as is the first of each text
        numbers = [np.where(np.arange(len(text)) % 3 == 0, text, ~text) for text in numbers]
    return Ragged.from_lists([[BOS] * frame.bos + text.tolist() for text in numbers])


@pytest.fixture(params=OF_PIECES)
def name(request) -> str:
    return request.param


@pytest.fixture
def objective(name) -> Objective:
    return OBJECTIVES[name]


@pytest.fixture
def items(name, objective) -> TokenStore:
    generator = np.random.default_rng(3)
    src, tgt = generator.integers(2, 13, (2, 60)).tolist()
    frame = objective.frame(CONFIGS[name])
    store = TokenStore(counted(src, 2000, frame), counted(tgt, 1000, frame))
    return objective.items(store, CONFIGS[name], CODEC)


@pytest.fixture(params=PLANS)
def source(request, objective, items) -> BatchSource:
    return batches(request.param, objective, items)


def batches(plan: str, objective: Objective, items: TokenStore) -> BatchSource:
    return BatchSource(items, epoch_of(plan, objective, items), objective)


def epoch_of(plan: str, objective: Objective, items: TokenStore):
    return PLANS[plan](items, objective.select(items, DATA).pairs, DATA, 5)


def side_of(batch: Batch) -> Side:
    """Return the side at whose positions pieces are predicted: the target, if there is one."""
    return batch.src if batch.tgt is None else batch.tgt


def rows(batch: Batch) -> list[tuple[Side, np.ndarray, np.ndarray]]:
    """Return (side, labels, weights) of each segment of that side."""
    found, whole = [], side_of(batch)
    labels, weight = batch.targets["tokens"]
    for row in range(len(labels)):
        for segment in range(1, int(whole.seg[row].max(initial=0)) + 1):
            at = whole.seg[row] == segment
            side = Side(*(None if x is None else x[row, at] for x in whole))
            found.append((side, labels[row, at], weight[row, at]))
    return found


def rank_of(side: Side, objective: Objective) -> np.ndarray:
    """Return the ranks, or those that the order implies if there are none."""
    if side.rank is not None:
        return side.rank
    return side.pos if objective.order == "causal" else 0 * side.pos


def predicted(batch: Batch) -> list[int]:
    """Return the pieces of the text that are predicted."""
    labels, weight = batch.targets["tokens"]
    return labels[(weight > 0) & (labels >= TEXT)].tolist()


def once(items: TokenStore, name: str, seen: Counter) -> dict[int, int]:
    """Return {piece: 1} for all pieces, or for those seen if only a part is predicted."""
    ids = items.tgt.ids if len(items.tgt.ids) else items.src.ids
    every = np.where(ids < 0, ~ids, ids)[ids != BOS].tolist()
    assert seen, "nothing is predicted"
    return {piece: 1 for piece in every if piece in seen or name not in PARTLY}


def epoch(source: BatchSource) -> list[Batch]:
    return [source[i] for i in range(len(source._plan))]


# --- every objective ----------------------------------------------------------------------------


def test_no_position_sees_the_piece_it_predicts(source, name, objective):
    """The weight is 0 wherever a query sees the piece that it predicts, on either side, except for
    masked pieces that are kept, each in its own place only, for what noise leaves of a text, and
    for sentinels and EOS.
    """
    for batch in epoch(source):
        across = batch.src is not None and batch.tgt is not None and name != "denoising"
        read = set(batch.src.inputs.ravel().tolist()) if across else set()
        for side, labels, weight in rows(batch):
            rank = rank_of(side, objective)
            for place in np.flatnonzero(weight):
                label, own = labels[place], rank[place]
                seen = rank < own if objective.strict else rank <= own
                if objective.order == "all":
                    seen = seen & (np.arange(len(rank)) != place)
                assert label not in side.inputs[seen]
                assert seen.any() or not objective.strict
                assert label not in read or (label < TEXT and name in CORRUPTED)


def test_ranks_agree_with_the_order(source, objective):
    for batch in epoch(source):
        rank, pos = side_of(batch).rank, side_of(batch).pos
        if objective.order == "ranked":
            assert rank.shape == pos.shape
            assert rank.dtype == np.int32
        elif rank is not None:
            assert (rank == (pos if objective.order == "causal" else 0)).all()


def test_every_piece_is_predicted_once_per_epoch(source, items, name):
    """None is lost between windows, and none is repeated; no item is dropped here."""
    seen = Counter(label for batch in epoch(source) for label in predicted(batch))
    assert seen == once(items, name, seen)


def test_each_position_predicts_the_next_piece(source, name, objective):
    """In every order that hides what comes later."""
    for batch in epoch(source):
        for side, labels, weight in rows(batch):
            at = (weight > 0) & (
                (name not in CORRUPTED) | ((labels >= TEXT) & (side.inputs >= TEXT))
            )
            assert (objective.order == "all" or objective.strict) or (
                (side.inputs[at] == labels[at] - 1) | (side.inputs[at] == BOS)
            ).all()


def test_positions_count_from_the_start_of_each_segment(source):
    for batch in epoch(source):
        for side in (batch.src, batch.tgt):
            for row in range(0 if side is None else len(side.pos)):
                for segment in range(1, int(side.seg[row].max()) + 1):
                    pos = side.pos[row, side.seg[row] == segment]
                    assert pos.tolist() == list(range(len(pos)))


def test_shapes_are_those_of_the_plan(source):
    """An absent side has length 0: programs are compiled before there are batches."""
    for i, batch in enumerate(epoch(source)):
        rows, *lengths = source._plan.batch(i)[0]
        for side, length in zip(batch[:2], lengths, strict=True):
            assert length == 0 if side is None else side.seg.shape == (rows, length)


def test_padding_is_empty(source):
    for batch in epoch(source):
        for side in (batch.src, batch.tgt):
            for array in () if side is None else side:
                assert array is None or not array[side.seg == 0].any()
        labels, weight = batch.targets["tokens"]
        assert not weight[side_of(batch).seg == 0].any()
        assert not labels[weight == 0].any()
        assert (labels[weight > 0] != PAD).all()


def test_packing_does_not_change_the_examples(objective, items):
    """In a row of its own or a shared one: the same inputs, positions, ranks and labels."""

    def examples(plan: str) -> list:
        found = [row for batch in epoch(batches(plan, objective, items)) for row in rows(batch)]
        return sorted(
            [None if x is None else x.tolist() for x in (*side._replace(seg=None), *rest)]
            for side, *rest in found
        )

    assert examples("bucket") == examples("pack")
    packed = batches("pack", objective, items)
    assert max(int(side_of(batch).seg.max()) for batch in epoch(packed)) > 1


@pytest.mark.parametrize("plan", PLANS)
def test_a_batch_depends_only_on_seed_and_number(plan, objective, items):
    source = batches(plan, objective, items)
    count = 2 * len(source._plan)
    expected = [source[i] for i in range(count)]
    fresh = batches(plan, objective, items)
    for i in np.random.default_rng(0).permutation(count).tolist():
        jax.tree.map(np.testing.assert_array_equal, fresh[i], expected[i])


def test_validation_predicts_every_piece_once(name, objective, items):
    """Of all items, including those that training drops."""
    longest = max(int(side.max()) for side in items.lengths)
    seen = Counter(
        label
        for shape, placement in fixed_batches(items, [longest // 2, longest], 64, 4)
        for label in predicted(objective.examples(items, placement, *shape))
    )
    assert seen == once(items, name, seen)


# --- individual objectives ----------------------------------------------------------------------

texts = st.lists(st.lists(st.integers(RESERVED, 9), max_size=9), min_size=1, max_size=5)


@settings(deadline=None)
@given(texts, st.integers(1, 10), st.sampled_from(["line", "file", "joined"]))
def test_consecutive_windows_reproduce_the_text(documents, window, document):
    """Their labels join to it, with EOS at line ends; each input begins with the previous piece."""
    config, objective = ObjectiveConfig("language_model", window, document), LanguageModel()
    frame = objective.frame(config)
    whole = [[BOS] * frame.bos + text + [EOS] * frame.eos for text in documents]
    store = TokenStore(Ragged.from_lists([]), Ragged.from_lists(whole))
    if document == "joined":
        whole = [[i for text in whole for i in text]]
    items = objective.items(store, config)
    batch = objective.examples(items, one_per_row(np.arange(len(items))), len(items), 1, window)
    expected = [
        (text[i : i + window][: len(text) - 1 - i], text[i + 1 : i + 1 + window])
        for text in whole
        for i in range(0, len(text) - 1, window)
    ]
    assert [(side.inputs.tolist(), labels.tolist()) for side, labels, _ in rows(batch)] == expected
    joined = [label for _, labels in expected for label in labels]
    assert joined == [i for text in whole for i in text[1:]]
    assert items.tgt.ids is store.tgt.ids  # no copy
    dropped = len(items) - len(objective.select(items, DATA).pairs)
    assert dropped == (sum(not text for text in documents) if document == "line" else 0)


def test_a_prefix_lm_by_hand():
    """Two pairs in one row, a third in the next."""
    src = Ragged.from_lists([[11, 12, EOS], [21, EOS], [31, EOS]])
    tgt = Ragged.from_lists([[51, EOS], [61, 62, EOS], [71, EOS]])
    objective = PrefixLM()
    items = objective.items(TokenStore(src, tgt), CONFIGS["prefix_lm"])
    assert [x.tolist() for x in items.lengths] == [[0, 0, 0], [5, 5, 4]]
    place = Placement(*map(np.array, ([1, 0, 2], [0, 0, 1], [0, 0, 0], [0, 5, 0], [1, 2, 1])))
    batch = objective.examples(items, place, 2, 11, 11)
    assert batch.src is None
    assert batch.tgt.inputs[0].tolist() == [21, EOS, BOS, 61, 62, 11, 12, EOS, BOS, 51, 0]
    assert batch.targets["tokens"].labels[0].tolist() == [0, 0, 61, 62, EOS, 0, 0, 0, 51, EOS, 0]
    assert batch.targets["tokens"].weight[0].tolist() == [0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 0]
    assert batch.tgt.pos[0].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0]
    assert batch.tgt.seg[0].tolist() == [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 0]
    assert batch.tgt.rank[0].tolist() == [0, 0, 1, 2, 3, 0, 0, 0, 1, 2, 0]
    assert batch.tgt.inputs[1].tolist() == [31, EOS, BOS, 71] + [0] * 7
    arrays = [x for x in batch.tgt if x is not None]
    assert {x.dtype for x in arrays} == {np.dtype(np.int32)}


def test_the_maximum_length_applies_to_prefix_and_target_together():
    pair = TokenStore(Ragged.from_lists([[5] * 12, [5] * 13]), Ragged.from_lists([[6] * 12] * 2))
    items = PrefixLM().items(pair, CONFIGS["prefix_lm"])
    assert PrefixLM().select(items, DATA).pairs.tolist() == [0]
    assert Translate().select(pair, DATA).pairs.tolist() == [0, 1]


def halves(name: str, text: list[int], draw: Draw) -> list[tuple[list[int], list[int]]]:
    """Return (prefix, rest) of each window of a text."""
    config, objective = CONFIGS[name], OBJECTIVES[name]
    begun = [BOS] * objective.frame(config).bos + text
    store = TokenStore(Ragged.from_lists([]), Ragged.from_lists([begun]))
    items = objective.items(store, config)
    place = one_per_row(np.arange(len(items)))
    batch = objective.examples(items, place, len(items), config.window, config.window, draw)
    found = []
    for row, (side, labels, weight) in enumerate(rows(batch)):
        rest = labels[weight > 0].tolist()
        if batch.src is None:
            prefix = len(labels) - len(rest)
            assert side.rank.tolist() == [0] * prefix + list(range(1, len(rest) + 1))
            found.append((side.inputs[: prefix + 1].tolist(), rest))
        else:
            (*read, last), (*written, end) = batch.src.inputs[row, batch.src.seg[row] > 0], rest
            assert last == end == EOS
            found.append(([int(piece) for piece in read], written))
    return found


@pytest.mark.parametrize("name", CONTINUED)
def test_a_window_is_split_into_a_prefix_and_the_rest(name):
    """The rest begins anywhere after the first piece, equally often; no piece is lost, and none is
    repeated except those in which windows of language models overlap.
    """
    text, overlap = list(range(TEXT, TEXT + 20)), name == "text_prefix_lm"
    drawn = [halves(name, text, Draw(7, epoch)) for epoch in range(600)]
    for windows in drawn:
        assert [i for first, rest in windows for i in [*first[overlap:], *rest]] == text
        assert all(first and rest for first, rest in windows)
    counts = Counter(len(windows[0][1]) for windows in drawn)
    ways = 6 + overlap
    assert counts.keys() == {*range(1, ways + 1)}
    assert max(abs(count - 600 / ways) for count in counts.values()) < 45  # 4.5 times sqrt(100)


def test_a_language_model_has_no_source():
    """Neither in its batches nor in the lengths of a plan."""
    store = TokenStore(Ragged.from_lists([]), Ragged.from_lists([[BOS, *range(4, 20), EOS]]))
    items = LanguageModel().items(store, CONFIGS["language_model"])
    assert [x.tolist() for x in items.lengths] == [[0, 0, 0], [7, 7, 3]]
    source = batches("bucket", LanguageModel(), items)
    assert {batch.src for batch in epoch(source)} == {None}


def permuted(draw: Draw, lengths=(1, 2, 7, 13), one_in: int = 3) -> Batch:
    """Return texts of these lengths after BOS, one per row."""
    texts = Ragged.from_lists([[BOS, *range(10, 10 + n)] for n in lengths])
    config = ObjectiveConfig("permutation_lm", 14, partial_prediction=one_in)
    items = PermutationLM().items(TokenStore(Ragged.from_lists([]), texts), config)
    return PermutationLM().examples(items, one_per_row(np.arange(4)), 5, 1, 14, draw)


def test_the_last_pieces_of_a_random_order_are_predicted():
    """One in three, at least one; they have ranks 1, 2, and so on, all others 0."""
    batch = permuted(Draw(1, 2))
    for row, count in enumerate((1, 1, 2, 4, 0)):
        rank, weight = batch.tgt.rank[row], batch.targets["tokens"].weight[row]
        assert sorted(rank[rank > 0].tolist()) == list(range(1, count + 1))
        np.testing.assert_array_equal(weight > 0, rank > 0)
    labels, _ = batch.targets["tokens"]
    np.testing.assert_array_equal(labels, np.where(batch.tgt.rank > 0, batch.tgt.inputs, 0))
    assert batch.tgt.inputs[3].tolist() == [BOS, *range(10, 23)]


def test_orders_are_redrawn_every_epoch():
    """And every piece is equally likely at every place of the order."""
    one, same, other = (permuted(Draw(1, epoch)).tgt.rank for epoch in (2, 2, 3))
    np.testing.assert_array_equal(one, same)
    assert (one != other).any()
    ranks = np.stack([permuted(Draw(7, epoch), one_in=1).tgt.rank[2, 1:8] for epoch in range(700)])
    counts = np.stack([(ranks == place).sum(0) for place in range(1, 8)])  # 100 each, +- 9
    assert (np.abs(counts - 100) < 45).all()
    pairs = Counter(zip(ranks[:, 0].tolist(), ranks[:, 1].tolist(), strict=True))
    assert len(pairs) == 42  # in 700 draws, 17 of each of the 42 pairs are expected
