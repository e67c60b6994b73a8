"""Validation while training: loss on the whole split, greedy BLEU on part of it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.config import Experiment
from transformer_jax.data.batch import collate
from transformer_jax.data.batching import Plan, fixed_batches
from transformer_jax.data.sources import Corpus
from transformer_jax.data.token_store import TokenStore
from transformer_jax.data.tokenizer import TokenizerPair
from transformer_jax.decoding.text.translate import Translator
from transformer_jax.evaluation.metrics import score
from transformer_jax.models.encoder_decoder import EncoderDecoder
from transformer_jax.sharding.mesh import on_every_device, own_copy, place_whole
from transformer_jax.training.step import make_validation_step

Scores = dict[str, float]


def make_validation(
    experiment: Experiment,
    model: EncoderDecoder,
    tokenizers: TokenizerPair,
    corpus: Corpus,
    store: TokenStore,
    plan: Plan,
    mesh: Mesh,
) -> Callable[[Any], Scores]:
    """Return the function params -> {"loss": nats per token, "bleu": greedy BLEU}."""
    greedy = dataclasses.replace(
        experiment.decoding, search="beam", beam_size=1, rerank="none", tokens_per_batch=2048
    )
    translator = Translator(model, tokenizers, greedy)
    everywhere = on_every_device(mesh)
    sums = jax.jit(make_validation_step(model, experiment.training), out_shardings=everywhere)
    gather = jax.jit(lambda params: params, out_shardings=everywhere)
    chosen = spread(len(corpus), experiment.evaluation.bleu_sentences)
    sources, references = ([side[i] for i in chosen] for side in (corpus.src, corpus.tgt))
    # The lengths of training, so that what is longer than any of them costs one more shape.
    longest = int(max(store.src.lengths.max(), store.tgt.lengths.max()))
    lengths = sorted({min(shape.tgt_length, longest) for shape in plan.shapes} | {longest})
    data = experiment.data
    batches = fixed_batches(store, lengths, data.tokens_per_batch, data.rows_divisible_by)

    def validate(params: Any) -> Scores:
        totals = []
        for shape, placement in batches:
            batch = place_whole(collate(store.src, store.tgt, placement, *shape), mesh)
            totals.append(sums(params, batch))
        total = jax.tree.map(lambda *x: float(np.sum(x)), *jax.device_get(totals))
        scores = {"loss": total.nll / total.tokens}
        if chosen:
            # Whole on every device: a search on divided parameters would gather them each step.
            found = translator.translate(own_copy(gather(params)), sources)
            texts = [item.text for item in found]
            scores["bleu"] = score(texts, references, experiment.evaluation)[0].value
        return scores

    return validate


def spread(total: int, most: int) -> list[int]:
    """Return `most` of `total` places at even distances, or all: splits may be sorted by length."""
    count = min(total, most)
    return [i * total // count for i in range(count)]
