"""The store of tokenised texts, written once; and which pairs training drops."""

import dataclasses
import itertools

import numpy as np
import pytest

from transformer_jax.config import DataConfig, TokenizerConfig
from transformer_jax.data.codecs.pair import TokenizerPair, train_pair
from transformer_jax.data.codecs.subwords import Subwords
from transformer_jax.data.sources import Corpus
from transformer_jax.data.store import token_store
from transformer_jax.data.store.token_store import Frame, open_store, select


@pytest.fixture(scope="module")
def tokenizers(numbers) -> TokenizerPair:
    config = TokenizerConfig(vocab_size=64, joint=False)
    return train_pair(config, numbers.src, numbers.tgt)


def same(one, other) -> bool:
    return all(
        np.array_equal(x, y) for a, b in zip(one, other, strict=True)
        for x, y in zip(a, b, strict=True)
    )  # fmt: skip


def stores(cache) -> set[str]:
    return {path.name for path in (cache / "tokens").iterdir() if path.is_dir()}


def test_it_contains_the_output_of_the_tokenizers(numbers, tokenizers, tmp_path):
    store = open_store(numbers, tokenizers, tmp_path)
    assert len(store) == len(numbers)
    texts = numbers.src, numbers.tgt
    for side, lines, tokenizer in zip(store[:2], texts, tokenizers, strict=True):
        expected = tokenizer.encode(lines)
        assert side.lengths.tolist() == [len(ids) for ids in expected]
        assert side.ids.tolist() == list(itertools.chain(*expected))
        for i in (0, 7, len(lines) - 1):
            assert side.sequence(i).tolist() == expected[i]


def test_reopening_tokenises_nothing(numbers, tokenizers, tmp_path, monkeypatch):
    first = open_store(numbers, tokenizers, tmp_path)
    monkeypatch.setattr(Subwords, "encode", lambda *_: pytest.fail("tokenised again"))
    assert same(open_store(numbers, tokenizers, tmp_path), first)
    assert len(stores(tmp_path)) == 1  # and no partial store next to it


def test_chunking_does_not_change_the_store(numbers, tokenizers, tmp_path, monkeypatch):
    whole = open_store(numbers, tokenizers, tmp_path / "whole")
    monkeypatch.setattr(token_store, "_CHUNK", 7)
    assert same(open_store(numbers, tokenizers, tmp_path / "chunks"), whole)


@pytest.mark.parametrize("name", ["src.ids", "tgt.ids", "src.offsets", "tgt.offsets", "sums.json"])
@pytest.mark.parametrize("damage", ["cut", "odd", "empty", "gone", "flipped"])
def test_a_damaged_store_is_rebuilt(numbers, tokenizers, tmp_path, name, damage):
    first = open_store(numbers, tokenizers, tmp_path)
    first = type(first)(*(type(side)(*map(np.array, side)) for side in first))  # into memory
    path = tmp_path / "tokens" / stores(tmp_path).pop() / name
    raw = path.read_bytes()
    flipped = raw[:9] + bytes([raw[9] ^ 1]) + raw[10:]
    path.unlink()
    if damage != "gone":
        path.write_bytes(
            {"cut": raw[:-8], "odd": raw[:-1], "empty": b"", "flipped": flipped}[damage]
        )
    assert same(open_store(numbers, tokenizers, tmp_path), first)
    assert path.read_bytes() == raw


def test_the_key_changes_with_text_and_tokenizer(numbers, tokenizers, tmp_path):
    other = TokenizerPair(tokenizers.tgt, tokenizers.src)
    changed = dataclasses.replace(numbers, fingerprint="other")
    for count, arguments in enumerate(
        [(numbers, tokenizers), (changed, tokenizers), (numbers, other)], 1
    ):
        open_store(*arguments, tmp_path)
        assert len(stores(tmp_path)) == count


def test_special_pieces_around_each_text_are_part_of_the_key(numbers, tokenizers, tmp_path):
    bare = Corpus((), numbers.tgt, "targets")  # without sources
    for count, frame in enumerate([Frame(), Frame(bos=True), Frame(bos=True, eos=False)], 1):
        for _ in range(2):  # written, and read back
            store = open_store(bare, tokenizers, tmp_path, frame=frame)
            found = [store.tgt.sequence(i).tolist() for i in range(len(store))]
            assert found == tokenizers.tgt.encode(numbers.tgt, frame.bos, frame.eos)
            assert store.src.lengths.tolist() == []
        assert len(stores(tmp_path)) == count


def test_a_failure_leaves_nothing_behind(numbers, tokenizers, tmp_path, monkeypatch):
    monkeypatch.setattr(Subwords, "encode", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        open_store(numbers, tokenizers, tmp_path)
    assert stores(tmp_path) == set()


def test_empty_lines_are_kept(tokenizers, tmp_path):
    corpus = Corpus(["", "eins", ""], ["one", "", ""], "gaps")
    store = open_store(corpus, tokenizers, tmp_path)
    assert store.src.lengths.tolist()[::2] == [1, 1]
    assert store.tgt.lengths.tolist()[1:] == [1, 1]


def test_each_dropped_pair_is_counted_once_under_its_first_reason(make_store):
    lengths = [
        (5, 6),  # kept
        (1, 6), (6, 1), (1, 1),  # empty
        (1, 30),  # empty first, though too long and too uneven
        (21, 20), (20, 21),  # too long
        (30, 2),  # too long first, though too uneven
        (20, 20),  # kept: not longer than allowed
        (13, 4), (4, 13),  # too uneven
        (12, 4), (4, 12),  # kept: not more uneven than allowed
    ]  # fmt: skip
    store = make_store(*map(list, zip(*lengths, strict=True)))
    config = DataConfig(max_length=20, max_length_ratio=3.0)
    pairs, dropped = select(store, config)
    assert pairs.tolist() == [0, 8, 11, 12]
    assert dropped == {"empty": 4, "longer than 20 pieces": 3, "more uneven than 3:1": 2}
    assert len(pairs) + sum(dropped.values()) == len(store)


def test_nothing_is_dropped_without_a_reason(make_store):
    store = make_store()
    pairs, dropped = select(store, DataConfig())
    assert pairs.tolist() == list(range(len(store)))
    assert set(dropped.values()) == {0}
