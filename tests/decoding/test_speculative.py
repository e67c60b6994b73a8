"""A draft changes how many passes a text takes, not the text."""

import dataclasses
import functools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoding.plainly import arrays, assert_same, greedy, log_prob, run, scored
from decoding.test_sampling import CASES, TOY, distribution, p_value
from decoding.toy import Toy
from scipy import stats
from tiny import MODEL, VARIANTS, VOCAB, random_params

from transformer_jax.base.vocabulary import UNK
from transformer_jax.config import DecodingConfig
from transformer_jax.decoding.batching.stream import Sentence
from transformer_jax.decoding.search.acceptance import Acceptance
from transformer_jax.decoding.search.sampling import Sampling
from transformer_jax.decoding.search.speculative import ByLookup, ByModel, Speculative
from transformer_jax.decoding.search.state import ENDLESS, SearchRequest, begin, blank
from transformer_jax.decoding.search.state import run as advanced
from transformer_jax.decoding.stepper import Drafted
from transformer_jax.decoding.text.searching import stepper_maker
from transformer_jax.models.build import build

OTHER = Toy(vocab=TOY.vocab, salt=1)
DRAFTS = {
    "itself": (ByModel(), Drafted(TOY, TOY)),
    "another": (ByModel(), Drafted(TOY, OTHER)),
    "lookup": (ByLookup(), TOY),
}
SOURCES = [(5, place) for place in range(3, 40)]


@functools.partial(jax.jit, static_argnames=("stepper", "room"))
def ended(request, search, stepper, room):
    """Return the final state of a search."""
    state = begin(search, stepper, request, room)
    return advanced(search, stepper, state, jnp.int32(0), jnp.asarray(ENDLESS))[0]


@pytest.mark.parametrize("name", DRAFTS)
def test_drafts_do_not_change_greedy_texts(name):
    """With requests of all kinds; every pass but the last is as long as possible if the draft is
    the model itself."""
    draft, stepper = DRAFTS[name]
    config = DecodingConfig(beam_size=1, no_repeat_ngram=0 if name == "lookup" else 2)
    search = Speculative(Sampling.of(config), draft, 3)
    sentences = [
        Sentence(ids, 5, least=i % 4, prefix=(4, 3)[: i % 3]) for i, ids in enumerate(SOURCES)
    ]
    last = ended(arrays(sentences, 3), search, stepper, 7)
    found = [
        scored(*row)
        for row in zip(*map(np.asarray, (last.finished[:, :, 1:], last.scores)), strict=True)
    ]
    assert_same(found, [greedy(TOY, config, (), sentence) for sentence in sentences])
    passes = np.asarray(last.drafts[:, 0])
    lengths = [len(text) for ((_, text),) in found]
    if name == "itself":
        assert passes.tolist() == [-(-length // 4) for length in lengths]
        np.testing.assert_array_equal(last.drafts[:, 1], last.drafts[:, 2])
    assert sum(passes) < sum(lengths)  # every draft is sometimes right
    figures = Acceptance()
    figures.add(np.asarray(last.position), np.asarray(last.drafts))
    assert figures.tokens_per_pass == pytest.approx(sum(lengths) / sum(passes))


# Each shares its program with the next one that has the same draft and width.
WAYS = [
    ("another", "cold", 1), ("another", "hot", 1), ("another", "everything", 2),
    ("lookup", "cold", 1),
]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "case", "width"), WAYS)
def test_samples_follow_the_models_distribution(name, case, width):
    """By a chi-square test of whole texts, as for plain samples; hypotheses of one sentence advance
    together."""
    fields, sentence = CASES[case]
    config = DecodingConfig(search="sample", num_samples=width, **fields)
    search = Speculative(Sampling.of(config), DRAFTS[name][0], 2)
    sentences = [sentence._replace(seed=seed) for seed in range(4096 // width)]
    found = run(search, sentences, DRAFTS[name][1])
    counts = Counter(text for row in found for _, text in row)
    assert counts.total() == 4096
    assert p_value(counts, distribution(config, sentence)) > 0.01
    score, text = found[0][0]
    penalty = ((5 + len(text)) / 6) ** config.alpha
    assert score == pytest.approx(log_prob(TOY, sentence.ids, text) / penalty, rel=3e-6)
    if width == 1 and name == "another":  # the draft's own distribution is told apart
        theirs = Counter(
            text for row in run(search, sentences, Drafted(OTHER, TOY)) for _, text in row
        )
        assert p_value(theirs, distribution(config, sentence)) < 1e-4


def test_acceptance_rate_is_the_overlap_of_the_distributions():
    """The first proposal is accepted at the rate sum min(p, q), both truncated alike."""
    config = DecodingConfig(search="sample", temperature=2.0, top_k=3)
    search = Speculative(Sampling.of(config), ByModel(), 1)
    sentences = [Sentence((5, 9), 1, seed=seed) for seed in range(8192)]
    last = ended(arrays(sentences, 3), search, Drafted(TOY, OTHER), 2)
    q, p = (_cut(toy.log_probs((5, 9), ()) / 2, 3) for toy in (TOY, OTHER))
    _, judged, accepted = np.asarray(last.drafts).sum(0).tolist()
    assert judged == 8192
    share = np.minimum(p, q).sum()
    assert 0.2 < share < 0.9
    assert stats.binomtest(accepted, judged, share).pvalue > 0.01


def _cut(logits, most: int) -> np.ndarray:
    """Return the probabilities of the `most` best pieces, never PAD or BOS."""
    logits = np.float64(logits)
    logits[:2] = -np.inf
    weights = np.where(logits >= np.sort(logits)[-most], np.exp(logits), 0)
    return weights / weights.sum()


@pytest.mark.parametrize(
    ("read", "written", "expected"),
    [
        ([7, 8, 9, 5], [1, 7, 8], [9, 5, 1, 7]),  # from the source on into the text
        ([4, 4, 6], [1, 5, 9, 6, 5, 9], [6, 5, 9, 6]),  # the longest match; wraps around
        ([4, 6, 3], [6, 2, 6], [2, 6, 2, 6]),  # the last of equal matches
        ([4, 5], [1, 7], [-1] * 4),
    ],
)
def test_lookup_proposes_what_followed_the_longest_match(read, written, expected):
    """What follows the end of a source or of a text is ignored."""
    request = SearchRequest.empty(1, 6)
    request.src_ids[0] = [*read, *[9] * (6 - len(read))]
    request.src_lengths[0], request.first[0] = len(read), written[0]
    state = blank(request, 1, 9, None)
    tokens = [*written, *[9] * (10 - len(written))]
    state = state.replace(tokens=jnp.array([[tokens]]), position=jnp.array([len(written) - 1]))
    rule = Sampling.of(DecodingConfig(beam_size=1))
    proposals, _ = ByLookup().propose(rule, TOY, state, 4)
    assert proposals.tokens[0, 0].tolist() == expected


# A model with a state beside keys and values, and one with n-gram lookup; the noise of its draft.
STATES = dataclasses.replace(MODEL, num_decoder_layers=2, decoder_pattern=("ssru", "full"))
MODELS = {"states": (STATES, 0.05), "lookup": (VARIANTS["llama"], None)}


@functools.partial(jax.jit, static_argnames=("models", "search"))
def searched(models, params, search, request):
    steppers = [model.stepper(mine) for model, mine in zip(models, params, strict=True)]
    stepper = steppers[0] if len(steppers) == 1 else Drafted(*steppers)
    state = begin(search, stepper, request, 12)
    last, _ = advanced(search, stepper, state, jnp.int32(0), jnp.asarray(ENDLESS))
    return last.finished, last.scores, last.drafts


def test_a_draft_reads_as_much_of_a_source_as_it_has_positions_for():
    """And its state still has the same form in every batch."""
    learned = dataclasses.replace(MODEL, positions="learned")
    model, draft = (
        build(dataclasses.replace(learned, max_positions=most), VOCAB, VOCAB) for most in (24, 8)
    )
    make, search = stepper_maker([model], "probabilities", draft), Sampling.of(DecodingConfig())

    def states(params):
        stepper = make(params)
        before, after = (
            begin(search, stepper, jax.device_put(SearchRequest.empty(2, *sizes)), room)
            for *sizes, room in ((12, 7), (20, 9))
        )
        own = after.model_state
        both = stepper.grow(before.model_state, 20, 9), own
        return *map(jax.tree.leaves, both), own.model.src_seg, own.draft.src_seg

    params = [random_params(x) for x in (model, draft)]
    grown, longer, *read = jax.eval_shape(states, params)
    assert [x.shape for x in grown] == [x.shape for x in longer]
    assert [x.shape for x in read] == [(2, 20), (2, 8)]


@pytest.mark.thorough
@pytest.mark.parametrize("name", MODELS)
def test_drafts_do_not_change_the_texts_of_models(name):
    """In float64: states are rewound past rejected proposals."""
    config, noise = MODELS[name]
    rng = np.random.default_rng(1)
    request = SearchRequest.empty(6, 5)
    request.src_ids[:] = rng.integers(UNK, VOCAB, (6, 5))
    request.src_lengths[:], request.limits[:] = [5, 3, 1, 4, 5, 2], [12, 12, 3, 12, 7, 12]
    rule = Sampling.of(DecodingConfig(beam_size=1))
    with jax.enable_x64(True):
        model = build(config, VOCAB, VOCAB, jnp.float64)
        params = jax.tree.map(np.float64, random_params(model))
        plain = searched((model,), [params], rule, request)
        if noise is None:
            found = searched((model,), [params], Speculative(rule, ByLookup(), 3), request)
        else:
            near = jax.tree.map(lambda x: x + noise * rng.normal(size=x.shape), params)
            search = Speculative(rule, ByModel(), 3)
            found = searched((model, model), [params, near], search, request)
    np.testing.assert_array_equal(found[0], plain[0])
    np.testing.assert_allclose(found[1], plain[1], rtol=1e-12)
    passes, judged, accepted = np.asarray(found[2]).sum(0).tolist()
    assert 0 < accepted < judged
    assert passes + accepted >= (np.asarray(found[0])[:, 0, 1:] > 0).sum()
