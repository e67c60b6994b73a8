"""Several translations of a line, and the scores of given ones."""

import dataclasses

import numpy as np
import pytest
from decoding.test_translate import CLOSE, DECODING, LINES, assert_same, parts
from tiny import logits_of

from transformer_jax.data.batch import Ragged, collate, one_per_row
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


def test_scores_are_the_models():
    """The score of each piece of a given text is its log-probability in one pass of the model."""
    model, params, tokenizers = parts()
    targets = LINES[::-1]
    found = score_pairs(model, params, tokenizers, LINES, targets, tokens_per_batch=64)
    src, tgt = (
        Ragged.from_lists(side.encode(lines))
        for side, lines in zip(tokenizers, (LINES, targets), strict=True)
    )
    batch = collate(
        src, tgt, one_per_row(np.arange(len(LINES))), len(LINES),
        int(src.lengths.max()), int(tgt.lengths.max()),
    )  # fmt: skip
    logits = np.asarray(logits_of(model, params, batch), np.float64)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for row, score in enumerate(found):
        assert score.ids == tokenizers.tgt.encode([targets[row]])[0]
        expected = [log_probs[row, i, piece] for i, piece in enumerate(score.ids)]
        np.testing.assert_allclose(score.log_probs, expected, **CLOSE)
        assert score.total == pytest.approx(sum(score.log_probs))
