"""Per-sentence results of an evaluation: scores, word frequencies, and attention of a few."""

import random
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU
from sacrebleu.metrics.bleu import BLEUScore

from transformer_jax.api import TrainedEnsemble, TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.config import EvaluationConfig, Experiment
from transformer_jax.config.choices.codecs import VECTORS
from transformer_jax.data import sources
from transformer_jax.decoding.stepper import has_attention
from transformer_jax.decoding.text.attention import cross_attention
from transformer_jax.decoding.text.translation import Translation
from transformer_jax.evaluation.metrics import sentence_metric
from transformer_jax.evaluation.summaries import TYPES

_PICKED = 8  # sentences of each kind whose attention is kept
_MOST_PIECES = 80  # on either side, for attention to be kept
_MOST_COUNTED = 1_000_000  # training lines


def describe(
    trained: TrainedModel,
    src: Sequence,
    references: Sequence[str],
    found: Sequence[Translation],
) -> list[dict[str, Any]]:
    """Return a row for each sentence.

    line                              from 1
    source reference hypothesis       text
    BLEU chrF                         of the sentence alone, 0 to 100; ROUGE too, if the config
                                      has it
    counts                            for the BLEU of several sentences: n-grams that match the
                                      reference, n = 1 to 4, all n-grams, words, reference words
    seen                              how often each word of the reference occurs in the training
                                      text; absent if that text cannot be read
    attention                         cross-attention of the best, worst and some random sentences:
                                      source and target pieces, weights [L N T S] in thousandths
    """
    hypotheses = [item.text for item in found]
    scores = sentence_scores(hypotheses, references, trained.experiment.evaluation)
    seen = training_counts(trained.experiment, references)
    rows: list[dict[str, Any]] = []
    for i, scored in enumerate(scores):
        texts = {"source": shown(src[i]), "reference": references[i], "hypothesis": hypotheses[i]}
        rows.append({"line": i + 1, **texts, **scored})
        if seen is not None:
            rows[i]["seen"] = [seen[word] for word in words(references[i])]
    # The members of an ensemble attend to different positions; some models have no attention.
    alone = not isinstance(trained, TrainedEnsemble) and all(isinstance(x, str) for x in src)
    searches = trained.experiment.objective.record.searches
    if alone and searches and has_attention(trained.model, trained.params):
        for i in sorted({i for kind in picked(rows).values() for i in kind}):
            attention = _attention(trained, src[i], found[i])
            if attention is not None:
                rows[i]["attention"] = attention
    return rows


def shown(source: Any) -> str:
    """Return a source as a row has it: a text itself, the name of anything else."""
    return source if isinstance(source, str) else getattr(source, "name", "")


def words(line: str) -> list[str]:
    """Return the words of a line, without punctuation."""
    return re.findall(r"\w+", line)


def sentence_scores(
    hypotheses: Sequence[str], references: Sequence[str], config: EvaluationConfig
) -> list[dict[str, Any]]:
    """Return BLEU, chrF and the ROUGE in the config of each sentence alone, and the counts that
    `corpus_bleu` takes.
    """
    bleu, chrf = (sentence_metric(name, config) for name in ("BLEU", "chrF"))
    rouge = [sentence_metric(name, config) for name in config.metrics if name in TYPES]
    rows = []
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        one = bleu.sentence_score(hypothesis, [reference])
        other = chrf.sentence_score(hypothesis, [reference])
        scores = {"BLEU": round(one.score, 2), "chrF": round(other.score, 2)}
        for metric in rouge:
            found = metric.sentence_score(hypothesis, [reference])
            scores[metric.name] = round(found.score, 2)
        rows.append({**scores, "counts": [*one.counts, *one.totals, one.sys_len, one.ref_len]})
    return rows


def corpus_bleu(counts: Sequence[Sequence[int]]) -> BLEUScore:
    """Return the BLEU of several sentences, given their `counts`."""
    sums = np.sum(counts, axis=0).tolist()
    return BLEU.compute_bleu(sums[:4], sums[4:8], sums[8], sums[9], smooth_method="exp")


def picked(rows: Sequence[dict[str, Any]]) -> dict[str, list[int]]:
    """Return the indices of the sentences with the best and the worst chrF, ties going to the
    longest, and of random sentences, which are the same for every system.
    """
    order = sorted(
        range(len(rows)), key=lambda i: (-rows[i]["chrF"], -len(rows[i]["reference"]), i)
    )
    worst = sorted(order, key=lambda i: (rows[i]["chrF"], -len(rows[i]["reference"]), i))
    drawn = random.Random(0).sample(range(len(rows)), min(_PICKED, len(rows)))
    return {"best": order[:_PICKED], "worst": worst[:_PICKED], "random": sorted(drawn)}


def training_counts(experiment: Experiment, references: Sequence[str]) -> Counter[str] | None:
    """Return how often each word of the references occurs on the target side of the training text;
    None if it cannot be read, or only together with pictures or sounds. In a very large text,
    evenly spaced lines are counted.
    """
    if experiment.src.codec in VECTORS:
        return None
    try:
        corpora = sources.tasks(experiment.data, experiment.objective)
        text = sources.whole([*corpora.values()]).tgt
    except UserError:
        return None
    wanted = {word for line in references for word in words(line)}
    counts: Counter[str] = Counter()
    for line in text[:: -(-len(text) // _MOST_COUNTED)]:
        counts.update(word for word in words(line) if word in wanted)
    return counts


def _attention(trained: TrainedModel, source: str, found: Translation) -> dict[str, Any] | None:
    (ids,) = trained.tokenizers.src.encode([source])
    most = min(_MOST_PIECES, trained.translator().longest)
    if not found.ids or max(len(ids), len(found.ids)) > most:
        return None
    seen = cross_attention(trained.loaded, ids, found.ids)
    weights = (1000 * seen.weights).round().astype(int).tolist()
    return {"source": seen.source, "target": seen.target, "weights": weights}
