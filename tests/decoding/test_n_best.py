"""Several translations of a line, and the scores of given ones."""

import dataclasses

import numpy as np
import pytest
from decoding.test_translate import CLOSE, DECODING, LINES, assert_same, parts, translate

from transformer_jax.decoding.score import score_pairs
from transformer_jax.decoding.translate import Translator
from transformer_jax.errors import UserError

PLAIN = dataclasses.replace(DECODING["beam"], alpha=0.0)


def n_best(count: int):
    model, params, tokenizers = parts()
    return Translator(model, tokenizers, PLAIN, count).hypotheses(params, LINES)


def test_n_best_are_in_order_and_differ():
    """Hypotheses come best first, no two the same; an empty line has one empty translation."""
    for line, found in zip(LINES, n_best(3), strict=True):
        scores = [item.score for item in found]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(item.ids) for item in found}) == len(found)
        assert len(found) == (3 if line.strip() else 1)


def test_one_best_is_the_translation():
    """Asking for one hypothesis is translating."""
    model, params, tokenizers = parts()
    found = [items[0] for items in n_best(1)]
    assert_same(found, Translator(model, tokenizers, PLAIN).translate(params, LINES))


@pytest.mark.parametrize("count", [0, 4])
def test_no_more_than_the_beam_holds(count):
    """More hypotheses than the beam keeps are refused, with both numbers."""
    with pytest.raises(UserError, match=f"n_best={count}.*beam_size=3"):
        n_best(count)


def test_a_score_is_what_search_found():
    """Scoring the greedy translation as text gives the log-probability that the search gave it."""
    model, params, tokenizers = parts()
    pairs = [
        (line, item)
        for line, item in zip(LINES, translate("greedy", 1000, LINES), strict=True)
        # Only a text whose pieces come back from encoding it can be compared as text.
        if item.ids and tokenizers.tgt.encode([item.text])[0] == item.ids
    ]
    assert len(pairs) > 2
    found = score_pairs(
        model, params, tokenizers, [line for line, _ in pairs], [item.text for _, item in pairs], 64
    )
    for (_, item), score in zip(pairs, found, strict=True):
        assert score.ids == item.ids
        assert len(score.log_probs) == len(score.ids)
        penalty = ((5 + len(item.ids)) / 6) ** DECODING["greedy"].alpha
        np.testing.assert_allclose(score.total / penalty, item.score, **CLOSE)
