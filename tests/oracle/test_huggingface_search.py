"""Greedy and beam search with the cache equal theirs piece by piece, in every generating family.

Both sides run in float64, so that rounding decides no ties. The beam search of `generate` divides
log-probabilities by length^length_penalty, our "power"; both count EOS, and neither counts BOS or
the prompt. By default it stops at an estimate of what may still come, which ours does not make;
early_stopping=True stops it once as many hypotheses have ended as the beam is wide, which is our
stop="width".
"""

import dataclasses
import functools
import re
from collections import Counter

import jax
import numpy as np
import pytest
import torch
from oracle.decoders import widen
from oracle.families import FAST, VOCAB, in_float64, peer, written

import transformer_jax.export.huggingface.directory as hf
from transformer_jax.base.vocabulary import Special
from transformer_jax.config import DecodingConfig
from transformer_jax.data.codecs.codec import special_of
from transformer_jax.decoding.search.state import SearchRequest, complete
from transformer_jax.decoding.text.searching import make_search, until_eos
from transformer_jax.export.huggingface.families import FAMILIES
from transformer_jax.models.build import build

pytestmark = pytest.mark.oracle
ROWS, READ, LIMIT = 16, 6, 10
WRITERS = [name for name, family in FAMILIES.items() if family.writes]
GREEDY = DecodingConfig(beam_size=1)
BEAM = DecodingConfig(beam_size=3, length_penalty="power", alpha=0.7, stop="width")


def texts(encodes: bool, special: Special) -> list[list[int]]:
    """Return sources, or prompts, of different lengths."""
    rng = np.random.default_rng(0)
    found = [rng.integers(4, VOCAB, rng.integers(1, READ)).tolist() for _ in range(ROWS)]
    return found if encodes else [[special.bos, *text] for text in found]


def found_by_theirs(model, special: Special, config: DecodingConfig):
    """Return [(text, score)] for each row; in greedy search all scores are 0."""
    encodes, width = model.config.is_encoder_decoder, config.beam_size
    ids = torch.full((ROWS, READ), max(special.pad, 0))
    mask = torch.zeros_like(ids)
    for row, text in enumerate(texts(encodes, special)):
        where = slice(len(text)) if encodes else slice(-len(text), None)  # they pad on the left
        ids[row, where], mask[row, where] = torch.tensor(text), 1
    never = sorted({special.pad, special.bos} - {special.eos, -1})
    beams = {"early_stopping": True, "length_penalty": config.alpha, "num_return_sequences": width}
    with torch.no_grad():
        found = model.generate(
            ids, attention_mask=mask, num_beams=width, do_sample=False, use_cache=True,
            max_new_tokens=LIMIT, suppress_tokens=never or None, pad_token_id=max(special.pad, 0),
            eos_token_id=special.eos, return_dict_in_generate=True, output_scores=True,
            **(beams if width > 1 else {}),
        )  # fmt: skip
    begun = 1 if encodes else READ
    rows = [until_eos(row, special) for row in found.sequences[:, begun:].tolist()]
    scores = found.sequences_scores.tolist() if width > 1 else [0.0] * ROWS
    pairs = list(zip(rows, scores, strict=True))
    return [pairs[i : i + width] for i in range(0, len(pairs), width)]


def found_by_ours(model, params, special: Special, config: DecodingConfig):
    request = SearchRequest.empty(ROWS, READ)
    encodes = model.config.architecture == "encoder_decoder"
    for row, text in enumerate(texts(encodes, special)):
        read, first = (text, special.bos) if encodes else (text[:-1], text[-1])
        request.src_ids[row, : len(read)] = read
        request.src_lengths[row], request.first[row] = len(read), first
    request = dataclasses.replace(request, limits=np.full(ROWS, LIMIT))
    search = make_search(config, config.beam_size, (), special)

    @functools.partial(jax.jit, compiler_options=FAST)
    def run(params, request):
        return complete(search, model.stepper(params), request, LIMIT)

    tokens, scores = jax.device_get(run(params, request))
    return [
        [(until_eos(text, special), score) for text, score in zip(*row, strict=True)]
        for row in zip(tokens.tolist(), scores.tolist(), strict=True)
    ]


def strong(name: str):
    """Return a peer whose layers outweigh the embeddings, or all texts would repeat one piece."""
    model = peer(name)
    for key, parameter in model.named_parameters():
        if parameter.ndim > 1 and re.search(r"\.\d+\.", key):
            parameter.data *= 4
    return model


def often_written(model, special: Special) -> int:
    """Return the piece that is in closest to half of the greedy texts, to serve as EOS."""
    endless = found_by_theirs(model, special._replace(eos=-1), GREEDY)
    counts = Counter(piece for ((text, _),) in endless for piece in set(text))
    return min(counts, key=lambda piece: abs(counts[piece] - ROWS / 2))


@pytest.mark.parametrize("name", WRITERS)
def test_generates_the_same_hypotheses(name, tmp_path, monkeypatch):
    """All of them, in order, and the scores of beam search, which theirs stores in float32."""
    widen(monkeypatch)
    theirs = strong(name)
    experiment, params, codecs = hf.read(written(theirs, tmp_path / "theirs"))
    theirs, special = in_float64(theirs), special_of(codecs.tgt)
    special = special._replace(eos=often_written(theirs, special))
    for config in (GREEDY, BEAM):
        expected = found_by_theirs(theirs, special, config)
        with jax.enable_x64(True):
            model = build(experiment.model, VOCAB, VOCAB, dtype="float64")
            wide = jax.tree.map(np.float64, params)
            found = found_by_ours(model, wide, special, config)
        for ours, other in zip(found, expected, strict=True):
            assert [text for text, _ in ours] == [text for text, _ in other]
            if config is BEAM:
                scores = ([score for _, score in row] for row in (ours, other))
                np.testing.assert_allclose(*scores, rtol=1e-5)
        ends = {text[-1] == special.eos for row in expected for text, _ in row}
        assert ends == {True, False}  # else the limit or the end would go untested
