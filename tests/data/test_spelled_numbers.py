"""The generated corpus: the same everywhere, and no number in two splits."""

import dataclasses

import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig
from transformer_jax.data import sources
from transformer_jax.data.sources import spelled_numbers

CONFIG = DataConfig(
    source="spelled_numbers", source_language="de", target_language="en",
    num_examples=(300, 40, 20), max_number=1_000_000,
)  # fmt: skip
SPLITS = ("train", "validation", "test")


def test_splits_have_their_sizes_and_are_disjoint():
    found = [sources.load(CONFIG, split) for split in SPLITS]
    assert tuple(map(len, found)) == CONFIG.num_examples
    assert len({line for split in found for line in split.src}) == sum(CONFIG.num_examples)
    assert len({line for split in found for line in split.tgt}) == sum(CONFIG.num_examples)


def test_the_corpus_is_the_same_every_time():
    first = [part.tolist() for part in spelled_numbers.draw((300, 40, 20), 1_000_000)]
    spelled_numbers.draw.cache_clear()
    assert [part.tolist() for part in spelled_numbers.draw((300, 40, 20), 1_000_000)] == first
    # Published scores depend on these lines: change them only together.
    assert first[2][:5] == [117280, 757, 260673, 34027, 8196]
    rounded = spelled_numbers.draw((300, 40, 20), 1_000_000, 1 / 8)
    assert rounded[2][:5].tolist() == [232, 507836, 528797, 65381, 875]


def test_round_numbers_are_drawn_more_often():
    """A hundredth of a percent of nine-digit numbers end with four zeros; of those that are
    rounded, here half, about (1/2 + 1/20)^4.
    """
    size = (20_000, 10, 10)
    shares = [
        (draw[draw > 10**8] % 10_000 == 0).mean()
        for draw in (spelled_numbers.draw(size, 10**9, share)[0] for share in (0.0, 0.5))
    ]
    assert shares[0] < 0.002
    assert 0.02 < shares[1] < 0.05


def test_all_numbers_are_below_the_bound_and_small_ones_are_not_rare():
    numbers = [int(n) for part in spelled_numbers.draw((900, 50, 50), 1_000_000) for n in part]
    assert 0 <= min(numbers) < max(numbers) < 1_000_000
    assert sum(n < 10_000 for n in numbers) > 300


def test_the_largest_bound():
    numbers = [int(n) for part in spelled_numbers.draw((90, 5, 5), 10**18) for n in part]
    assert 10**16 < max(numbers) < 10**18


def test_a_corpus_can_contain_all_numbers_below_the_bound():
    parts = spelled_numbers.draw((90, 9, 2), 101)
    assert sorted(int(n) for part in parts for n in part) == list(range(101))


def test_short_numbers_are_in_training_only():
    """In a large range, all numbers below 100 are in training, repeated, and in no other split."""
    train, validation, test = spelled_numbers.draw((5000, 50, 50), 10**9)
    short = train[train < 100]
    assert set(short.tolist()) == set(range(100))
    assert len(short) == 250
    assert min(validation.min(), test.min()) >= 100
    assert (len(train), len(validation), len(test)) == (5000, 50, 50)
    assert not set(train.tolist()) & set(validation.tolist() + test.tolist())


@pytest.mark.parametrize(
    ("language", "number", "text"),
    [
        ("de", 347, "dreihundertsiebenundvierzig"),
        ("fr", 347, "trois cent quarante-sept"),
        ("en", 347, "three hundred and forty-seven"),
    ],
)
def test_languages(language, number, text, monkeypatch):
    monkeypatch.setattr(spelled_numbers, "draw", lambda sizes, below, round_numbers: [[number]] * 3)
    config = dataclasses.replace(CONFIG, source_language="en", target_language=language)
    assert spelled_numbers.load(config, "test") == (["three hundred and forty-seven"], [text])


@pytest.mark.parametrize("field", ["source_language", "target_language"])
def test_unknown_languages_are_rejected(field):
    config = dataclasses.replace(CONFIG, **{field: "xx"})
    with pytest.raises(UserError, match=r"num2words has no language 'xx'"):
        sources.load(config, "validation")
