"""Beam search matches exhaustive enumeration and its plain-Python reference."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest
from decoding.plainly import assert_same, beam, exhaustive, greedy, log_prob, run
from decoding.toy import Together, Toy
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_jax.base.vocabulary import EOS, UNK
from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.batching.stream import Sentence
from transformer_jax.decoding.search.beam import BeamSearch
from transformer_jax.decoding.search.sampling import Sampling
from transformer_jax.decoding.stepper import ENSEMBLES, Ensemble

TOY, LARGER = Toy(), Toy(vocab=7)
ROWS, LIMIT = 60, 5
RNG = np.random.default_rng(0)
# Sentences with requests of all kinds, and the same with none but the length limit.
ASKING = [
    Sentence(
        tuple(RNG.integers(1, 99, RNG.integers(1, 4)).tolist()),
        limit=row % (LIMIT + 1),
        least=int(RNG.integers(0, 7)),
        prefix=tuple(RNG.integers(UNK, TOY.vocab, RNG.integers(0, 3)).tolist()),
    )
    for row in range(ROWS)
]
PLAIN = [sentence._replace(least=0, prefix=()) for sentence in ASKING]
# Each penalty with each stopping rule, and both with and without coverage.
RULES = {
    "gnmt, optimal": {"alpha": 0.7},
    "no penalty": {"alpha": 0.0},
    "power, width": {"length_penalty": "power", "alpha": 1.3, "stop": "width"},
}
COVERING = {
    "gnmt, width": {"stop": "width"},
    "power, optimal": {"length_penalty": "power", "alpha": 1.3},
}
LIMITS_ON_TEXT = {
    "no word twice": ({"no_repeat_ngram": 1}, ()),
    "no fourth piece, no three words twice": ({"no_repeat_ngram": 3}, (4,)),
    "no end": ({}, (EOS,)),
}


def up_to(limit: int, sentences: list[Sentence]) -> list[Sentence]:
    return [s._replace(limit=min(s.limit, limit)) for s in sentences]


def assert_exhaustive(config, forbidden, sentences, toy=TOY):
    found = run(BeamSearch.of(config, config.beam_size, forbidden), sentences, toy)
    expected = [exhaustive(toy, config, forbidden, s)[: config.beam_size] for s in sentences]
    assert_same(found, expected)
    assert max(map(len, expected)) > 1


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_wide_beam_matches_exhaustive_search(rules):
    """A beam that prunes nothing returns the best of all texts, in order.

    With two words, at most 8 hypotheses of 3 tokens are live and 7 end within 3 tokens: too few
    for `width` to stop before the limit. At the limit, a text that is not among the W best of its
    length is not among the W best overall.
    """
    assert_exhaustive(DecodingConfig(beam_size=8, **rules), (), up_to(4, ASKING))


@pytest.mark.parametrize("rules", COVERING.values(), ids=COVERING)
def test_wide_beam_with_coverage_matches_exhaustive_search(rules):
    """With the coverage penalty, the beam has room for all 12 texts as long as the limit."""
    config = DecodingConfig(beam_size=12, coverage_penalty=0.5, **rules)
    assert_exhaustive(config, (), up_to(3, ASKING))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("what", LIMITS_ON_TEXT)
def test_wide_beam_with_forbidden_texts_matches_exhaustive_search(what):
    """Some texts are forbidden, and there may be none left at all."""
    fields, forbidden = LIMITS_ON_TEXT[what]
    assert_exhaustive(DecodingConfig(beam_size=12, **fields), forbidden, up_to(3, ASKING))


NARROW = {
    "1 of 1": (1, "optimal", {}, ()),
    "2 of 2": (2, "width", {"length_penalty": "power", "alpha": 1.0}, ()),
    "2 of 4": (2, "optimal", {"beam_size": 4, "no_repeat_ngram": 2}, (5,)),
    "1 of 4": (1, "width", {"beam_size": 4, "coverage_penalty": 0.3, "alpha": 0.0}, ()),
    "3 of 3": (3, "width", {"coverage_penalty": 2.0, "no_repeat_ngram": 1}, ()),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", NARROW)
def test_narrow_beam_matches_its_description(name):
    """A beam that prunes returns, sentence by sentence, what its docstring describes."""
    wanted, stop, fields, forbidden = NARROW[name]
    config = DecodingConfig(**{"beam_size": wanted, "stop": stop} | fields)
    found = run(BeamSearch.of(config, wanted, forbidden), PLAIN + ASKING, LARGER)
    expected = [beam(LARGER, config, forbidden, s, wanted) for s in PLAIN + ASKING]
    assert_same([row[:wanted] for row in found], expected)


sentences = st.builds(
    Sentence,
    ids=st.lists(st.integers(1, 99), min_size=1, max_size=3).map(tuple),
    limit=st.integers(0, LIMIT),
    least=st.integers(0, LIMIT + 1),
    prefix=st.lists(st.integers(UNK, LARGER.vocab - 1), max_size=2).map(tuple),
    seed=st.just(0),
    words=st.integers(0, 9),
    shortlist=st.none(),
)


MIXING = DecodingConfig(beam_size=3, coverage_penalty=0.3, no_repeat_ngram=2)
MIXED = BeamSearch.of(MIXING, 3)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(sentences, min_size=8, max_size=8))
def test_mixed_requests_match_the_reference(sentences):
    """Whatever is asked of a sentence and its neighbours, it gets the result it would get alone."""
    found = run(MIXED, sentences, LARGER)
    assert_same(found, [beam(LARGER, MIXING, (), s, 3) for s in sentences])


def test_results_do_not_depend_on_the_rest_of_the_batch():
    """Results are bitwise identical whether a sentence is alone or among others."""
    together = run(MIXED, ASKING[:8], LARGER)
    nobody = Sentence((1,), 0)
    for row in range(8):
        alone = [ASKING[row] if place == row else nobody for place in range(8)]
        assert run(MIXED, alone, LARGER)[row] == together[row]
        assert run(MIXED, ASKING[row:8] + ASKING[:row], LARGER)[0] == together[row]


GREEDY = DecodingConfig(beam_size=1, alpha=0.0)


def greedily(toy, sentences, config=GREEDY, forbidden=()):
    """Return what the plain-Python search finds."""
    return [greedy(toy, config, forbidden, s) for s in sentences]


@pytest.mark.parametrize(
    ("fields", "forbidden"),
    [({}, ()), ({"no_repeat_ngram": 1}, ()), ({"no_repeat_ngram": 2}, (4,))],
)
def test_greedy_takes_the_best_token(fields, forbidden):
    """Greedy search takes the most probable allowed token, and finds nothing if none is allowed."""
    config = DecodingConfig(beam_size=1, **fields)
    found = run(Sampling.of(config, forbidden=forbidden), PLAIN + ASKING)
    expected = greedily(TOY, PLAIN + ASKING, config, forbidden)
    assert_same(found, expected)
    assert sum(map(len, expected)) > ROWS


def of_one(stop: str):
    """Return what a beam of one and plain greedy search find for sentences without requests."""
    found = run(BeamSearch.of(replace(GREEDY, stop=stop)), PLAIN + ASKING, LARGER)
    return found[:ROWS], greedily(LARGER, PLAIN)


def is_sure(sentence, text) -> bool:
    """Return whether EOS is never the runner-up among the pieces allowed next."""
    for length in range(len(text)):
        log_probs = LARGER.log_probs(sentence.ids, text[:length])
        if sorted(range(EOS, LARGER.vocab), key=lambda piece: -log_probs[piece])[1] == EOS:
            return False
    return True


def test_beam_of_one_is_greedy():
    """Always with stop=width; with stop=optimal where EOS is never the runner-up."""
    assert_same(*of_one("width"))
    found, expected = of_one("optimal")
    sure = [row for row, items in enumerate(expected) if items and is_sure(PLAIN[row], items[0][1])]
    assert_same([found[row] for row in sure], [expected[row] for row in sure])
    assert len({len(expected[row][0][1]) for row in sure}) > 3
    assert ROWS / 3 < len(sure) < ROWS


def test_optimal_beam_of_one_scores_at_least_as_high_as_greedy():
    """Where EOS is the runner-up, the optimal rule may keep it if that text is more probable."""
    pairs = zip(*of_one("optimal"), strict=True)
    gains = [ours[0][0] - theirs[0][0] for ours, theirs in pairs if theirs]
    assert min(gains) > -1e-5
    assert max(gains) > 0.1


@pytest.mark.one_in(2)
@pytest.mark.parametrize("mean", ENSEMBLES)
def test_ensemble_is_the_mean_of_its_models(mean):
    """An ensemble searches with its models' mean distribution; a model twice equals itself."""
    toys = tuple(Toy(salt=salt) for salt in (0, 1, 2))
    config = DecodingConfig(beam_size=3, coverage_penalty=0.3)
    found = run(BeamSearch.of(config, 3), ASKING, Ensemble(toys, ENSEMBLES[mean]))
    one = Together(toys, mean)
    assert_same(found, [beam(one, config, (), s, 3) for s in ASKING])
    text = found[-1][0][1]
    values = [log_prob(toy, ASKING[-1].ids, text) for toy in {*toys, one}]
    assert len(set(values)) == len(values)  # or the mean would go untested
    alone = np.log(np.float32([0.5, 0.2, 0.3])).reshape(1, 1, 1, 3)
    np.testing.assert_allclose(ENSEMBLES[mean](jnp.stack([alone, alone])), alone, rtol=1e-6)
