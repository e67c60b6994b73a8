"""Translations by a real model: scores are its own, and batching does not matter."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from decoding.lines import BEAM, CLOSE, EXTRA, GREEDY, LINES, assert_same, parts
from tiny import TRANSLATE, random_params

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import EOS
from transformer_jax.data.batches.batch import Ragged, one_per_row
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.decoding.batching import stream
from transformer_jax.decoding.batching.batch_shapes import BatchShape
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.score import score_pairs
from transformer_jax.decoding.text.translate import Translator
from transformer_jax.models.build import build

CONFIGS = {"greedy": GREEDY, "beam": BEAM}


def by_way_of(shapes, lines, mode="beam", devices=1):
    """Return translations computed with the given batch shapes."""
    model, params, tokenizers = parts()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream, "batch_shapes", lambda *_: shapes)
        translator = Translator(model, tokenizers, CONFIGS[mode], devices=jax.devices()[:devices])
        return translator.translate(params, lines)


@functools.cache
def translations(mode: str):
    """Return the translations of LINES, in one batch that holds them all."""
    return by_way_of([BatchShape(16, 25, 31)], LINES, mode)


@jax.jit
def one_pass(params, batch):
    return parts()[0].outputs(params, batch, None)["tokens"].logits()


def log_probs_of(src_ids, tgt_ids):
    """Return the model's log-probabilities in one pass, [lines T V], always of one shape."""
    src, tgt = Ragged.from_lists(src_ids), Ragged.from_lists(tgt_ids)
    placement = one_per_row(np.arange(len(src_ids)))
    batch = TRANSLATE.examples(TokenStore(src, tgt), placement, len(LINES), 25, 31)
    logits = np.asarray(one_pass(parts()[1], batch), np.float64)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("mode", CONFIGS)
def test_scores_are_log_probabilities_of_the_model(mode):
    """A score is the text's log-probability in one pass of the model, over the length penalty."""
    sources = parts()[2].src.encode(LINES)
    found = [(s, t) for s, t in zip(sources, translations(mode), strict=True) if t.ids]
    log_probs = log_probs_of([source for source, _ in found], [item.ids for _, item in found])
    for row, (source, item) in enumerate(found):
        length = len(item.ids)
        assert (item.ids[-1] == EOS) or length == len(source) + EXTRA
        total = sum(log_probs[row, i, token] for i, token in enumerate(item.ids))
        penalty = ((5 + length) / 6) ** CONFIGS[mode].alpha
        assert item.score == pytest.approx(total / penalty, rel=1e-5)
    assert any(item.ids[-1] == EOS for _, item in found)


@pytest.mark.thorough
def test_batching_does_not_change_translations():
    """Even if lines are refilled, paused, moved up and distributed over devices."""
    expected = translations("beam") * 3
    assert len({item.text for item in expected}) > 5  # or a wrong order would go unnoticed
    assert max(len(item.ids) for item in expected) > 9  # or the last shape would never be needed
    assert_same(
        by_way_of([BatchShape(3, 9, 5), BatchShape(1, 25, 31)], LINES * 3, devices=2), expected
    )


def test_pairs_longer_than_max_positions_are_rejected():
    model, _, tokenizers = parts()
    few = dataclasses.replace(model.config, positions="learned", max_positions=8)
    model = build(few, tokenizers.src.size, tokenizers.tgt.size)
    params = random_params(model)
    with pytest.raises(UserError, match=r"max_positions=8 is the most"):
        score_pairs(Loaded(model, params, tokenizers), LINES, LINES)


def test_given_pairs_are_scored():
    """The score of each piece of a given text is its log-probability in one pass of the model."""
    model, params, tokenizers = parts()
    targets = LINES[::-1]
    found = score_pairs(Loaded(model, params, tokenizers), LINES, targets, tokens_per_batch=64)
    src, tgt = tokenizers.src.encode(LINES), tokenizers.tgt.encode(targets)
    log_probs = log_probs_of(src, tgt)
    for row, score in enumerate(found):
        assert score.ids == tgt[row]
        expected = [log_probs[row, i, piece] for i, piece in enumerate(score.ids)]
        np.testing.assert_allclose(score.log_probs, expected, **CLOSE)
        assert score.total == pytest.approx(sum(score.log_probs))
