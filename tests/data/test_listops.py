"""ListOps: texts, their values and their distribution; and the copying task."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from transformer_jax.base.errors import UserError
from transformer_jax.cli.arguments import load_config
from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.config.convert import parse
from transformer_jax.data import sources
from transformer_jax.data.sources import listops
from transformer_jax.experiments.prepare import prepare
from transformer_jax.runs.workdir import WorkDir

SHORT = DataConfig(
    source="listops", source_language="text", target_language="value", num_examples=(400, 30, 30),
    example_lengths=(20, 80), list_depth=5, list_arguments=5,
)  # fmt: skip
BY_HAND = {
    "[MIN": lambda values: sorted(values)[0],
    "[MAX": lambda values: sorted(values)[-1],
    # Of an even number, the mean of the two in the middle, rounded down.
    "[MED": lambda values: (
        (sorted(values)[(len(values) - 1) // 2] + sorted(values)[len(values) // 2]) // 2
    ),
    "[SM": lambda values: int(str(sum(values))[-1]),
}


def value(symbols: list[str]) -> tuple[int, int]:
    """Consume one tree from the front of a list; return its value and its depth."""
    head = symbols.pop(0)
    if head.isdigit():
        return int(head), 1
    values, deepest = [], 0
    while symbols[0] != "X":
        found, depth = value(symbols)
        values.append(found)
        deepest = max(deepest, depth)
    symbols.pop(0)
    assert 2 <= len(values) <= 5
    return BY_HAND[head](values), deepest + 1


def test_values_match_the_expressions():
    deepest = 0
    for split in ("train", "validation", "test"):
        corpus = sources.load(SHORT, split)
        for text, expected in zip(corpus.src, corpus.tgt, strict=True):
            symbols = text.split()
            assert 20 <= len(symbols) <= 80
            found, depth = value(symbols)
            assert (str(found), symbols) == (expected, [])
            deepest = max(deepest, depth)
    assert deepest == 5


def test_splits_share_no_text_and_are_reproducible():
    found = [sources.load(SHORT, split) for split in ("train", "validation", "test")]
    assert [len(corpus) for corpus in found] == [400, 30, 30]
    assert len({text for corpus in found for text in corpus.src}) == 460
    listops.draw.cache_clear()
    assert [corpus.fingerprint for corpus in found] == [
        sources.load(SHORT, split).fingerprint for split in ("train", "validation", "test")
    ]


def test_texts_alone_are_those_of_the_task():
    """For self-pre-training: the inputs of the same split, and no values."""
    objective = ObjectiveConfig(name="masked_lm", window=80)
    texts = replace(SHORT, target_language="text")
    for split in ("train", "validation"):
        alone = sources.load(texts, split, objective)
        assert (len(alone.src), list(alone.tgt)) == (0, list(sources.load(SHORT, split).src))


def test_nodes_are_drawn_as_published():
    """A quarter of the nodes that may be lists are, with four operators and all argument counts."""
    chance, kinds, counts = random.Random(1), Counter[str](), Counter[int]()
    for _ in range(4000):
        found = listops.tree(chance, 2, 5, 10**6)
        assert found is not None
        kinds["list" if len(found.symbols) > 1 else "digit"] += 1
        if len(found.symbols) > 1:
            kinds[found.symbols[0]] += 1
            counts[len(found.symbols) - 2] += 1
    assert kinds["list"] == pytest.approx(1000, abs=100)
    for operator in BY_HAND:
        assert kinds[operator] / kinds["list"] == pytest.approx(0.25, abs=0.05)
    assert set(counts) == {2, 3, 4, 5}
    assert min(counts.values()) > 200


def test_lengths_match_long_range_arena():
    """500 to 2,000 symbols; the Arena's own code keeps 8 % of its trees, of mean length 1,062."""
    texts = [text for text, _ in listops.draw(150, (501, 1999), 10, 10)]
    lengths = [len(text.split()) for text in texts]
    assert 501 <= min(lengths) <= max(lengths) <= 1999
    assert sum(lengths) / 150 == pytest.approx(1062, abs=100)


@pytest.mark.parametrize("lengths", [(1, 1), (70, 75)])
def test_too_few_possible_texts_are_rejected(lengths, monkeypatch):
    """There are ten of one digit; none of three levels and three arguments is longer than 17."""
    monkeypatch.setattr(listops, "_TRIES", 2000)
    with pytest.raises(UserError, match=r"example_lengths=.* none is new and within"):
        listops.draw(40, lengths, 3, 3)


def test_copying():
    config = DataConfig(source="copying", num_examples=(50, 5, 5), example_lengths=(3, 9))
    corpus, other = sources.load(config, "train"), sources.load(config, "test")
    assert corpus.src == corpus.tgt
    assert {len(text.split()) for text in corpus.src} == {3, 4, 5, 6, 7, 8, 9}
    assert len(corpus) == 50
    assert other.src[:5] != corpus.src[:5]


@pytest.mark.parametrize("variant", ["full", "arena-full", "masked-rotary"])
def test_the_experiment_prepares_the_generated_texts(variant, tmp_path):
    experiment = parse(load_config(f"configs/listops.py:{variant}"))
    few = replace(experiment.data, num_examples=(300, 20, 20))
    prepared = prepare(replace(experiment, data=few), WorkDir(tmp_path))
    assert prepared.items == 300
