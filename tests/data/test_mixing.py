"""Mixtures of corpora: the share of each in an epoch, with nothing lost; and prefixes."""

import dataclasses
from collections import Counter

import numpy as np
import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.config.choices.objectives import JOINS
from transformer_jax.config.choices.objectives import OBJECTIVES as KNOWN
from transformer_jax.data import sources
from transformer_jax.data.batches.batch import Ragged
from transformer_jax.data.batches.batching import PLANS, BucketPlan, fixed_batches
from transformer_jax.data.batches.mixing import Once, describe, mixture_of, part_of, shares
from transformer_jax.data.objectives import OBJECTIVES
from transformer_jax.data.store.token_store import TokenStore

SIZES = {"large": 400, "middle": 60, "small": 10}
DATA = DataConfig(
    train=tuple(SIZES), max_length=24, tokens_per_batch=200, num_buckets=3, rows_divisible_by=4
)
COUNTS = np.array(list(SIZES.values()))


def weighted(**weights: float) -> DataConfig:
    return dataclasses.replace(DATA, weights=tuple(f"{k}={v}" for k, v in weights.items()))


WEIGHTED = weighted(large=1, middle=1, small=0.5)


def pairs_of(plan, epoch: int) -> list[int]:
    numbers = range(epoch * len(plan), (epoch + 1) * len(plan))
    return [pair for i in numbers for pair in plan.batch(i)[1].pairs.tolist()]


def mixed(make_store, kind: str, config: DataConfig, seed: int = 7):
    store = make_store(count=int(COUNTS.sum()), longest=20)
    pairs = np.arange(len(store))
    mixture = mixture_of(config, part_of(COUNTS.tolist(), store, store), pairs)
    return store, mixture, PLANS[kind](store, pairs, config, seed, mixture)


def test_shares_match_the_paper():
    """Proportional to examples up to a limit, to the power of 1/T; equal for large T (3.5.2)."""
    for temperature, limit in ((1.0, None), (2.0, None), (2.0, 100), (1.0, 50), (1000.0, None)):
        config = dataclasses.replace(DATA, mixing_temperature=temperature, mixing_limit=limit)
        limited = [min(n, limit or n) ** (1 / temperature) for n in SIZES.values()]
        expected = [n / sum(limited) for n in limited]
        np.testing.assert_allclose(shares(config, COUNTS), expected, rtol=1e-12)
    np.testing.assert_allclose(expected, [1 / 3] * 3, atol=0.002)
    np.testing.assert_allclose(shares(WEIGHTED, COUNTS), [0.4, 0.4, 0.2])
    np.testing.assert_allclose(shares(WEIGHTED, np.array([5, 0, 7])), [2 / 3, 0, 1 / 3])


@pytest.mark.parametrize("kind", PLANS)
def test_an_epoch_has_the_configured_shares(make_store, kind):
    """At the usual length; items of a part appear equally often, to within one time."""
    store, mixture, plan = mixed(make_store, kind, WEIGHTED)
    seen: Counter[int] = Counter()
    for epoch in range(6):
        pairs = pairs_of(plan, epoch)
        counts = np.bincount(mixture.part[pairs], minlength=3)
        np.testing.assert_allclose(counts / len(store), [0.4, 0.4, 0.2], atol=0.04)
        assert abs(len(pairs) - len(store)) < (6 if kind == "bucket" else 40)
        seen.update(pairs)
        if kind == "bucket":  # within each part and length
            times = np.array([seen[i] for i in range(len(store))])
            for part in range(3):
                for bucket in range(3):
                    of = times[(mixture.part == part) & (plan._bucket == bucket)]
                    assert of.max() - of.min() <= 1
    assert set(seen) == set(range(len(store)))


@pytest.mark.parametrize("kind", PLANS)
def test_batches_depend_only_on_seed_and_number(make_store, kind):
    """Across epochs, in any order of access; another seed gives another order."""
    *_, plan = mixed(make_store, kind, WEIGHTED)
    *_, fresh = mixed(make_store, kind, WEIGHTED)
    *_, other = mixed(make_store, kind, WEIGHTED, seed=8)
    numbers = np.random.default_rng(0).permutation(3 * len(plan)).tolist()
    found = {i: plan.batch(i)[1].pairs.tolist() for i in range(3 * len(plan))}
    assert [fresh.batch(i)[1].pairs.tolist() for i in numbers] == [found[i] for i in numbers]
    assert pairs_of(other, 0) != pairs_of(plan, 0) != pairs_of(plan, 1)


@pytest.mark.parametrize("kind", PLANS)
def test_without_a_mixture_every_item_appears_once_per_epoch(make_store, kind):
    """In the same order as before mixtures: numpy permutes a number and a range alike."""
    store, mixture, plan = mixed(make_store, kind, DATA)
    assert mixture is None
    assert sorted(pairs_of(plan, 1)) == list(range(len(store)))
    one, other = (np.random.default_rng([7, 3]).permutation(x) for x in (50, Once(50).epoch(3)))
    np.testing.assert_array_equal(one, other)


def test_windows_belong_to_the_part_in_which_they_begin():
    """Whatever an objective makes of the texts, and however often they are repeated."""
    lengths = {"a": [9, 3], "b": [0, 12], "c": [5]}
    flat = [n for part in lengths.values() for n in part]
    store = TokenStore(Ragged.from_lists([]), Ragged.from_lists([[9] * n for n in flat]))
    config = DataConfig(train=tuple("abc"), weights=("a=1", "b=1", "c=2"))
    methods = {"piece_id": lambda *_: 5, "decode": lambda *_: "x"}
    special = {"mask": 4, "pad": 0, "bos": 1, "eos": 2}
    codec = type("Codec", (), {"size": 10, "special": special} | methods)()
    for name in (name for name, known in KNOWN.items() if known.text and known.mixes):
        for document in ("line", "joined") if name in JOINS else ("line",):
            objective = ObjectiveConfig(name, window=5, document=document)  # type: ignore[arg-type]
            items = OBJECTIVES[name].items(store, objective, codec)
            found = part_of((2, 2, 1), store, items)
            side = items.tgt if len(items.tgt.ids) else items.src
            part = np.searchsorted([12, 24], side.starts, side="right")
            np.testing.assert_array_equal(found, part)
            assert set(found) == {0, 1, 2}
    pairs = TokenStore(*(Ragged.from_lists([[9]] * 10),) * 2)  # five texts, twice
    found = mixture_of(config, part_of((2, 2, 1), pairs, pairs), np.arange(10))
    assert found.part.tolist() == [0, 0, 1, 1, 2] * 2
    np.testing.assert_allclose(found.passes, [10 / 4 / 4, 10 / 4 / 4, 10 / 2 / 2])


@pytest.mark.parametrize(
    "name", sorted(name for name, known in KNOWN.items() if not known.one_sided and known.mixes)
)
def test_pairs_belong_to_the_part_that_contains_them(name):
    targets = [[9] * n for n in (3, 1, 4, 1, 5)]
    read = {"tag": sum(map(len, targets)), "classify_pairs": 2 * len(targets)}  # several per text
    sources = Ragged.from_lists([[9, 9]] * read.get(name, len(targets)))
    store = TokenStore(sources, Ragged.from_lists(targets))
    items = OBJECTIVES[name].items(store, ObjectiveConfig(name))
    assert part_of((2, 2, 1), store, items).tolist() == [0, 0, 1, 1, 2]


def test_the_log_describes_the_mixture(make_store):
    store, mixture, _ = mixed(make_store, "bucket", WEIGHTED)
    lines = describe(WEIGHTED, mixture, np.arange(len(store)))
    assert lines[0] == ("mixture: large: 400 items, 40.0 % of an epoch, each appearing 0.47 times")
    assert lines[2].endswith("small: 10 items, 20.0 % of an epoch, each appearing 9.4 times")
    assert describe(DATA, None, np.arange(3)) == []


def test_rare_lengths_appear_in_every_epoch(make_store):
    """At least one item of each part and bucket, or its items would never appear."""
    store = make_store([20] + [4] * 99, [20] + [4] * 99)
    config = dataclasses.replace(DATA, train=("one", "two"), weights=("one=0.1", "two=9"))
    mixture = mixture_of(config, part_of((50, 50), store, store), np.arange(100))
    plan = BucketPlan(store, np.arange(100), config, 0, mixture)
    assert all(0 in pairs_of(plan, epoch) for epoch in range(3))
    assert fixed_batches(store, [20], 64, 4)  # validation has each item once, as always


# --- prefixes -----------------------------------------------------------------------------------


def corpus(tmp_path, **changes) -> DataConfig:
    for part, lines in (("one", "a\n\nb\n"), ("two", "c\nd\n")):
        for ending in ("src", "tgt"):
            (tmp_path / f"{part}.{ending}").write_text(lines)
    return DataConfig(
        directory=str(tmp_path), source_language="src", target_language="tgt",
        train=("one", "two"), validation=("two",), **changes,
    )  # fmt: skip


def test_prefixes_precede_the_sources_of_their_part(tmp_path):
    config = corpus(tmp_path, prefixes=("one=to German:", "two=<2de> <BT>"))
    found = sources.load(config, "train")
    assert found.src == ["to German: a", "", "to German: b", "<2de> <BT> c", "<2de> <BT> d"]
    assert (found.tgt, found.sizes) == (["a", "", "b", "c", "d"], (3, 2))
    assert sources.load(config, "validation").src == ["<2de> <BT> c", "<2de> <BT> d"]
    plain = sources.load(corpus(tmp_path), "train")
    assert plain.fingerprint != found.fingerprint
    assert plain.src == plain.tgt


def test_parts_can_be_whole_files(tmp_path):
    found = sources.load(
        corpus(tmp_path), "train", ObjectiveConfig("language_model", document="file")
    )
    assert (found.tgt, found.sizes) == (["a\n\nb\n", "c\nd\n"], (1, 1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prefixes": ("three=x",)}, r"prefixes='three=x': must be PART=TEXT, .* one, two"),
        ({"prefixes": ("one=",)}, r"prefixes='one=': must be PART=TEXT"),
        ({"prefixes": ("one=x", "one=y")}, r"prefixes='one=x': .* once for each of the parts"),
        ({"weights": ("one=1",)}, r"weights=\('one=1',\): must name each part of train"),
        ({"weights": ("one=1", "two=0")}, r"weights='two=0': .* a number above 0"),
        ({"weights": ("one=1", "two=x")}, r"weights='two=x': .* a number above 0"),
        ({"weights": ("one=1", "two=1"), "mixing_limit": 3}, r"mixing_limit=3: weights=.* or set"),
        ({"train": ("one",), "mixing_temperature": 2.0}, r"mixing_temperature=2.0: needs several"),
        ({"train": ("one", "one", "two"), "mixing_limit": 9}, r"mixing_limit=9: needs several"),
    ],
)
def test_invalid_prefixes_and_mixtures_are_rejected(changes, message):
    with pytest.raises(UserError, match=message):
        DataConfig(**{"train": ("one", "two"), **changes}).check_reads()
