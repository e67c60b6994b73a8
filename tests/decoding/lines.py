"""Lines of text, a tokenizer trained on them and a random model, for translation tests."""

import dataclasses
import functools

import numpy as np
from tiny import MODEL, random_params

from transformer_jax.config import DecodingConfig, TokenizerConfig
from transformer_jax.data.codecs.pair import train_pair
from transformer_jax.models.build import build

LINES = [
    "a dog runs", "", "two men walk", "a man", "the dog walks", "   ", "two dogs", "a", "men run",
    "the men", "a dog runs the men walk two dogs run",
]  # fmt: skip
EXTRA = 6
BEAM = DecodingConfig(beam_size=3, alpha=0.6, max_extra_length=EXTRA)
GREEDY = dataclasses.replace(BEAM, beam_size=1, alpha=1.0)
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@functools.cache
def parts():
    """Return a random model, its parameters and a tokenizer."""
    config = TokenizerConfig(vocab_size=40)
    words = [line for line in LINES if line.strip()]
    tokenizers = train_pair(config, words, words)
    shape = dataclasses.replace(MODEL, tied_embeddings="none")
    model = build(shape, tokenizers.src.size, tokenizers.tgt.size)
    params = random_params(model, seed=26)  # most other seeds hardly ever end a sentence
    return model, params, tokenizers


def assert_same(found, expected):
    """Compare translations: scores up to rounding, everything else exactly."""
    assert [item.text for item in found] == [item.text for item in expected]
    assert [item.ids for item in found] == [item.ids for item in expected]
    scores = ([item.score for item in items] for items in (found, expected))
    np.testing.assert_allclose(*scores, **CLOSE)
