"""Tagging: each word has its label at its first piece, whatever the codec, window and row."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS, EOS, UNK
from transformer_jax.config import DataConfig, ObjectiveConfig, TokenizerConfig
from transformer_jax.data import sources
from transformer_jax.data.batches.batch import Ragged, one_per_row
from transformer_jax.data.batches.batching import PLANS, BatchSource, blank
from transformer_jax.data.codecs import trees
from transformer_jax.data.codecs.pair import CODECS, TokenizerPair, train_pair
from transformer_jax.data.objectives.tagging import Tag
from transformer_jax.data.sources import Corpus, labelled
from transformer_jax.data.store.encoding import encode_words
from transformer_jax.data.store.token_store import TokenStore, open_store

TAG = Tag()
DATA = DataConfig(max_length=24, tokens_per_batch=200, num_buckets=3, rows_divisible_by=4)
WORDS = ["one", "two", "twenty", "hundred", "and", ",", "of", "thousand"]


def corpus(count: int = 40) -> tuple[list[str], list[str]]:
    """Return texts of words, and labels that name each word and its place."""
    generator = np.random.default_rng(0)
    texts = [generator.choice(WORDS, generator.integers(1, 12)).tolist() for _ in range(count)]
    labels = [[f"{word}-{i}" for i, word in enumerate(text)] for text in texts]
    return [" ".join(text) for text in texts], [" ".join(row) for row in labels]


@pytest.fixture(scope="module", params=["subwords", "bytes", "characters"])
def stored(request, tmp_path_factory) -> tuple[Any, TokenStore]:
    """Return the tokenizers and the store of the corpus."""
    src, tgt = corpus()
    config = TokenizerConfig(vocab_size=40, joint=False)
    pair = train_pair(config, src, tgt, (request.param, "labels"))
    cache = tmp_path_factory.mktemp("cache")
    found = Corpus(src, tgt, request.param)
    return pair, open_store(found, pair, cache, frame=TAG.frame(ObjectiveConfig("tag")))


def read(batch, pair) -> list[tuple[list[int], list[str], list[int]]]:
    """Return (pieces, labels, positions of the labels) of each segment."""
    labels, weight = batch.targets["tags"]
    found = []
    for row in range(len(labels)):
        for segment in range(1, int(batch.src.seg[row].max(initial=0)) + 1):
            at = batch.src.seg[row] == segment
            assert batch.src.pos[row, at].tolist() == list(range(at.sum()))
            where = np.flatnonzero(weight[row, at])
            names = pair.tgt.pieces(labels[row, at][where])
            found.append((batch.src.inputs[row, at].tolist(), names, where.tolist()))
    return found


def whole(store: TokenStore, window: int):
    items = TAG.items(store, ObjectiveConfig("tag", window=window))
    longest = int(items.lengths.src.max())
    assert longest <= window
    return items, TAG.examples(items, one_per_row(np.arange(len(items))), len(items), longest, 0)


@pytest.mark.parametrize("window", [5, 16, 256])
def test_each_word_has_its_label(stored, window):
    """Once, in the order of the text, where its pieces begin."""
    pair, store = stored
    items, batch = whole(store, window)
    src, tgt = corpus()
    found = read(batch, pair)
    assert [x for _, names, _ in found for x in names] == " ".join(tgt).split()
    if window == 256:
        assert len(found) == len(src)
    for pieces, names, places in found:
        assert (pieces[0], pieces[-1]) == (BOS, EOS)
        ends = [*places[1:], len(pieces) - 1]
        for name, begin, end in zip(names, places, ends, strict=True):
            word, place = name.split("-")
            (ids,) = encode_words(pair.src, [f" {word}" if int(place) else word])
            assert pieces[begin:end] == ids[: window - 2]
    assert TAG.select(items, DATA).dropped == {"empty": 0}


@pytest.mark.parametrize("plan", PLANS)
def test_batches_contain_the_same_examples(stored, plan):
    pair, store = stored
    items, batch = whole(store, 24)
    made = PLANS[plan](items, TAG.select(items, DATA).pairs, DATA, 5)
    source, found = BatchSource(items, made, TAG), []
    for index in range(len(made)):
        shape, one = made.batch(index)[0], source[index]
        assert (*one.src.seg.shape, 0) == shape
        found += read(one, pair)
        for array in (*one.src[:2], *one.targets["tags"]):
            assert not array[one.src.seg == 0].any()
        assert blank(TAG, shape).targets["tags"].labels.dtype == np.int32
    assert sorted(found) == sorted(read(batch, pair))
    most = max(int(made.batch(i)[1].segment.max()) for i in range(len(made)))
    assert (most > 1) == (plan == "pack")


def test_texts_without_words_and_words_without_pieces(tmp_path):
    """The former are dropped; the latter become UNK, so that labels stay aligned."""
    src, tgt = ["one two", "", "\u200b and"], ["A B", "", "B A"]
    pair = train_pair(
        TokenizerConfig(vocab_size=40, joint=False), *corpus(), ("subwords", "labels")
    )
    pair = TokenizerPair(pair.src, CODECS["labels"].train(TokenizerConfig(), tgt, ()))
    store = open_store(
        Corpus(src, tgt, ""), pair, tmp_path, frame=TAG.frame(ObjectiveConfig("tag"))
    )
    items, batch = whole(store, 256)
    assert TAG.select(items, DATA).dropped == {"empty": 1}
    first, second = read(batch, pair)
    assert (first[1], second[1]) == (["A", "B"], ["B", "A"])
    assert second[0][1] == UNK
    nothing = Ragged.from_lists([])
    assert len(TAG.items(TokenStore(nothing, nothing), ObjectiveConfig("tag"))) == 0


def test_unequal_numbers_of_words_and_labels_are_rejected(tmp_path):
    """With the file and the line, in any part."""
    for part, lines in (("a", ["A B"] * 3), ("b", ["A B", "A", "A B"])):
        (tmp_path / f"{part}.text").write_text("one two\n" * 3)
        (tmp_path / f"{part}.tags").write_text("".join(f"{line}\n" for line in lines))
    data = dataclasses.replace(
        DATA, directory=str(tmp_path), source_language="text", target_language="tags",
        train=("a", "b"), validation=("a",),
    )  # fmt: skip
    assert len(sources.load(data, "validation", ObjectiveConfig("tag"))) == 3
    with pytest.raises(UserError, match=r"/b\.text:2: 2 words and 1 labels; give each word one"):
        sources.load(data, "train", ObjectiveConfig("tag"))
    (tmp_path / "b.tags").write_text("A A\nA A\nA A B\n")
    with pytest.raises(UserError, match=r"/b\.text:3: 2 words and 3 labels"):
        sources.load(data, "train", ObjectiveConfig("tag"))


def test_no_break_spaces_divide_neither_words_nor_labels(tmp_path):
    """Files of other programs have words such as 10 000 with one inside."""
    src, tgt = ["one 10\u00a0000\u202fkm", "two", "a  b"], ["A B", "B", "A A"]
    (tmp_path / "a.text").write_text("".join(f"{line}\n" for line in src), "utf-8")
    (tmp_path / "a.tags").write_text("".join(f"{line}\n" for line in tgt), "utf-8")
    data = dataclasses.replace(
        DATA, directory=str(tmp_path), source_language="text", target_language="tags",
        train=("a",), validation=("a",),
    )  # fmt: skip
    found = sources.load(data, "train", ObjectiveConfig("tag"))
    config = TokenizerConfig(vocab_size=18, joint=False, normalization="identity")
    pair = train_pair(config, src, tgt, ("subwords", "labels"))
    store = open_store(found, pair, tmp_path, frame=TAG.frame(ObjectiveConfig("tag")))
    assert [len(labels) for _, labels, _ in read(whole(store, 256)[1], pair)] == [2, 1, 2]
    (text, *_) = src
    assert labelled.words_of(text) == ["one", " 10\u00a0000\u202fkm"]
    trees.check_pairs([text], ["(S XX XX )S"], str)
