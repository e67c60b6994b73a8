"""Multi-token prediction: what the parts beside a decoder predict, and drafts by them."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import VARIANTS, VOCAB, make, random_params

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import UNK
from transformer_jax.config import (
    DecodingConfig,
    ObjectiveConfig,
    TokenizerConfig,
    TrainingConfig,
)
from transformer_jax.data.batches.batch import Batch, Ragged, Target, one_per_row
from transformer_jax.data.codecs import characters
from transformer_jax.data.objectives import objective_named
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.decoding.search.sampling import Sampling
from transformer_jax.decoding.search.speculative import ByFuture, Speculative
from transformer_jax.decoding.search.state import ENDLESS, SearchRequest, begin, run
from transformer_jax.decoding.text.generate import Generator
from transformer_jax.decoding.text.searching import foreseeing
from transformer_jax.models.build import build
from transformer_jax.training.step import target_sums

FORMS = ("sequential", "parallel")
LLAMA = dataclasses.replace(VARIANTS["llama"], num_decoder_layers=2, dropout_rate=0.0)
DEPTH = 2
CONFIGS = {
    form: dataclasses.replace(LLAMA, multi_token=form, future_tokens=DEPTH) for form in FORMS
}
LENGTHS = (7, 4, 2, 9)
TEXTS = np.split(np.random.default_rng(0).integers(UNK, VOCAB, sum(LENGTHS)), np.cumsum(LENGTHS))
LANGUAGE = objective_named("language_model")


@pytest.fixture(
    params=[FORMS[0], *(pytest.param(form, marks=pytest.mark.thorough) for form in FORMS[1:])]
)
def form(request) -> str:
    return request.param


def batch_of(texts, packed: bool = False) -> Batch:
    """One text a row, or all in one."""
    ids = Ragged.from_lists([list(map(int, text)) for text in texts])
    windows = ids._replace(lengths=ids.lengths - 1)
    count = len(ids.lengths)
    placement = one_per_row(np.arange(count))
    rows, length = count, int(windows.lengths.max())
    if packed:
        begins = np.cumsum(windows.lengths) - windows.lengths
        zeros = np.zeros(count, np.int64)
        rows, length = 1, int(windows.lengths.sum())
        placement = placement._replace(
            rows=zeros, src_offset=zeros, tgt_offset=begins, segment=np.arange(count) + 1
        )
    store = TokenStore(windows.emptied(), windows)
    return LANGUAGE.examples(store, placement, rows, 0, length)


@functools.cache
def outputs_of(model):
    def logits(params, batch):
        return {name: x.logits() for name, x in model.outputs(params, batch, None).items()}

    return jax.jit(logits)


@functools.cache
def sums_of(model):
    totals = TrainingConfig(label_smoothing=0.0, multi_token_weight=0.6)
    return jax.jit(lambda params, batch: target_sums(model, totals, params, batch, None))


def without(params) -> dict:
    return {name: part for name, part in params.items() if not name.startswith("future")}


def test_the_next_piece_is_predicted_as_without_further_parts(form):
    """To the bit; a model without them reads the same parameters."""
    (model, params), (plain, _) = make(CONFIGS[form]), make(LLAMA)
    batch = batch_of(TEXTS[:4])
    ours = outputs_of(model)(params, batch)
    assert sorted(ours) == ["future_1", "future_2", "tokens"]
    theirs = outputs_of(plain)(without(params), batch)
    np.testing.assert_array_equal(ours["tokens"], theirs["tokens"])


def test_parallel_layers_stand_beside_the_last():
    """A decoder with such a layer in place of its last one predicts what the layer does."""
    (model, params), (plain, _) = make(CONFIGS["parallel"]), make(LLAMA)
    batch = batch_of(TEXTS[:4])
    ours = outputs_of(model)(params, batch)
    for depth in (1, 2):
        part = params[f"future_{depth}"]["stack"]
        last = {"layer_1": part["layer_0"], "final_norm": part["final_norm"]}
        changed = without(params) | {"decoder": params["decoder"] | last}
        theirs = outputs_of(plain)(changed, batch)["tokens"]
        np.testing.assert_allclose(ours[f"future_{depth}"], theirs, rtol=2e-5, atol=2e-5)


def test_a_further_piece_is_predicted_from_all_before_those_between(form):
    """In a chain also from these; nothing depends on the piece itself, or on later ones."""
    model, params = make(CONFIGS[form])
    (text,) = TEXTS[3:4]
    whole = outputs_of(model)(params, batch_of([text]))
    for place in range(1, len(text) - 1):
        changed = text.copy()
        changed[place] = UNK + (text[place] - UNK + 1) % (VOCAB - UNK)
        other = outputs_of(model)(params, batch_of([changed]))
        for depth in range(DEPTH + 1):
            name = "tokens" if not depth else f"future_{depth}"
            same = (np.asarray(whole[name]) == np.asarray(other[name]))[0].all(-1)
            first = place - depth if form == "sequential" else place
            assert same[: max(first, 0)].all()
            assert first < 0 or not same[first]


def test_no_loss_reaches_another_document(form):
    """Packed texts have the losses that they have alone, over the pieces that they have."""
    model, params = make(CONFIGS[form])
    packed, alone = (
        sums_of(model)(params, batch_of(TEXTS[:4], packed)) for packed in (True, False)
    )
    for name, sums in packed.items():
        np.testing.assert_allclose(sums, alone[name], rtol=2e-5)
    for depth in range(1, DEPTH + 1):
        count = sum(max(length - 1 - depth, 0) for length in LENGTHS)
        assert packed[f"future_{depth}"].tokens == count
        assert float(packed[f"future_{depth}"].weight) == pytest.approx(0.3 * count)


def test_the_loss_is_that_of_the_formula(form):
    """The next piece's mean, and the weighted mean over depths, all over the same positions; the
    labels further on are those of the text.
    """
    model, params = make(CONFIGS[form])
    texts = TEXTS[:4]
    batch = batch_of(texts)
    sums = sums_of(model)(params, batch)
    logs = {
        name: np.asarray(jax.nn.log_softmax(x))
        for name, x in outputs_of(model)(params, batch).items()
    }
    wanted = 0.0
    for row, text in enumerate(texts):
        for depth in range(DEPTH + 1):
            name, weight = ("tokens", 1.0) if not depth else (f"future_{depth}", 0.3)
            for place in range(len(text) - 1 - depth):
                wanted -= weight * logs[name][row, place, text[place + 1 + depth]]
    assert float(sum(x.loss for x in sums.values())) == pytest.approx(wanted, rel=1e-5)
    assert sums["tokens"].weight == sum(LENGTHS) - len(LENGTHS)


def test_prompts_are_not_predicted_further_on_either(form):
    """What is only read, as in chats, has no weight at any depth."""
    model, params = make(CONFIGS[form])
    batch = batch_of(TEXTS[:4])
    labels, weight = batch.targets["tokens"]
    behind = weight * (np.arange(weight.shape[1]) > 4).astype(np.float32)
    sums = sums_of(model)(params, batch._replace(targets={"tokens": Target(labels, behind)}))
    assert {int(x.tokens) for x in sums.values()} == {4}


# --- drafts -------------------------------------------------------------------------------------

# How much likelier some pieces are than others, so that some drafts of random models are right.
LIKELY = {"sequential": 3, "parallel": 9}


@functools.partial(jax.jit, static_argnames=("model", "search", "room"))
def searched(model, params, search, request, room):
    stepper = model.stepper(params)
    state = begin(search, stepper, request, room)
    last, _ = run(search, stepper, state, jnp.int32(0), jnp.asarray(ENDLESS))
    return last.finished, last.scores, last.drafts


def request_of(lengths, limits) -> SearchRequest:
    rng = np.random.default_rng(1)
    request = SearchRequest.empty(len(lengths), max(1, *lengths))
    request.src_ids[:] = rng.integers(UNK, VOCAB, request.src_ids.shape)
    request.src_lengths[:], request.limits[:] = lengths, limits
    request.first[:] = rng.integers(UNK, VOCAB, len(lengths))
    return request


@pytest.mark.parametrize("length", [1, DEPTH])
def test_drafts_of_the_models_own_do_not_change_greedy_texts(form, length):
    """In float64, after prompts of several lengths; some are right, as a few pieces are likely."""
    config = dataclasses.replace(CONFIGS[form], logits_bias=True)
    rule = Sampling.of(DecodingConfig(beam_size=1))
    request = request_of([4, 3, 0, 1, 4, 2], [12, 12, 3, 12, 7, 12])
    with jax.enable_x64(True):
        model = build(config, VOCAB, VOCAB, jnp.float64)
        params = jax.tree.map(np.float64, random_params(model))
        params["logits_bias"] = jax.tree.map(lambda x: LIKELY[form] * x, params["logits_bias"])
        plain = searched(model, params, rule, request, 12)
        found = searched(model, params, Speculative(rule, ByFuture(), length), request, 12)
    np.testing.assert_array_equal(found[0], plain[0])
    np.testing.assert_allclose(found[1], plain[1], rtol=1e-12)
    passes, judged, accepted = np.asarray(found[2]).sum(0).tolist()
    assert 0 < accepted < judged
    assert passes + accepted >= (np.asarray(found[0])[:, 0, 1:] > 0).sum() > passes


def test_a_draft_is_what_teacher_forcing_predicts(form):
    """So the passes can be foretold from the text: those after the first propose the piece that
    the part predicts from what stands before the last piece written.
    """
    config = dataclasses.replace(CONFIGS[form], future_tokens=1, logits_bias=True)
    search = Speculative(Sampling.of(DecodingConfig(beam_size=1)), ByFuture(), 1)
    request = request_of([0] * 6, [12] * 6)
    with jax.enable_x64(True):
        model = build(config, VOCAB, VOCAB, jnp.float64)
        params = jax.tree.map(np.float64, random_params(model))
        params["logits_bias"] = jax.tree.map(lambda x: LIKELY[form] * x, params["logits_bias"])
        finished, _, drafts = searched(model, params, search, request, 12)
        for row, first in enumerate(request.first.tolist()):
            written = [x for x in np.asarray(finished)[row, 0, 1:].tolist() if x]
            batch = batch_of([[first, *written]])
            logits = jax.jit(lambda batch: model.outputs(params, batch, None)["future_1"].logits())(
                batch
            )
            said = np.asarray(logits)[0, :, UNK - 1 :].argmax(-1) + UNK - 1  # never PAD or BOS
            place, passes = 1, 1  # the first pass writes one piece
            while place < len(written):
                right = said[place - 1] == written[place]
                place, passes = place + 1 + (right and place + 1 < len(written)), passes + 1
            assert int(drafts[row, 0]) == passes


def test_generation_by_ones_own_drafts(form):
    """By the word in the config: the texts of greedy search, in fewer passes."""
    codec = characters.train(TokenizerConfig(), ["abcdefghijklmnopqrstuvwxyz"])
    assert codec.size == VOCAB
    model, params = make(dataclasses.replace(CONFIGS[form], logits_bias=True))
    params = params | {
        "logits_bias": jax.tree.map(lambda x: LIKELY[form] * x, params["logits_bias"])
    }
    objective, texts = ObjectiveConfig("language_model", window=20), []
    for draft in (None, "future"):
        decoding = DecodingConfig(beam_size=1, draft=draft)
        generator = Generator(model, codec, objective, decoding)
        texts.append([x[0].text for x in generator.generate(params, ["abc", "h", "xyz"], 12)])
    assert texts[0] == texts[1]
    assert generator.config.draft_length == DEPTH
    assert 1 < generator.acceptance.tokens_per_pass <= 1 + DEPTH


def test_unsuited_models_are_not_their_own_drafts():
    decoding = DecodingConfig(beam_size=1, draft="future")
    models = [build(config, VOCAB, VOCAB) for config in CONFIGS.values()]
    assert foreseeing(decoding, models[:1]).draft_length == DEPTH
    assert foreseeing(DecodingConfig(beam_size=1, draft="ngram"), models).draft_length == 4
    with pytest.raises(UserError, match="draft='future': is for a single model"):
        foreseeing(decoding, models)
    with pytest.raises(UserError, match=r"trained with model\.multi_token='none'"):
        foreseeing(decoding, [build(LLAMA, VOCAB, VOCAB)])
    states = dataclasses.replace(
        CONFIGS["parallel"], decoder_pattern=("full", "ssru"), relative_positions="none"
    )
    with pytest.raises(UserError, match="layers of 'ssru' keep a state"):
        foreseeing(decoding, [build(states, VOCAB, VOCAB)])
