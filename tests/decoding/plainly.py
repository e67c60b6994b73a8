"""Plain-Python reference searches, one sentence at a time, and helpers that run the real ones."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from decoding.toy import Toy

from transformer_jax.base.vocabulary import BOS, EOS, PAD, UNK
from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.batching.stream import Sentence
from transformer_jax.decoding.search.state import NOTHING, SearchRequest, complete

PENALTIES = {
    "gnmt": lambda length, alpha: ((5 + length) / 6) ** alpha,
    "power": lambda length, alpha: length**alpha,
}
Scored = list[tuple[float, tuple[int, ...]]]  # score and text, best first


def log_prob(toy, source, text) -> float:
    """Return the log-probability of a text, including EOS if it has one."""
    return sum(toy.log_probs(source, text[:i])[token] for i, token in enumerate(text))


def score(toy, config: DecodingConfig, source, text) -> float:
    """Return log-probability / length penalty + coverage penalty."""
    penalty = PENALTIES[config.length_penalty](len(text), config.alpha)
    score = log_prob(toy, source, text) / penalty
    if config.coverage_penalty:
        seen = toy.attended(source, text)
        score += config.coverage_penalty * sum(math.log(min(share, 1)) for share in seen)
    return score


def may_follow(config: DecodingConfig, forbidden, sentence: Sentence, text, token) -> bool:
    """Return whether a token may follow a text."""
    if len(text) < len(sentence.prefix):
        return token == sentence.prefix[len(text)]
    if token in (PAD, BOS, *forbidden):
        return False
    if token == EOS and len(text) + 1 < min(sentence.least, sentence.limit):
        return False
    size, longer = config.no_repeat_ngram, (*text, token)
    ngrams = [longer[i : i + size] for i in range(len(longer) - size + 1)]
    return not size or longer[-size:] not in ngrams[:-1]


def exhaustive(toy, config: DecodingConfig, forbidden, sentence: Sentence) -> Scored:
    """Return every allowed text: those that end in EOS, and those as long as the limit."""
    words, limit = range(UNK, toy.vocab), sentence.limit
    texts = [(*t, EOS) for n in range(limit) for t in itertools.product(words, repeat=n)]
    texts += itertools.product(words, repeat=limit) if limit else []
    allowed = functools.partial(may_follow, config, forbidden, sentence)
    texts = [t for t in texts if all(allowed(t[:i], token) for i, token in enumerate(t))]
    return sorted(((score(toy, config, sentence.ids, t), t) for t in texts), reverse=True)


def beam(toy, config: DecodingConfig, forbidden, sentence: Sentence, wanted: int) -> Scored:
    """Beam search as decoding/search/beam.py describes it."""
    width, limit = config.beam_size, sentence.limit
    live: Scored = [(0.0, ())]
    pool: Scored = []
    finished = 0
    for length in range(1, limit + 1):
        options = [
            (value + toy.log_probs(sentence.ids, text)[token], (*text, token))
            for value, text in live
            for token in range(toy.vocab)
            if may_follow(config, forbidden, sentence, text, token)
        ]
        options = sorted(options, reverse=True)[: 2 * width]
        best = options[:width]
        ending = [o for o in (best if config.stop == "width" else options) if o[1][-1] == EOS]
        live = [o for o in options if o[1][-1] != EOS][:width]
        if length == limit:
            ending += [o for o in best if o[1][-1] != EOS]
        finished += len(ending)
        pool += [(score(toy, config, sentence.ids, text), text) for _, text in ending]
        pool = sorted(pool, reverse=True)[:width]
        if config.stop == "width" and finished >= width:
            break
        penalty = PENALTIES[config.length_penalty](limit, config.alpha)
        bound = live[0][0] / penalty if live else -math.inf
        if config.stop == "optimal" and len(pool) >= wanted and pool[wanted - 1][0] >= bound:
            break
    return pool[:wanted]


def greedy(toy, config: DecodingConfig, forbidden, sentence: Sentence) -> Scored:
    """Take the best allowed token until EOS or the limit; find nothing if none is allowed."""
    text: tuple[int, ...] = ()
    while len(text) < sentence.limit and EOS not in text:
        log_probs = toy.log_probs(sentence.ids, text)
        tokens = [t for t in range(toy.vocab) if may_follow(config, forbidden, sentence, text, t)]
        if not tokens:
            return []
        text = (*text, max(tokens, key=lambda token: log_probs[token]))
    return [(score(toy, config, sentence.ids, text), text)] if text else []


# --- the real searches ---


def arrays(sentences: list[Sentence], src_length: int, prefix: int = 2):
    """Return the request for some sentences, as arrays."""

    def rows(lists, length):
        return jnp.asarray([[*x, *[0] * (length - len(x))] for x in lists], jnp.int32)

    limits, least, seeds, words = (
        jnp.asarray([getattr(s, name) for s in sentences], jnp.int32)
        for name in ("limit", "least", "seed", "words")
    )
    prefixes = rows([[i + 1 for i in s.prefix] for s in sentences], prefix).reshape(
        len(sentences), prefix
    )
    return SearchRequest(
        src_ids=rows([s.ids for s in sentences], src_length),
        src_lengths=jnp.asarray([len(s.ids) for s in sentences], jnp.int32),
        first=jnp.full(len(sentences), BOS),
        limits=limits,
        least=least,
        prefix=prefixes,
        seeds=seeds,
        words=words,
        shortlist=None
        if sentences[0].shortlist is None
        else jnp.asarray([s.shortlist for s in sentences], jnp.int32),
    )


@functools.partial(jax.jit, static_argnames=("toy", "room"))
def completed(request, search, toy, room):
    """Return all hypotheses and their scores, as arrays."""
    return complete(search, toy, request, room)


def run(search, sentences: list[Sentence], toy=None, src_length=3, room=5, prefix=2):
    """Return the hypotheses of each sentence."""
    request = arrays(sentences, src_length, prefix)
    tokens, scores = completed(request, search, toy or Toy(), room)
    return [scored(*row) for row in zip(np.asarray(tokens), np.asarray(scores), strict=True)]


def scored(tokens, scores) -> Scored:
    """Return the hypotheses of one sentence, leaving out empty slots."""
    pairs = zip(scores.tolist(), tokens.tolist(), strict=True)
    return [(score, cut(text)) for score, text in pairs if score > NOTHING / 2]


def cut(tokens: list[int]) -> tuple[int, ...]:
    """Return the tokens up to EOS, after checking that only padding follows."""
    size = tokens.index(EOS) + 1 if EOS in tokens else len([t for t in tokens if t])
    assert not any(tokens[size:])
    return tuple(tokens[:size])


def assert_same(found: list[Scored], expected: list[Scored], rtol: float = 3e-6) -> None:
    """Compare texts exactly and scores up to float32 rounding."""
    for ours, theirs in zip(found, expected, strict=True):
        assert [text for _, text in ours] == [text for _, text in theirs]
        np.testing.assert_allclose(
            [score for score, _ in ours], [score for score, _ in theirs], rtol=rtol, atol=3e-6
        )
