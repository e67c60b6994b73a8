"""A translation depends on its line alone: not on the batch, its size or its neighbours."""

import dataclasses
import functools

import numpy as np
import pytest
from tiny import MODEL, logits_of, random_params

from transformer_jax.config import DecodingConfig, TokenizerConfig
from transformer_jax.data.batch import Ragged, collate, one_per_row
from transformer_jax.data.tokenizer import train_pair
from transformer_jax.decoding.translate import Translator
from transformer_jax.models.build import build
from transformer_jax.vocabulary import EOS

LINES = [
    "a dog runs", "", "two men walk", "a man", "the dog walks", "   ", "two dogs", "a", "men run",
    "the men", "a dog runs the men walk two dogs run",
]  # fmt: skip
EXTRA = 6
DECODING = {
    "greedy": DecodingConfig(beam_size=1, alpha=1.0, max_extra_length=EXTRA),
    "beam": DecodingConfig(beam_size=3, alpha=0.6, max_extra_length=EXTRA),
}
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@functools.cache
def parts():
    """Return a random model, its parameters and a tokenizer."""
    config = TokenizerConfig(vocab_size=40)
    words = [line for line in LINES if line.strip()]
    tokenizers = train_pair(config, words, words)
    shape = dataclasses.replace(MODEL, tied_embeddings="none")
    model = build(shape, tokenizers.src.size, tokenizers.tgt.size)
    params = random_params(model, seed=26)  # most others hardly ever end a sentence
    return model, params, tokenizers


@functools.cache
def translator(mode: str, tokens_per_batch: int):
    """Return a Translator."""
    model, _, tokenizers = parts()
    config = dataclasses.replace(DECODING[mode], tokens_per_batch=tokens_per_batch)
    return Translator(model, tokenizers, config)


def translate(mode: str, tokens_per_batch: int, lines):
    return translator(mode, tokens_per_batch).translate(parts()[1], lines)


def assert_same(found, expected):
    assert [item.text for item in found] == [item.text for item in expected]
    assert [item.ids for item in found] == [item.ids for item in expected]
    scores = ([item.score for item in items] for items in (found, expected))
    np.testing.assert_allclose(*scores, **CLOSE)


@pytest.mark.parametrize("mode", DECODING)
def test_batches_do_not_matter(mode):
    """One line at a time, all at once or in another order: each line's translation is the same."""
    together = translate(mode, 1000, LINES)
    singly = [translate(mode, 1, [line])[0] for line in LINES]
    assert_same(together, singly)
    assert_same(together, translate(mode, 1, LINES))
    assert_same(together[::-1], translate(mode, 1000, LINES[::-1]))
    texts = [item.text for item in together if item.text]
    assert len(set(texts)) > 5  # or order would not be seen


@pytest.mark.parametrize("mode", DECODING)
def test_empty_lines_stay_empty(mode):
    """A line without words has an empty translation, in its place; so has a file of such lines."""
    together = translate(mode, 1000, LINES)
    assert [i for i, item in enumerate(together) if not item.ids] == [1, 5]
    assert all(item.text == "" for item in translate(mode, 1000, ["", " "]))
    assert translate(mode, 1000, []) == []


@pytest.mark.parametrize("mode", DECODING)
def test_scores_are_the_models(mode):
    """A score is the text's log-probability in one pass of the model, over the length penalty."""
    model, params, tokenizers = parts()
    sources = tokenizers.src.encode(LINES)
    config = DECODING[mode]
    found = [(s, t) for s, t in zip(sources, translate(mode, 1000, LINES), strict=True) if t.ids]
    src, tgt = (Ragged.from_lists(x) for x in ([s for s, _ in found], [t.ids for _, t in found]))
    batch = collate(
        src, tgt, one_per_row(np.arange(len(found))), len(found),
        int(src.lengths.max()), int(tgt.lengths.max()),
    )  # fmt: skip
    logits = np.asarray(logits_of(model, params, batch), np.float64)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    for row, (source, item) in enumerate(found):
        length = len(item.ids)
        assert (item.ids[-1] == EOS) or length == len(source) + EXTRA
        total = sum(log_probs[row, i, token] for i, token in enumerate(item.ids))
        penalty = ((5 + length) / 6) ** config.alpha
        assert item.score == pytest.approx(total / penalty, rel=1e-5)
    assert any(item.ids[-1] == EOS for _, item in found)
