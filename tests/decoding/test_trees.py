"""With decoding.constraint="tree", every output is a tree with one leaf per word of the source,
whatever the model predicts.
"""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoding.plainly import run
from decoding.toy import Toy
from tiny import MODEL, random_params

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import BOS, EOS
from transformer_jax.config import DecodingConfig, TokenizerConfig
from transformer_jax.data.codecs import trees
from transformer_jax.data.codecs.pair import train_pair
from transformer_jax.decoding.batching.stream import Sentence
from transformer_jax.decoding.search.beam import BeamSearch
from transformer_jax.decoding.search.sampling import Sampling
from transformer_jax.decoding.search.state import SearchRequest, blank
from transformer_jax.decoding.search.trees import TreeConstraint
from transformer_jax.decoding.text.translate import Translator
from transformer_jax.models.build import build

# Some trees have more words than CODEC has numbers; UNNUMBERED, with one, is as codecs once were.
CODEC = trees.train(TokenizerConfig(), ["(A XX (B XX )B )A"])
UNNUMBERED = trees.train(TokenizerConfig(), ["(A (B XX )B )A"])
TREES = TreeConstraint.of(CODEC)


def nested(words: int, pieces: int, inside: bool = True):
    """Yield all contents of a bracket, or all single brackets, with `words` words and at most
    `pieces` pieces.

    This does not restate the constraint: it generates whole trees and never looks at a prefix.
    """
    if inside and words <= pieces:
        for first in range(1, words + 1):
            rest = lambda used, n=first: (  # noqa: E731
                nested(words - n, pieces - used) if words > n else [()]
            )
            heads = nested(first, pieces - (words - first), False)
            for head in (("XX",),) * (first == 1) + tuple(heads):
                yield from ((*head, *more) for more in rest(len(head)))
    elif not inside and words and words + 2 <= pieces:
        for label in "AB":
            for content in nested(words, pieces - 2):
                yield (f"({label}", *content, f"){label}")


@pytest.mark.parametrize("codec", [CODEC, UNNUMBERED], ids=["numbered", "not"])
def test_allowed_pieces_are_those_that_continue_some_tree(codec):
    """Exactly: no piece leads to a dead end, and every tree that fits can be written."""
    cases = [
        (
            words,
            limit,
            prefix,
            {tree[len(prefix)] for tree in found if tree[: len(prefix)] == prefix},
        )
        for words, limit in ((1, 4), (1, 9), (2, 5), (2, 8), (3, 8))
        if (
            found := {
                tuple(codec.encode([" ".join(x)])[0]) for x in nested(words, limit - 1, False)
            }
        )
        for prefix in sorted({tree[:n] for tree in found for n in range(len(tree))})
    ]
    request = SearchRequest.empty(len(cases), 1)
    request.words[:], request.limits[:] = np.array([case[:2] for case in cases]).T
    state = blank(request, 1, 9, None)
    tokens = np.zeros(state.tokens.shape, np.int32)
    for row, (_, _, prefix, _) in zip(tokens, cases, strict=True):
        row[0, : len(prefix) + 1] = BOS, *prefix
    position = np.array([len(prefix) for _, _, prefix, _ in cases])
    state = state.replace(tokens=jnp.asarray(tokens), position=jnp.asarray(position))
    constraint = TreeConstraint.of(codec)
    allowed = np.asarray(jax.jit(lambda state: constraint.allowed(state))(state))[:, 0]
    assert [{*np.flatnonzero(row).tolist()} for row in allowed] == [after for *_, after in cases]


SEARCHES = {
    "greedy": DecodingConfig(beam_size=1),
    "beam": DecodingConfig(beam_size=4),
    "width": DecodingConfig(beam_size=4, stop="width"),
    "sample": DecodingConfig(search="sample", num_samples=5, top_p=0.9),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES)
def test_every_search_writes_trees(config):
    """And as many hypotheses as requested, where there are that many trees."""
    kind = BeamSearch.of if config.hypotheses == 4 else Sampling.of
    make = {"constraint": TREES}
    search = kind(config, 4, **make) if config.hypotheses == 4 else kind(config, **make)
    given = [
        Sentence((9, seed), limit, seed=seed, words=words)
        for seed, (limit, words) in enumerate(itertools.product((9, 14), (1, 2, 4)))
    ]
    found = run(search, given, Toy(CODEC.size), room=14)
    assert [len(scored) for scored in found] == [config.hypotheses] * len(given)
    for sentence, scored in zip(given, found, strict=True):
        for _, text in scored:
            assert text[-1] == EOS
            assert len(text) <= sentence.limit
            tree = CODEC.decode(text[:-1]).split()
            assert CODEC.encode([" ".join(tree)]) == [[*text]]  # numbers in order
            assert trees.fault(tree) is None
            assert tree.count("XX") == sentence.words


def test_leaves_are_the_words_of_the_source_not_its_pieces():
    lines = ["ab ba abba", "", "abab", "a  ba"]
    tgt = ["(A XX (B XX )B XX )A", "", "(B XX )B", "(A XX XX )A"]
    config = TokenizerConfig(vocab_size=8, joint=False)
    pair = train_pair(config, lines, tgt, ("subwords", "trees"))
    model = build(dataclasses.replace(MODEL, tied_embeddings="none"), *pair.sizes)
    decoding = DecodingConfig(beam_size=1, max_extra_length=6, constraint="tree")
    translator = Translator(model, pair, decoding)
    found = translator.translate(random_params(model, seed=1), lines)
    for line, item in zip(lines, found, strict=True):
        assert item.text.count("XX") == len(line.split())
        assert not line or trees.fault(item.text.split()) is None
    with pytest.raises(UserError, match=r"line 1: .*with a prefix; give none"):
        translator.hypotheses(None, ["ab"], prefixes=["(A"])
    short = dataclasses.replace(decoding, max_length_ratio=0.1, max_extra_length=4)
    with pytest.raises(UserError, match=r"line 3: .* needs 5 pieces for 2 words, .* leaves 4"):
        Translator(model, pair, short).hypotheses(None, ["", "ab", "a b"])
    with pytest.raises(UserError, match=r"line 1: 11 pieces, at most 3 allowed, .*shorten it"):
        Translator(model, pair, decoding, longest=3).hypotheses(None, ["a a a a a"])
    with pytest.raises(UserError, match=r"'\(NP'.*tgt.codec='trees'"):
        Translator(model, train_pair(config, lines, lines), decoding)
