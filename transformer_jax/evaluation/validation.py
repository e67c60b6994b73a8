"""Validation during training: loss on the whole split, greedy BLEU on part of it."""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, DecodingConfig, Experiment, TrainingConfig
from transformer_jax.config import metrics as directions
from transformer_jax.config.choices.codecs import VECTORS
from transformer_jax.config.choices.searches import GREEDY
from transformer_jax.data.batches.batching import Plan, fixed_batches
from transformer_jax.data.codecs.codec import Codec, VectorCodec
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.objectives import noun_of, objective_named
from transformer_jax.data.objectives.labelling import CHOICES
from transformer_jax.data.sources import Corpus
from transformer_jax.data.store.token_store import Selection, TokenStore
from transformer_jax.data.texts import spread
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.generate import Generator
from transformer_jax.decoding.text.writer import make_writer
from transformer_jax.evaluation.metrics import interval, score, unsuited
from transformer_jax.evaluation.rewards import earned, judge_of
from transformer_jax.models import lora
from transformer_jax.models.model import Model
from transformer_jax.sharding.mesh import compiler_options, on_every_device, own_copy, place_whole
from transformer_jax.training.step import make_validation_step

Scores = dict[str, float]


def make_validation(
    experiment: Experiment,
    model: Model,
    tokenizers: TokenizerPair,
    corpus: Corpus,
    store: TokenStore,
    plan: Plan,
    mesh: Mesh,
) -> Callable[[Any], Scores]:
    """Return the function params -> {"loss": nats per token, "bleu": greedy BLEU}; for speech,
    "wer" in place of BLEU; for a model that learns from its own answers, their mean "reward".

    The loss is over the items that `selected` keeps; for BLEU, a source that is too long is
    translated in parts, as `translate` does. Classes and tags also have "accuracy", the fraction
    for which the right one is the likeliest, and no "bleu"; a secondary prediction has a loss and
    an accuracy of its own, as in "next_sentence_loss". A language model also has
    "bits_per_character" and "bits_per_byte", see `text_units`.
    """
    measured = experiment.measured
    title: Any = directions.VALIDATION[measured].title
    protocol = replace(experiment.evaluation, metrics=(title,))
    data, objective = experiment.data, objective_named(experiment.objective.name)
    units = text_units(experiment, tokenizers.tgt, corpus)
    sums, whole = _programs(model, replace(experiment.training, steps=1), mesh)
    chosen = spread(len(corpus), experiment.evaluation.bleu_sentences)
    if chosen and experiment.objective.record.samples:
        asked = [corpus.tgt[i] for i in chosen]
        loaded = Loaded(lora.plain(model), None, tokenizers, experiment.objective, data)
        measure = _earning(loaded.in_chats(), experiment, asked)
    elif chosen:
        greedy = replace(
            experiment.decoding, **GREEDY, rerank="none", tokens_per_batch=2048,
            draft=None, draft_length=DecodingConfig.draft_length, cache="contiguous",
            cache_block=DecodingConfig.cache_block, shortlist=0,
        )  # fmt: skip
        vectors = isinstance(tokenizers.src, VectorCodec)
        loaded = Loaded(lora.plain(model), None, tokenizers, experiment.objective, data)
        translator = make_writer(loaded, greedy, warn=False, cut=vectors)
        sources, references = ([side[i] for i in chosen] for side in (corpus.src, corpus.tgt))

        def measure(params: Any) -> float:
            texts = [item.text for item in translator.translate(params, sources)]
            return score(texts, references, protocol)[0].value

    # The lengths of training, plus a single shape for anything longer than all of them.
    longest = int(np.maximum(*store.lengths)[selected(store, data).pairs].max())
    lengths = sorted({min(max(shape[1:]), longest) for shape in plan.shapes} | {longest})
    batches = fixed_batches(store, lengths, data.tokens_per_batch, data.rows_divisible_by)

    def validate(params: Any) -> Scores:
        totals = []
        for shape, placement in batches:
            batch = place_whole(objective.examples(store, placement, *shape), mesh)
            totals.append(sums(params, batch))
        each = jax.tree.map(lambda *x: float(np.sum(x)), *jax.device_get(totals))
        total = each.pop(batch.main)
        scores = {"loss": total.nll / total.weight}
        if experiment.objective.record.accuracy:
            scores["accuracy"] = total.correct / total.weight
        for name, beside in each.items():
            if not beside.weight:  # no text is long enough for a further piece
                continue
            scores[f"{name}_loss"] = beside.nll / beside.weight
            if not math.isnan(beside.correct):
                scores[f"{name}_accuracy"] = beside.correct / beside.weight
        scores |= {f"bits_per_{x}": total.nll / math.log(2) / n for x, n in units.items()}
        if chosen:
            # Replicated on every device: a search on sharded parameters would gather at each step.
            scores[measured] = measure(own_copy(whole(params)))
        return scores

    return validate


def _earning(
    loaded: Loaded, experiment: Experiment, texts: Sequence[str]
) -> Callable[[Any], float]:
    """Return the function params -> the mean reward of greedy answers in conversations."""
    judge, _ = judge_of(experiment.objective)
    decoding = replace(
        DecodingConfig(**GREEDY), tokens_per_batch=experiment.decoding.tokens_per_batch
    )
    codec, template = loaded.codecs.tgt, loaded.codecs.template
    generator = Generator(loaded.model, codec, loaded.objective, decoding, template=template)
    most = experiment.objective.answer_length
    return lambda params: float(earned(generator, params, texts, most, judge).mean())


@functools.lru_cache(maxsize=8)
def _programs(model: Model, config: TrainingConfig, mesh: Mesh) -> tuple[Any, Any]:
    """Return the compiled programs that sum losses, and that gather the parameters of the adapted
    model, cached across runs.
    """
    everywhere = on_every_device(mesh)
    sums = jax.jit(
        make_validation_step(model, config),
        out_shardings=everywhere,
        compiler_options=compiler_options(mesh),
    )
    whole = jax.jit(lambda params: lora.merged(params, model.config), out_shardings=everywhere)
    return sums, whole


def selected(store: TokenStore, config: DataConfig) -> Selection:
    """Leave out items that are too long for training: they would need more memory than training.

    All others count, including uneven and empty ones.

    Raises:
      UserError: if no item is left.
    """
    fits = np.maximum(*store.lengths) <= config.max_length
    if not fits.any():
        raise UserError(
            f"config.data.max_length={config.max_length}: all {len(store)} validation pairs are "
            "longer, in pieces; raise it, or check config.data.validation"
        )
    dropped = {f"longer than {config.max_length} pieces": int((~fits).sum())}
    return Selection(np.flatnonzero(fits), dropped)


def notes(store: TokenStore, experiment: Experiment) -> list[str]:
    """Return notes for the log about anything unusual in the validation items."""
    objective = objective_named(experiment.objective.name)
    noun, scored = noun_of(objective, experiment), experiment.evaluation.bleu_sentences > 0
    parts = "; for BLEU, long sources are translated in parts"
    if experiment.src.codec in VECTORS:
        parts = f"; for {directions.VALIDATION[experiment.measured].title}, they are cut"
    parts *= scored
    lines = [
        f"validation: the loss leaves out {count:,} of {len(store):,} {noun}s ({reason}){parts}"
        for reason, count in selected(store, experiment.data).dropped.items()
        if count
    ]
    if not CHOICES.isdisjoint(objective.predicts):
        low, high = interval(len(store) // 2, len(store))
        lines.append(
            f"validation: of {len(store):,} {noun}s, an accuracy near 50 % is known to "
            f"{50 * (high - low):.1f} points either way (95 %)"
        )
    return lines


def warnings(corpus: Corpus, experiment: Experiment) -> list[str]:
    """Return a warning if the score of validation does not suit the validation text."""
    evaluation, measured = experiment.evaluation, experiment.measured
    if not evaluation.bleu_sentences or not experiment.objective.translates:
        return []
    names = [directions.VALIDATION[measured].title]
    lines = unsuited(evaluation, names, corpus.tgt)
    if experiment.checkpoint.best_by == measured:
        lines = [f"{line}, or --config.checkpoint.best_by=loss" for line in lines]
    return lines


def text_units(experiment: Experiment, codec: Codec, corpus: Corpus) -> dict[str, int]:
    """Return how many characters and bytes a language model predicts; EOS stands for a line end.

    Empty for other objectives, or if the codec does not preserve the text: what it changes, or has
    no piece for, would count as predicted.
    """
    objective = experiment.objective
    texts = corpus.tgt if objective.record.likelihood else ()
    if any(codec.decode(ids) != text for ids, text in zip(codec.encode(texts), texts, strict=True)):
        return {}
    line_ends = len(texts) if objective.document != "file" else 0
    counts = {
        "character": sum(map(len, texts)) + line_ends,
        "byte": sum(len(text.encode()) for text in texts) + line_ends,
    }
    return {name: count for name, count in counts.items() if count}
