"""Cross-attention and word alignments of given translations."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoding.lines import LINES, parts
from tiny import MODEL, random_params

from transformer_jax.base.vocabulary import BOS, EOS
from transformer_jax.data.batches.batch import Side
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.attention import (
    align,
    alignments,
    cross_attention,
    words,
)
from transformer_jax.models.build import build
from transformer_jax.nn.view import cross_view, self_view

PAIR = "two men walk", "the dog runs"


@functools.cache
def made(residual: str):
    """Return a model with two layers of cross-attention, its parameters and a tokenizer."""
    tokenizers = parts()[2]
    shape = dataclasses.replace(MODEL, residual=residual, v_head_dim=5, num_decoder_layers=2)
    model = build(shape, tokenizers.src.size, tokenizers.tgt.size)
    return model, random_params(model), tokenizers


def encoded(tokenizers: TokenizerPair, *texts: str) -> list[list[int]]:
    return tokenizers.src.encode(texts)


@functools.partial(jax.jit, static_argnums=0)
def inputs_of(model, params, source, target):
    """Return the input of each layer's cross-attention, [L T d], and the encoder's output."""
    bound = model.bind({"params": params})
    (src_pos, src_seg), (tgt_pos, tgt_seg) = (
        (jnp.arange(x.shape[1])[None], jnp.ones_like(x)) for x in (source, target)
    )
    view = self_view(tgt_pos, tgt_seg, "causal")
    across = cross_view(tgt_pos, tgt_seg, src_pos, src_seg)
    memory = bound.encode(Side(source, src_pos, src_seg), train=False).hidden
    x = bound.embed_target(target, tgt_pos, target.shape[1], train=False)
    read = []
    for layer in bound.decoder.layer:
        y, _ = layer.self_attention.mix(layer.self_attention_residual.read(x), view, False)
        y = layer.cross_attention_residual.read(layer.self_attention_residual.write(x, y, False))
        read.append(y[0])
        x = layer(x, view, False, memory, across)
    return jnp.stack(read), memory[0]


def by_hand(model, params, source: list[int], target: list[int]) -> np.ndarray:
    """Return softmax(q k / sqrt(H)) of each layer: the model's layers, NumPy's weights."""
    read, memory = inputs_of(model, params, np.array([source]), np.array([[BOS, *target[:-1]]]))
    weights = []
    for number, y in enumerate(np.asarray(read)):
        p = params["decoder"][f"layer_{number}"]["cross_attention"]
        q, k = (
            np.einsum("td,dnh->nth", np.float64(inward), np.float64(p[name]["kernel"]))
            + np.float64(p[name]["bias"])[:, None]
            for name, inward in (("query", y), ("key", memory))
        )
        scores = np.exp(np.einsum("nth,nsh->nts", q, k) / np.sqrt(q.shape[-1]))
        weights.append(scores / scores.sum(-1, keepdims=True))
    return np.stack(weights)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("residual", ["post_norm", "pre_norm"])
def test_weights_of_every_layer_and_head_match_numpy(residual):
    """Weights [L N T S] equal those computed by hand; every row is a distribution."""
    model, params, tokenizers = made(residual)
    source, target = encoded(tokenizers, *PAIR)
    found = cross_attention(Loaded(model, params, tokenizers), source, target)
    assert found.weights.shape == (2, 2, len(target), len(source))
    np.testing.assert_allclose(
        found.weights, by_hand(model, params, source, target), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(found.weights.sum(-1), 1, rtol=1e-5)
    assert (found.source, found.target) == tuple(map(tokenizers.src.pieces, (source, target)))
    assert found.alignments == align(found.weights[-1].mean(0), tokenizers, source, target)


@pytest.mark.thorough
def test_batched_alignments_match_those_of_single_pairs():
    """Batching, order and a missing EOS make no difference."""
    loaded = Loaded(*made("pre_norm"))
    sources = encoded(loaded.codecs, *(line for line in LINES if line.strip()))
    targets = [sources[-1], *sources[:-1]]
    targets[2] = targets[2][:-1]
    found = alignments(loaded, sources, targets, tokens_per_batch=64)
    for source, target, pairs in zip(sources, targets, found, strict=True):
        assert pairs == cross_attention(loaded, source, target).alignments
    assert len({tuple(pairs) for pairs in found}) > 3
    assert alignments(loaded, [], []) == []


def test_words_align_with_the_words_their_pieces_attend_to():
    """The argmax over source pieces, excluding EOS, mapped from pieces to words."""
    _, _, tokenizers = parts()
    source, target = encoded(tokenizers, "own dogs", "a man walks")
    src_words, tgt_words = ([], [])
    for ids, numbers in ((source, src_words), (target, tgt_words)):
        for piece in tokenizers.src.pieces(ids[:-1]):
            before = numbers[-1] if numbers else -1
            numbers.append(before + piece.startswith("▁"))
    assert (max(src_words), max(tgt_words)) == (1, 2)
    assert len(src_words) > 2  # or every piece would be a word
    weights = np.zeros((len(target), len(source)))
    weights[:, -1] = 9  # all attend most to EOS
    for row, word in enumerate(tgt_words):
        weights[row, src_words.index(word % 2)] = 1
    assert align(weights, tokenizers, source, target) == [(0, 0), (0, 2), (1, 1)]
    assert align(weights, tokenizers, source, [EOS]) == []
    assert align(weights, tokenizers, [EOS], target) == []


def test_words_of_pieces_match_the_decoded_text():
    """For any sequence of pieces: a ▁ with nothing after it makes no word."""
    codec = parts()[2].src
    random = np.random.default_rng(0)
    space, some = codec.piece_id("▁"), codec.encode(["own dogs", "a man walks"])
    choices = [space, space, space, *some[0][:-1], *some[1][:-1]]
    for _ in range(200):
        ids = random.choice(choices, random.integers(1, 8)).tolist()
        text = codec.decode(ids)
        found = words(codec, ids)
        assert len({*found}) == len(text.split()), codec.pieces(ids)
        assert found == sorted(found)
        for number, word in enumerate(text.split()):
            of_it = [piece for piece, which in zip(ids, found, strict=True) if which == number]
            assert codec.decode(of_it).split() == [word]
