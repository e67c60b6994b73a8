"""Span corruption and denoising: sources and targets, by counting and by hand."""

import itertools
import re
from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS, EOS, OURS, PAD
from transformer_jax.config import DataConfig, ObjectiveConfig, TokenizerConfig
from transformer_jax.data.batches.batch import Batch, Placement, Ragged, one_per_row
from transformer_jax.data.batches.batching import BucketPlan
from transformer_jax.data.codecs.codec import SPECIAL
from transformer_jax.data.codecs.pair import CODECS
from transformer_jax.data.codecs.utf8 import train
from transformer_jax.data.objectives.corrupting import Denoising, SpanCorruption
from transformer_jax.data.objectives.noise import Keys, infilled, parts_of, permuted
from transformer_jax.data.objectives.noise import Texts as Many
from transformer_jax.data.objectives.spans import Spans
from transformer_jax.data.random import Draw
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.decoding.text.prompts import PROMPTS

MASK, STOP, FIRST, TEXT = 4, 5, 100, 1000  # <mask>, full stop, <extra_id_0>, first piece of a text
CODEC: Any = SimpleNamespace(
    size=9000, special={**SPECIAL, "mask": MASK},
    decode=lambda ids: "." if ids[0] == STOP else "x",
    piece_id=lambda piece: MASK if piece == "<mask>" else FIRST + int(piece[10:-1]),
)  # fmt: skip
NOTHING = Ragged.from_lists([])
SETTINGS = {"span_corruption": SpanCorruption(), "denoising": Denoising()}


def items_of(lists: list[list[int]], name: str, **fields: Any) -> TokenStore:
    config = ObjectiveConfig(name, **fields)
    return SETTINGS[name].items(TokenStore(NOTHING, Ragged.from_lists(lists)), config, CODEC)


def batch_of(items: TokenStore, name: str, draw: Draw, placement: Placement | None = None) -> Batch:
    """Return all items, one per row."""
    longest = items.sides(int(np.maximum(*items.lengths).max()))
    place = one_per_row(np.arange(len(items))) if placement is None else placement
    return SETTINGS[name].examples(items, place, len(items), *longest, draw)


def sides(batch: Batch) -> list[tuple[list[int], list[int]]]:
    """Return the source and the target of each row, without padding."""
    labels = batch.targets["tokens"].labels
    return [
        (read[read != PAD].tolist(), written[written != PAD].tolist())
        for read, written in zip(batch.src.inputs, labels, strict=True)
    ]


def counted(*lengths: int) -> list[list[int]]:
    """Return texts in which no piece occurs twice."""
    first = np.cumsum([TEXT, *lengths])
    return [list(range(a, a + n)) for a, n in zip(first, lengths, strict=False)]


def corrupted(lengths: list[int], draw: Draw = Draw(), **fields: Any) -> list:  # noqa: B008
    fields = {"window": 600, **fields}
    return sides(
        batch_of(items_of(counted(*lengths), "span_corruption", **fields), "span_corruption", draw)
    )


# --- spans --------------------------------------------------------------------------------------


def authors(length: int, density: float, mean: float) -> tuple[int, int]:
    """Return (removed pieces, spans) as the paper's code computes them, in scalars for one text."""
    lost = round(float(np.float32(length) * np.float32(density)))
    lost = min(max(lost, 1), length - 1)
    return lost, max(round(float(np.float32(lost) / np.float32(mean))), 1)


def test_noise_and_span_counts_match_the_authors_code():
    for density, mean in ((0.15, 3.0), (0.15, 8.0), (0.5, 3.0), (0.1, 1.0)):
        lengths = np.arange(2, 1500)
        expected = [authors(n, density, mean) for n in lengths.tolist()]
        found = np.stack(Spans(density, mean).of(lengths), axis=1)
        assert [tuple(row) for row in found.tolist()] == expected


@pytest.mark.parametrize(
    ("window", "text", "written"), [(512, 568, 114), (128, 141, 29), (256, 284, 58)]
)
def test_window_lengths_match_the_published_ones(window, text, written):
    """A window of text is as long as fills the source; the published pairs of lengths."""
    spans = Spans()
    assert spans.window(window) == text
    assert [int(n) for n in spans.sides(np.array(text))] == [window, written]
    items = items_of([list(range(TEXT, TEXT + 3 * text + 9))], "span_corruption", window=window)
    assert items.tgt.lengths.tolist() == [text] * 3 + [9]
    assert items.sides(window) == (window, written)


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(0, 99),
    st.sampled_from([0.15, 0.5, 0.9]), st.sampled_from([1.0, 3.0, 7.5]),
)  # fmt: skip
def test_source_and_target_together_restore_the_text(lengths, epoch, density, mean):
    """Each sentinel of the source stands for what follows it in the target; the sides have the
    stated lengths, and no piece of the text is on both.
    """
    fields = {"noise_density": density, "mean_span_length": mean, "sentinels": 600}
    spans = Spans(density, mean)
    for text, (read, written) in zip(
        counted(*lengths), corrupted(lengths, Draw(3, epoch), **fields), strict=True
    ):
        assert (read[-1], written[-1]) == (EOS, EOS)
        behind: dict[int, list[int]] = {}
        for piece in written[:-1]:
            if piece < TEXT:
                assert piece == FIRST + len(behind)  # in order, each once
                behind[piece] = []
            else:
                behind[max(behind)].append(piece)
        filled = [[piece] if piece >= TEXT else behind[piece] for piece in read[:-1]]
        assert list(itertools.chain(*filled)) == text
        assert not {x for x in written if x >= TEXT} & set(read)
        assert (len(read), len(written)) == tuple(int(n) for n in spans.sides(np.array(len(text))))
        if len(text) > 1:
            assert read[0] >= TEXT
            assert read[-2] < TEXT  # a text ends with a removed span
            assert all(behind.values())
            assert not any(a < TEXT and b < TEXT for a, b in itertools.pairwise(read[:-1]))


def test_span_corruption_by_hand(monkeypatch):
    """The result for 12 pieces of which the third, fourth, eighth and last two are removed."""
    text = list(range(TEXT, TEXT + 12))
    items = items_of([text], "span_corruption", noise_density=0.42, mean_span_length=5 / 3)
    monkeypatch.setattr(
        "transformer_jax.data.objectives.spans.parts_of",
        lambda total, *_: np.array([2, 1, 2] if total == [5] else [2, 3, 2]),
    )
    ((read, written),) = sides(batch_of(items, "span_corruption", Draw()))
    one, two, three = range(FIRST, FIRST + 3)
    assert read == [*text[:2], one, *text[4:7], two, *text[8:10], three, EOS]
    assert written == [one, *text[2:4], two, text[7], three, *text[10:], EOS]


def reference_mask(length: int, density: float, mean: float, generator: Any) -> np.ndarray:
    """Return T5's noise mask by its definition: both totals are split at random into equally many
    parts, by shuffling marks among the gaps, and parts alternate, beginning with a kept one.
    """
    lost, spans = authors(length, density, mean)

    def parts(total: int) -> list[int]:
        marks = generator.permutation([1] * (spans - 1) + [0] * (total - spans))
        first = [0, *marks.tolist()]
        return list(Counter(np.cumsum(first).tolist()).values())

    mask: list[bool] = []
    for kept, gone in zip(parts(length - lost), parts(lost), strict=True):
        mask += [False] * kept + [True] * gone
    return np.array(mask)


def test_masks_have_the_distribution_of_the_authors_code():
    """4 of 12 pieces are removed, in 2 spans: 21 masks, each as likely as in the authors' code."""
    density, mean, count = 0.34, 2.0, 4000
    generator = np.random.default_rng(0)
    theirs = Counter(
        tuple(reference_mask(12, density, mean, generator).tolist()) for _ in range(count)
    )
    texts = Many(np.zeros(12 * count, int), np.repeat(np.arange(count), 12), np.arange(count))
    lost, _, _ = Spans(density, mean).lost(texts, Draw(1, 2))
    ours = Counter(tuple(row) for row in lost.reshape(count, 12).tolist())
    assert ours.keys() == theirs.keys()
    assert len(ours) == 21  # 7 ways to split the kept pieces times 3 to split the removed ones
    for masks in (ours, theirs):
        chi2 = sum((n - count / 21) ** 2 / (count / 21) for n in masks.values())
        assert chi2 < 45  # 20 degrees of freedom, p = 0.001


def test_draws_change_with_the_epoch_and_are_reproducible():
    one, same, other = (corrupted([40, 50], Draw(1, epoch)) for epoch in (2, 2, 3))
    assert one == same != other
    assert corrupted([40, 50], Draw(2, 2)) != one
    items = items_of(counted(40, 50), "span_corruption", window=600)
    alone = sides(batch_of(items, "span_corruption", Draw(1, 2), one_per_row(np.array([1]))))
    assert alone[0] == one[1]  # whatever else is in the batch


def test_each_side_of_a_bucket_is_as_long_as_its_texts_need():
    """Targets are far shorter than sources, and take no more room than they need."""
    lengths = np.random.default_rng(0).integers(20, 130, 300).tolist()
    items = items_of(counted(*lengths), "span_corruption", window=128)
    config = DataConfig(max_length=128, tokens_per_batch=2048, num_buckets=4)
    plan = BucketPlan(items, np.arange(300), config, 0)
    for index in range(len(plan)):
        shape, placement = plan.batch(index)
        read, written = (side[placement.pairs].max() for side in items.lengths)
        assert read <= shape.src_length
        assert written <= shape.tgt_length <= shape.src_length // 3


def test_missing_sentinels_and_masks_are_rejected():
    fields = {"window": 512, "sentinels": 27}
    with pytest.raises(UserError, match=r"sentinels=27: .*window=512 loses up to 28 spans; raise"):
        items_of(counted(9), "span_corruption", **fields)
    config, store = ObjectiveConfig("span_corruption", 64), TokenStore(NOTHING, NOTHING)
    with pytest.raises(UserError, match=r"the tokenizer has no piece <extra_id_0>; one trained"):
        SpanCorruption().items(store, config, train(TokenizerConfig(), []))
    with pytest.raises(UserError, match=r"'denoising': the tokenizer has no piece <mask>; one"):
        Denoising().items(store, ObjectiveConfig("denoising"), train(TokenizerConfig(), []))
    codec = train(TokenizerConfig(), [], config.symbols)
    items: Any = SpanCorruption().items(store, config, codec)
    assert codec.pieces(items.spans.sentinels) == [f"<extra_id_{i}>" for i in range(3)]


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("document", ["line", "joined"])
def test_windows_lose_no_piece(name, document):
    lists = [text + [EOS] * (document == "joined") for text in counted(30, 1, 47, 90)]
    items = items_of(lists, name, document=document, window=20)
    windows = [items.tgt.sequence(i).tolist() for i in range(len(items))]
    assert list(itertools.chain(*windows)) == list(itertools.chain(*lists))
    assert SETTINGS[name].frame(ObjectiveConfig(name, document=document)).eos is (
        document == "joined"
    )
    assert (np.maximum(*items.lengths) <= 20).all()


# --- noise --------------------------------------------------------------------------------------

PLAIN = {"sentence_permutation_rate": 0.0, "text_infilling_rate": 0.0}


def noisy(lists: list[list[int]], draw: Draw = Draw(), **fields: Any) -> list:  # noqa: B008
    items = items_of(lists, "denoising", **{"window": 600, **fields})
    return sides(batch_of(items, "denoising", draw))


def many(count: int, length: int) -> Many:
    return Many(
        np.arange(TEXT, TEXT + count * length),
        np.repeat(np.arange(count), length),
        np.arange(count),
    )


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=5), st.integers(0, 99),
    st.sampled_from([0.0, 0.3, 0.9]), st.sampled_from([0.0, 0.5]),
)  # fmt: skip
def test_the_target_is_the_whole_text_and_the_source_part_of_it(lengths, epoch, infilling, other):
    fields = {
        "text_infilling_rate": infilling, "token_masking_rate": other, "token_deletion_rate": other,
        "document_rotation_rate": other, "sentence_permutation_rate": other,
    }  # fmt: skip
    lists = [[STOP if i % 4 == 3 else i for i in text] for text in counted(*lengths)]
    for text, (read, written) in zip(lists, noisy(lists, Draw(1, epoch), **fields), strict=True):
        assert written == [*text, EOS]
        assert read[-1] == EOS
        assert len(read) <= len(written)
        kept = Counter(read[:-1]) - Counter({MASK: len(read)})
        assert not kept - Counter(text)


def test_without_noise_the_source_is_the_text():
    ((read, written),) = noisy(counted(50), **PLAIN)
    assert read == written


def test_masking_and_deletion_rates():
    """Of 8,000 pieces, within four standard errors; unmasked pieces stay in place."""
    lists = counted(*[400] * 20)
    for field, rate in (("token_masking_rate", 0.15), ("token_deletion_rate", 0.25)):
        kept = 0
        for text, (read, _) in zip(lists, noisy(lists, **PLAIN, **{field: rate}), strict=True):
            kept += sum(piece >= TEXT for piece in read)
            if field == "token_masking_rate":
                assert [a if b != MASK else MASK for a, b in zip(text, read, strict=False)] == (
                    read[:-1]
                )
            else:
                assert read[:-1] == sorted(set(read[:-1]) & set(text))
        assert abs(kept / 8000 - 1 + rate) < 4 * (rate * (1 - rate) / 8000) ** 0.5


def test_lengths_of_infilled_spans_are_poisson_distributed():
    """30 % of each text is removed. Spans, except the last one of a text, which is cut, have
    Poisson lengths, including 0, in texts so long that no MASK makes them longer than they were.
    """
    count, length, mean = 40, 900, 3.0
    texts = many(count, length)
    found = infilled(texts, 0.3, mean, MASK, Draw(5), 0)
    gaps: Counter[int] = Counter()
    for owner in range(count):
        row = found.ids[found.owner == owner]
        assert (row != MASK).sum() == length - 270
        # A run of masks replaces what lay between its neighbours: only runs of one are unambiguous.
        kept = np.flatnonzero(row != MASK)
        for a, b in itertools.pairwise(kept.tolist()):
            if b - a == 2:
                gaps[int(row[b] - row[a]) - 1] += 1
    total = sum(gaps.values())
    expected = [np.exp(-mean) * mean**k / np.prod(np.arange(1, k + 1)) for k in range(8)]
    for k, share in enumerate(expected):
        assert abs(gaps[k] / total - share) < 4 * (share / total) ** 0.5 + 0.003, k
    masks = (found.ids == MASK).sum() / count
    assert abs(masks - 270 / mean) < 2


def test_pieces_away_from_the_ends_are_equally_likely_to_be_removed():
    """Those near the ends less so: a span that held one would extend beyond the text."""
    hits = np.zeros(20)
    for epoch in range(600):
        found = infilled(many(1, 20), 0.3, 3.0, MASK, Draw(1, epoch), 0)
        hits[[x - TEXT for x in range(TEXT, TEXT + 20) if x not in found.ids]] += 1
    assert hits.sum() == 600 * 6
    assert (np.abs(hits[4:-4] - hits[4:-4].mean()) < 4 * (600 * 0.3 * 0.7) ** 0.5).all()
    assert abs(hits[:10].sum() - 1800) < 150


def test_sentences_are_permuted_whole():
    """They end with full stops, the last one with its text; all orders are equally likely."""
    text = [10, 11, STOP, 20, STOP, STOP, 30, 31, 32]
    sentences = [[10, 11, STOP], [20, STOP, STOP], [30, 31, 32]]
    orders: Counter[tuple] = Counter()
    drawn = (noisy([text] * 60, Draw(2, epoch), text_infilling_rate=0.0) for epoch in range(10))
    for read, _ in itertools.chain(*drawn):
        order = sorted(range(3), key=lambda i: read.index(sentences[i][0]))
        assert read[:-1] == [piece for i in order for piece in sentences[i]]
        orders[tuple(order)] += 1
    assert len(orders) == 6
    assert all(abs(n - 100) < 40 for n in orders.values())
    # Half of four sentences change places, the others stay.
    ends = np.arange(99) == STOP
    lines = Many(np.array([10, STOP, 20, STOP, 30, STOP, 40]), np.zeros(7, int), np.zeros(1, int))
    moved = Counter()
    for epoch in range(200):
        found = permuted(lines, 0.5, ends, Draw(0, epoch), 0).ids.tolist()
        assert sorted(found) == sorted(lines.ids.tolist())
        first = [x for x in found if x != STOP]
        moved[sum(a != b for a, b in zip(first, [10, 20, 30, 40], strict=True))] += 1
    assert moved.keys() == {0, 2}


def test_documents_are_rotated_to_begin_with_any_piece():
    starts: Counter[int] = Counter()
    text = counted(10)[0]
    drawn = [noisy([text] * 50, Draw(3, e), **PLAIN, document_rotation_rate=1.0) for e in range(10)]
    for read, _ in itertools.chain(*drawn):
        starts[read[0]] += 1
        at = text.index(read[0])
        assert read == [*text[at:], *text[:at], EOS]
    assert len(starts) == 10
    drawn = [noisy([text] * 40, Draw(3, e), **PLAIN, document_rotation_rate=0.5) for e in range(10)]
    assert abs(sum(read[:-1] == text for read, _ in itertools.chain(*drawn)) - 220) < 50


def test_totals_are_split_in_every_way_equally_often():
    """5 into 3 parts has 6 ways; 0 into 2 parts gives two zeros."""
    numbers = np.arange(3000)
    totals, counts = (np.tile(x, 1000) for x in ([5, 0, 2], [3, 2, 1]))
    found = parts_of(totals, counts, Keys(Draw(), numbers, 0)).reshape(1000, 6)
    assert (found[:, 3:] == [0, 0, 2]).all()
    ways = Counter(map(tuple, found[:, :3].tolist()))
    assert set(ways) == {way for way in itertools.product(range(1, 4), repeat=3) if sum(way) == 5}
    assert all(abs(n - 1000 / 6) < 60 for n in ways.values())


@pytest.mark.parametrize("name", SETTINGS)
def test_bos_and_eos_are_those_of_the_target_codec(name):
    store = TokenStore(NOTHING, Ragged.from_lists([[TEXT, TEXT + 1]]), OURS._replace(bos=0, eos=7))
    items = SETTINGS[name].items(store, ObjectiveConfig(name), CODEC)
    batch = batch_of(items, name, Draw())
    assert batch.tgt.inputs[0, 0] == 0 != BOS
    assert [side[-1] for side in sides(batch)[0]] == [7, 7]


# --- prompts ------------------------------------------------------------------------------------

WORDS = ["the man said that the dog runs", "a dog said the man runs over the hill"] * 9
# How a source looks as text.
SURFACES = {
    "subwords": lambda pieces: "".join(pieces).replace("▁", " ").removeprefix(" "),
    "wordpiece": " ".join,
    "characters": "".join,
}


@pytest.mark.parametrize("kind", SURFACES)
def test_a_prompt_is_encoded_like_a_source_in_training(kind):
    """A space before a sentinel belongs to the span; with characters it is a kept piece."""
    config = ObjectiveConfig("span_corruption", window=64, sentinels=8)
    codec = CODECS[kind].train(TokenizerConfig(vocab_size=61), WORDS, config.symbols)
    ids = Ragged.from_lists(codec.encode(WORDS, eos=False))
    items = SpanCorruption().items(TokenStore(NOTHING, ids), config, codec)
    for read, _ in sides(batch_of(items, "span_corruption", Draw())):
        text = SURFACES[kind](codec.pieces(read[:-1]))
        spaced = [text] if kind == "characters" else [text, re.sub("(?<! )<", " <", text)]
        for prompt in spaced:
            assert PROMPTS["span_corruption"].read(codec, prompt, config, None) == [*read, BOS]
