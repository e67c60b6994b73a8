"""BPE-dropout against SentencePiece, against probabilities by hand, and with repeated texts."""

import dataclasses
from collections import Counter

import numpy as np
import pytest

from transformer_jax.base.vocabulary import EOS
from transformer_jax.config import DataConfig, TokenizerConfig
from transformer_jax.data.batches.batch import Ragged
from transformer_jax.data.batches.batching import BucketPlan, items_of
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.codecs.subword_dropout import Sampling, SubwordDropout
from transformer_jax.data.codecs.subwords import Subwords, train
from transformer_jax.data.store.token_store import TokenStore, open_store, select

UNKNOWN = ["ein 漢字 zwei", "", "  ", "x漢", "漢 漢", "<0x41> <s> </s>"]


@pytest.fixture(scope="module", params=[False, True], ids=["characters", "bytes"])
def tokenizer(request, numbers) -> Subwords:
    size = 400 if request.param else 120
    return train(TokenizerConfig(vocab_size=size, byte_fallback=request.param), numbers.src)


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.9])
def test_dropout_does_not_change_the_text(tokenizer, numbers, rate):
    """Another segmentation, which SentencePiece decodes to the same text as its own."""
    lines = [*numbers.src, *UNKNOWN]
    ours, theirs = SubwordDropout(tokenizer, rate, 1).encode(lines), tokenizer.encode(lines)
    assert [tokenizer.decode(ids) for ids in ours] == [tokenizer.decode(ids) for ids in theirs]
    assert all(ids[-1] == EOS and EOS not in ids[:-1] for ids in ours)
    longer = sum(map(len, ours)) - sum(map(len, theirs))
    assert (longer == 0 and ours == theirs) if rate == 0.0 else longer > 0


def test_without_dropout_it_matches_sentencepiece_on_real_text(multi30k):
    """Merge by merge: 2,000 captions in two languages with one vocabulary."""
    lines = [
        line for side in ("en", "de")
        for line in (multi30k / f"train.{side}").read_text(encoding="utf-8").split("\n")[:1000]
    ]  # fmt: skip
    tokenizer = train(TokenizerConfig(vocab_size=1500), lines)
    assert SubwordDropout(tokenizer, 0.0, 1).encode(lines) == tokenizer.encode(lines)


def test_segmentation_probabilities_by_hand():
    """`ab` in the pieces ▁, a, b, ▁a, ▁ab, with p = 0.3: the first merge is dropped with p, and so
    is the second if it is reached.
    """

    class Pieces(Subwords):
        def __init__(self) -> None:
            self._list = ["<pad>", "<unk>", "<s>", "</s>", "▁a", "▁ab", "▁", "a", "b"]

        size = property(lambda self: len(self._list))  # type: ignore[assignment]

        def encode(self, lines):
            return [[5, EOS] for _ in lines]

        def pieces(self, ids):
            return [self._list[i] for i in ids]

        def is_text(self, piece):
            return piece >= 4

    found: Counter[tuple[str, ...]] = Counter()
    draws = 0
    for seed in range(100):
        for ids in SubwordDropout(Pieces(), 0.3, seed).encode(["ab"] * 64):
            found[tuple(Pieces().pieces(ids[:-1]))] += 1
            draws += 1
    expected = {("▁ab",): 0.49, ("▁a", "b"): 0.21, ("▁", "a", "b"): 0.3}
    assert set(found) == set(expected)
    for cut, share in expected.items():
        # 100 pools of 64, from which lines draw with replacement: twice the variance of draws
        deviation = (2 * share * (1 - share) / draws) ** 0.5
        assert abs(found[cut] / draws - share) < 4 * deviation


def test_a_line_depends_only_on_seed_and_number(tokenizer, numbers):
    """In parts, in another order or by another object it is the same; otherwise it differs."""
    lines = numbers.src
    whole = SubwordDropout(tokenizer, 0.3, 5).encode(lines)
    parts = SubwordDropout(tokenizer, 0.3, 5)
    second = parts.encode(lines[70:], first=70)
    assert parts.encode(lines[:70]) + second == whole
    assert SubwordDropout(tokenizer, 0.3, 6).encode(lines) != whole
    assert parts.encode(lines, first=len(lines)) != whole


def test_a_store_can_hold_every_pair_several_times(tokenizer, numbers, tmp_path):
    """One copy after the other, each segmented in its own way, reproducibly."""
    pair = TokenizerPair(tokenizer, tokenizer)
    corpus = dataclasses.replace(numbers, tgt=numbers.src)
    sampling = Sampling(rate=0.2, times=3, seed=4)
    store = open_store(corpus, pair, tmp_path / "a", sampling)
    count = len(corpus)
    assert len(store) == 3 * count

    def sequences(side: Ragged) -> list[list[int]]:
        return [side.sequence(i).tolist() for i in range(len(side.lengths))]

    cut = [sequences(side) for side in (store.src, store.tgt)]
    for side in cut:
        for time in range(3):
            part = side[time * count : (time + 1) * count]
            assert [tokenizer.decode(ids) for ids in part] == list(numbers.src)
        assert side[:count] != side[count : 2 * count] != side[2 * count :]
    assert cut[0] != cut[1]  # the sides draw different numbers
    for other, same in ((sampling, True), (sampling._replace(seed=5), False), (None, False)):
        again = open_store(corpus, pair, tmp_path / "b", other)
        assert ([sequences(side) for side in again[:2]] == cut) == same


def test_batches_name_the_lines_of_the_text(make_store):
    """However often the text is in the store."""
    once = make_store(count=40)
    ids, lengths = np.tile(once.src.ids, 3), np.tile(once.src.lengths, 3)
    side = Ragged.from_offsets(ids, np.concatenate([[0], np.cumsum(lengths)]))
    store = TokenStore(side, side)
    config = DataConfig(tokens_per_batch=512, max_length=64)
    plan = BucketPlan(store, select(store, config).pairs, config, seed=0)
    named = Counter(line for i in range(len(plan)) for line in items_of(plan, 40, i))
    assert named == dict.fromkeys(range(1, 41), 3)
