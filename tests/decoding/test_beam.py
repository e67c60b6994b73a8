"""Beam search finds what enumeration finds, and what a plain reimplementation finds."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoding.toy import Toy, beam_in_python, exhaustive

from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.beam import BeamSearch
from transformer_jax.decoding.penalty import PENALTIES
from transformer_jax.decoding.search import Demand, complete
from transformer_jax.decoding.walk import Walk
from transformer_jax.vocabulary import EOS

TOY, LENGTH = Toy(), 5
ROWS = 48
LIMITS = np.array([4, 3, 0, 2, 5, 1] * 8)
EVERY_SCORE = [(penalty, alpha) for penalty in PENALTIES for alpha in (0.0, 0.6, 1.0)]


QUICKLY = {"xla_backend_optimization_level": 0}  # halves the time to compile


@functools.partial(jax.jit, static_argnames=("config", "wanted", "toy"), compiler_options=QUICKLY)
def _search(seeds, limits, config, wanted, toy):
    tokens, scores = complete(BeamSearch(config, wanted), toy, seeds, Demand.plain(limits), LENGTH)
    return tokens[:, :wanted], scores[:, :wanted]


def search(config, wanted, seeds=range(ROWS), limits=LIMITS, toy=TOY):
    """Return for each row [(score, text)], best first; hypotheses that are not there left out."""
    seeds = jnp.asarray(list(seeds), jnp.int32)[:, None]
    tokens, scores = _search(seeds, jnp.asarray(limits, jnp.int32), config, wanted, toy)
    return [
        [(s, cut(t)) for s, t in zip(row_scores, row_tokens, strict=True) if s > -1e8]
        for row_scores, row_tokens in zip(scores.tolist(), tokens.tolist(), strict=True)
    ]


def cut(tokens):
    """Return the tokens up to EOS, having checked that nothing but padding follows them."""
    size = tokens.index(EOS) + 1 if EOS in tokens else len([t for t in tokens if t])
    assert not any(tokens[size:])
    return tuple(tokens[:size])


def assert_same(found, expected):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        assert [text for _, text in ours] == [text for _, text in theirs]
        np.testing.assert_allclose(
            [score for score, _ in ours], [score for score, _ in theirs], rtol=2e-6
        )


@pytest.mark.parametrize(("penalty", "alpha"), EVERY_SCORE)
def test_wide_beam_is_exhaustive_search(penalty, alpha):
    """A beam that prunes nothing returns the best texts there are, in order; a limit of 0, none."""
    config = DecodingConfig(beam_size=16, length_penalty=penalty, alpha=alpha, stop="optimal")
    limits = np.minimum(LIMITS, 4)
    found = search(config, 16, limits=limits)
    expected = [
        exhaustive(TOY, seed, limit, penalty, alpha)[:16] for seed, limit in enumerate(limits)
    ]
    assert_same(found, expected)


@pytest.mark.parametrize("stop", ["optimal", "width"])
@pytest.mark.parametrize(
    ("width", "wanted", "penalty", "alpha"),
    [(1, 1, "gnmt", 0.6), (2, 2, "power", 1.0), (3, 1, "gnmt", 0.0), (4, 2, "power", 0.6)],
)
def test_narrow_beam_is_its_description(width, wanted, penalty, alpha, stop):
    """A beam that prunes returns, row by row, what its docstring describes, in plain Python."""
    config = DecodingConfig(beam_size=width, length_penalty=penalty, alpha=alpha, stop=stop)
    found = search(config, wanted)
    expected = [
        beam_in_python(TOY, seed, limit, width, penalty, alpha, stop, wanted)
        for seed, limit in enumerate(LIMITS)
    ]
    assert_same(found, expected)


@pytest.mark.parametrize("stop", ["optimal", "width"])
def test_neighbours_do_not_matter(stop):
    """A row searched alone gives what it gives among others, whatever their limits."""
    config = DecodingConfig(beam_size=3, stop=stop)
    together = search(config, 2)
    for row in range(0, ROWS, 5):
        assert search(config, 2, [row], LIMITS[row : row + 1]) == together[row : row + 1]


@functools.cache
def greedy(toy):
    seeds, demand = jnp.arange(ROWS)[:, None], Demand.plain(jnp.asarray(LIMITS, jnp.int32))
    walk = Walk(DecodingConfig(beam_size=1, alpha=0.0))
    run = jax.jit(lambda *x: complete(walk, toy, *x, LENGTH), compiler_options=QUICKLY)
    tokens, scores = run(seeds, demand)
    return [
        [(score[0], cut(row[0]))] if limit else []
        for score, row, limit in zip(scores.tolist(), tokens.tolist(), LIMITS, strict=True)
    ]


def test_greedy_takes_the_best_token():
    """Greedy search writes, at each step, the most probable token that a text may hold."""
    for seed, found in enumerate(greedy(TOY)):
        for score, text in found:
            assert len(text) == LIMITS[seed] or text[-1] == EOS
            for i, token in enumerate(text):
                assert token == 2 + TOY.log_probs(seed, text[:i])[2:].argmax()
            assert score == pytest.approx(TOY.log_prob(seed, text), rel=2e-6)


def test_beam_of_one_is_greedy():
    """With stop=width always; with stop=optimal where EOS is never the runner-up."""
    width, optimal = (DecodingConfig(beam_size=1, alpha=0.0, stop=s) for s in ("width", "optimal"))
    assert_same(search(width, 1), greedy(TOY))
    sure = Toy(eos_first_or_last=True)
    assert_same(search(width, 1, toy=sure), greedy(sure))
    assert_same(search(optimal, 1, toy=sure), greedy(sure))


def test_optimal_beam_of_one_is_at_least_greedy():
    """Where EOS is the runner-up, the optimal rule may keep it, if that text is more probable."""
    config = DecodingConfig(beam_size=1, alpha=0.0, stop="optimal")
    gains = [
        ours[0][0] - theirs[0][0]
        for ours, theirs in zip(search(config, 1), greedy(TOY), strict=True)
        if theirs
    ]
    assert min(gains) > -1e-5
    assert max(gains) > 0.1
