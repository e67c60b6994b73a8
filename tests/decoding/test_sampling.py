"""Samples follow the model's distribution and depend only on seed, sentence and number."""

import dataclasses
import functools
from collections import Counter

import jax.numpy as jnp
import numpy as np
import pytest
from decoding.plainly import may_follow, run, score
from decoding.toy import Toy
from scipy import stats

from transformer_jax.base.vocabulary import EOS
from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.batching.stream import Sentence
from transformer_jax.decoding.search.sampling import Sampling, nucleus

TOY, ROWS, WIDTH = Toy(vocab=6), 128, 64
CASES = {
    "model": ({}, Sentence((5, 8), 3)),
    "cold": ({"temperature": 0.5, "top_k": 3}, Sentence((5, 9), 3)),
    "hot": ({"temperature": 2.0, "top_p": 0.7}, Sentence((7,), 3)),
    "everything": (
        {"temperature": 1.5, "top_k": 3, "top_p": 0.8, "no_repeat_ngram": 2},
        Sentence((6, 4, 2), 5, least=3, prefix=(4, 3)),
    ),
    "likely": ({"temperature": 1.5, "min_p": 0.25}, Sentence((5, 8), 3)),
    "penalized": ({"repetition_penalty": 1.6, "min_p": 0.1}, Sentence((5, 8, 3), 4)),
}


def kept(logits, top_k: int, top_p: float, min_p: float = 0.0) -> list[int]:
    """Return the fewest of the top_k most probable pieces whose share reaches top_p, without those
    below min_p of the likeliest one's probability.
    """
    best = sorted(np.flatnonzero(np.isfinite(logits)), key=lambda piece: -logits[piece])
    best = best[: top_k or None]
    weights = np.exp(np.asarray(logits, np.float64)[best])
    before = (np.cumsum(weights) - weights) / weights.sum()
    enough = weights >= min_p * weights[0]
    return [best[i] for i, share in enumerate(before) if share < top_p and enough[i]]


@pytest.mark.parametrize("top_k", [0, 1, 3, 9])
@pytest.mark.parametrize("top_p", [1.2e-38, 0.05, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("min_p", [0.0, 0.3, 1.0])
def test_nucleus(top_k, top_p, min_p):
    """What is kept matches the definition; where too few pieces are left, all are kept."""
    logits = np.random.default_rng(0).normal(0, 2, (40, 2, 9)).astype(np.float32)
    logits[::3, :, 2:4] = -np.inf
    found = np.asarray(nucleus(jnp.asarray(logits), top_k, top_p, min_p))
    for ours, before in zip(found.reshape(-1, 9), logits.reshape(-1, 9), strict=True):
        assert set(np.flatnonzero(np.isfinite(ours))) == set(kept(before, top_k, top_p, min_p))
        np.testing.assert_array_equal(ours[np.isfinite(ours)], before[np.isfinite(ours)])


def distribution(config: DecodingConfig, sentence: Sentence, text=()) -> dict[tuple, float]:
    """Return every text with a given beginning and its probability, in plain Python."""
    if len(text) == sentence.limit or EOS in text:
        return {text: 1.0}
    allowed = [may_follow(config, (), sentence, text, token) for token in range(TOY.vocab)]
    logits = TOY.after(sentence.ids, text).astype(np.float64)
    known = [sentence.first, *text]
    logits[known] *= np.where(logits[known] > 0, 1 / config.repetition_penalty,
                              config.repetition_penalty)  # fmt: skip
    logits = np.where(allowed, logits / config.temperature, -np.inf)
    tokens = kept(logits, config.top_k, config.top_p, config.min_p)
    weights = np.exp(logits[tokens])
    return {
        longer: share * probability
        for token, share in zip(tokens, weights / weights.sum(), strict=True)
        for longer, probability in distribution(config, sentence, (*text, int(token))).items()
    }


@functools.cache
def samples(case: str, width: int = WIDTH, seed: int = 0, first: int = 0):
    """Return `width` samples for each of ROWS seeds: score and text."""
    fields, sentence = CASES[case]
    config = DecodingConfig(search="sample", num_samples=width, seed=seed, **fields)
    sentences = [sentence._replace(seed=first + row) for row in range(ROWS)]
    return run(Sampling.of(config), sentences, TOY)


def p_value(counts: Counter, expected: dict[tuple, float]) -> float:
    """Return the p-value of a chi-square test; texts too rare for it are pooled."""
    if counts.keys() - expected.keys():
        return 0.0
    total = counts.total()
    common = [text for text, share in expected.items() if share * total >= 10]
    shares = [expected[text] for text in common]
    seen = [counts[text] for text in common]
    if (rest := 1 - sum(shares)) * total >= 1:
        shares, seen = [*shares, rest], [*seen, total - sum(seen)]
    return stats.chisquare(seen, np.array(shares) / sum(shares) * sum(seen)).pvalue


@pytest.mark.one_in(2)
@pytest.mark.parametrize("case", CASES)
def test_samples_follow_the_models_distribution(case):
    """A chi-square test of whole texts accepts the model's distribution and rejects another."""
    fields, sentence = CASES[case]
    config = DecodingConfig(search="sample", **fields)
    counts = Counter(text for row in samples(case) for _, text in row)
    assert counts.total() == ROWS * WIDTH
    assert len(counts) > 8
    assert p_value(counts, distribution(config, sentence)) > 0.01
    warmer = dataclasses.replace(config, temperature=config.temperature * 1.25)
    assert p_value(counts, distribution(warmer, sentence)) < 1e-4


@pytest.mark.parametrize("case", CASES)
def test_scores_are_log_probabilities_of_the_model(case):
    """A sample's score is its log-probability over the penalty, whatever the temperature."""
    fields, sentence = CASES[case]
    for value, text in samples(case)[0]:
        expected = score(TOY, DecodingConfig(search="sample", **fields), sentence.ids, text)
        assert value == pytest.approx(expected, rel=3e-6)


def test_samples_are_independent():
    """Neither neighbouring samples of a sentence nor neighbouring seeds depend on each other."""
    first = np.array([[text[0] for _, text in row] for row in samples("model")])
    for one, other in ((first[:, 1:], first[:, :-1]), (first[1:], first[:-1])):
        table = np.zeros((TOY.vocab, TOY.vocab))
        np.add.at(table, (one.ravel(), other.ravel()), 1)
        seen = table.sum(0) > 0
        assert stats.chi2_contingency(table[seen][:, seen]).pvalue > 0.01


def test_the_same_seed_gives_the_same_samples():
    """Whatever its row and however many samples are taken."""
    both = samples("model"), samples("model", first=40)
    assert both[0][40:] == both[1][:-40]
    fewer = samples("model", width=3)
    assert fewer == [row[:3] for row in both[0]]


def test_other_seeds_give_other_samples():
    """Both the seed of the sentence and that of the search matter."""
    assert len({tuple(row) for row in samples("model")}) == ROWS
    plain, other = samples("model", width=3), samples("model", width=3, seed=1)
    assert sum(map(tuple.__eq__, map(tuple, plain), map(tuple, other))) < ROWS / 10
