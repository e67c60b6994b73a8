"""Our searches generate what those of `transformers` do, with the same random weights."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from oracle.compare import as_tree, shapes
from oracle.weights import TRANSFORMERS, from_torch

from transformer_jax.base.vocabulary import EOS, UNK
from transformer_jax.config import DecodingConfig, ModelConfig
from transformer_jax.decoding.search.beam import BeamSearch
from transformer_jax.decoding.search.sampling import Sampling
from transformer_jax.decoding.search.speculative import ByModel, Speculative
from transformer_jax.decoding.search.state import NEVER, NOTHING, SearchRequest, complete
from transformer_jax.decoding.stepper import Drafted
from transformer_jax.models.build import build

pytestmark = pytest.mark.oracle

VOCAB, ROWS, LIMIT = 24, 40, 14
MODEL = ModelConfig(
    d_model=24, d_ff=40, num_heads=3, num_encoder_layers=2, num_decoder_layers=2,
    dropout_rate=0.0, norm_epsilon=1e-5,
)  # fmt: skip
SEEDS = 0, 1, 2
# Our fields, our forbidden pieces, and the same as options of `generate`.
SEARCHES = {
    "greedy": ({"beam_size": 1}, (), {}),
    "greedy, nothing twice": (
        {"beam_size": 1, "no_repeat_ngram": 2}, (5, 9),
        {"no_repeat_ngram_size": 2, "suppress_tokens": [*NEVER, 5, 9]},
    ),
    "greedy, penalized": (
        {"beam_size": 1, "repetition_penalty": 1.7}, (), {"repetition_penalty": 1.7},
    ),
    "beam of 2": ({"beam_size": 2, "alpha": 0.0}, (), {}),
    "beam of 4": ({"beam_size": 4, "alpha": 1.0}, (), {}),
    "beam of 5": ({"beam_size": 5, "alpha": 0.6}, (), {}),
    "beam of 4, nothing twice": (
        {"beam_size": 4, "alpha": 1.0, "no_repeat_ngram": 3}, (7,),
        {"no_repeat_ngram_size": 3, "suppress_tokens": [*NEVER, 7]},
    ),
    "beam of 3, at least 5": ({"beam_size": 3, "alpha": 1.4}, (), {"min_new_tokens": 5}),
}  # fmt: skip


@functools.cache
def parts(seed: int):
    """Return their model, in float64, and our parameters."""
    from oracle import peers

    theirs = peers.Transformers(MODEL, VOCAB)
    peers.randomise(theirs, seed)
    tensors = peers.to_numpy(theirs.double().tensors())
    return theirs, from_torch(tensors, shapes(MODEL, VOCAB, VOCAB), TRANSFORMERS)


def sources(seed: int) -> np.ndarray:
    """Return ragged sentences, [ROWS 9]."""
    rng = np.random.default_rng(seed)
    ids = np.zeros((ROWS, 9), np.int32)
    for row in ids:
        length = rng.integers(1, 9)
        row[:length], row[length] = rng.integers(UNK, VOCAB, length), EOS
    return ids


def found_by_theirs(seed: int, config: DecodingConfig, options):
    """Return [(text, score)] for each row; in greedy search only the texts matter."""
    import torch

    ids = torch.from_numpy(sources(seed)).long()
    width = config.beam_size
    beams = {"early_stopping": True, "length_penalty": config.alpha, "num_return_sequences": width}
    with torch.no_grad():
        found = parts(seed)[0].model.generate(
            ids, attention_mask=(ids > 0).long(), num_beams=width, do_sample=False, use_cache=True,
            max_new_tokens=LIMIT, return_dict_in_generate=True, output_scores=True,
            **(beams if width > 1 else {}), **({"suppress_tokens": [*NEVER]} | options),
        )  # fmt: skip
    texts = [cut(row[1:].tolist()) for row in found.sequences]
    scores = found.sequences_scores.tolist() if width > 1 else [0.0] * len(texts)
    rows = list(zip(texts, scores, strict=True))
    return [rows[i : i + width] for i in range(0, len(rows), width)]


def found_by_ours(seed: int, config: DecodingConfig, forbidden, least: int, draft=None):
    with jax.enable_x64(True):
        model = build(MODEL, VOCAB, VOCAB, dtype="float64")
        stepper = model.stepper(as_tree(parts(seed)[1], "float64"))
        search = Sampling.of(config, forbidden=forbidden)
        if draft is not None:
            small = build(MODEL, VOCAB, VOCAB, dtype="float64")
            stepper = Drafted(stepper, small.stepper(as_tree(parts(draft)[1], "float64")))
            search = Speculative(search, ByModel(), 3)
        if config.beam_size > 1:
            search = BeamSearch.of(config, config.beam_size, forbidden)
        request = dataclasses.replace(
            SearchRequest.empty(ROWS, 9),
            src_ids=sources(seed), src_lengths=(np.asarray(sources(seed)) > 0).sum(1),
            limits=np.full(ROWS, LIMIT), least=np.full(ROWS, least),
        )  # fmt: skip
        run = jax.jit(lambda request: complete(search, stepper, request, LIMIT))
        tokens, scores = jax.device_get(run(request))
    return [
        [(cut(t), s) for t, s in zip(*row, strict=True) if s > NOTHING / 2]
        for row in zip(tokens.tolist(), scores.tolist(), strict=True)
    ]


def cut(tokens: list[int]) -> list[int]:
    """Cut after EOS, or before padding."""
    size = tokens.index(EOS) + 1 if EOS in tokens else len([t for t in tokens if t])
    return tokens[:size]


@pytest.mark.parametrize("name", SEARCHES)
def test_equals_transformers(name):
    """All hypotheses agree in order and score: in float64, so that rounding decides no ties."""
    fields, forbidden, options = SEARCHES[name]
    config = DecodingConfig(stop="width", length_penalty="power", **fields)
    ends, lengths = set(), set()
    for seed in SEEDS:
        theirs = found_by_theirs(seed, config, options)
        ours = found_by_ours(seed, config, forbidden, options.get("min_new_tokens", 0) + 1)
        for mine, other in zip(ours, theirs, strict=True):
            assert [text for text, _ in mine] == [text for text, _ in other]
            if config.beam_size > 1:
                scores = ([score for _, score in row] for row in (mine, other))
                np.testing.assert_allclose(*scores, rtol=1e-5)
            ends |= {text[-1] == EOS for text, _ in mine}
            lengths |= {len(text) for text, _ in mine}
    assert ends == {True, False}  # else the limit or the end would go untested
    assert len(lengths) > 2


@pytest.mark.parametrize("name", ["greedy", "greedy, nothing twice"])
def test_speculative_decoding_keeps_the_greedy_texts(name):
    """With drafts by another model, or by the model itself, the greedy texts equal theirs."""
    fields, forbidden, options = SEARCHES[name]
    config = DecodingConfig(**fields)
    theirs = found_by_theirs(0, config, options)
    for draft in (0, 1):
        ours = found_by_ours(0, config, forbidden, 1, draft)
        assert [row[0][0] for row in ours] == [row[0][0] for row in theirs]
