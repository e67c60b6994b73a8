"""Evaluation of language models: loss, perplexity, bits per character and per byte."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from transformer_jax.api import TrainedEnsemble, TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.data.sources import Corpus
from transformer_jax.decoding.loaded import Loaded
from transformer_jax.decoding.text.next_sentence import validated
from transformer_jax.decoding.text.score import (
    backward_log_probs,
    pseudo_log_probs,
    validation_log_probs,
)
from transformer_jax.evaluation.dynamic import dynamic_log_probs
from transformer_jax.evaluation.run import Evaluation
from transformer_jax.evaluation.sliding import sliding_log_probs
from transformer_jax.evaluation.validation import text_units

_More = tuple[dict[str, float], list[dict[str, Any]]]  # scores, and what rows have of them
_POSITIONS = 2**20  # to compute for a pseudo-perplexity; takes minutes with a small model


def evaluate(trained: TrainedModel, corpus: Corpus, split: str, checkpoint: str) -> Evaluation:
    """Return the scores of a language model on a split; each window's row has the number of pieces
    predicted and their log-probability (nats).

    Each piece counts once, including EOS if documents are lines. Windows are those of training, so
    the first pieces of a window have less context than its last; with `evaluation.stride` windows
    that overlap are scored too. Scores per character and per byte are left out if the codec does
    not preserve the text.

    If the objective corrupts its input, the pieces that count are those predicted in validation,
    which are always the same. The pseudo-perplexity of a masked language model masks pieces one at
    a time, in some of the windows. If the model also predicts next sentences, half of the pairs are
    drawn as in validation. With `evaluation.dynamic_rate`, dynamic evaluation is scored too.

    Raises:
      UserError: if the model is an ensemble.
    """
    if isinstance(trained, TrainedEnsemble):
        raise UserError(
            "cannot score an ensemble of language models: load one checkpoint of one --workdir"
        )
    experiment, codec = trained.experiment, trained.tokenizers.tgt
    log_probs = validation_log_probs(trained.loaded, corpus.tgt)
    tokens = sum(map(len, log_probs))
    units = text_units(experiment, codec, corpus)
    values = _losses("", log_probs, units)
    rows = [{"line": number, **_summed("", x)} for number, x in enumerate(log_probs, 1)]
    if experiment.objective.record.also is not None:
        more, of_rows = ALSO[experiment.objective.record.also](trained.loaded, corpus.tgt)
        values |= more
        rows = [row | x for row, x in zip(rows, of_rows, strict=True)]
    for prefix, found in _otherwise(trained, corpus.tgt).items():
        values |= _losses(prefix, found, units)
        rows = [row | _summed(prefix, x) for row, x in zip(rows, found, strict=True)]
    result = {
        "split": split,
        "checkpoint": checkpoint,
        "steps": trained.steps,
        "sentences": len(corpus),
        "tokens": tokens,
        "counted": experiment.objective.record.counted,
        **{f"{name}s": count for name, count in units.items()},
        "scores": {name: {"value": value, "signature": ""} for name, value in values.items()},
        "details": [f"{name} = {value:.4f}" for name, value in values.items()],
        "decoding": None,
        "evaluation": asdict(experiment.evaluation),
        "references": corpus.fingerprint,
    }
    return Evaluation(result, None, rows, f"{tokens:,} pieces, {result['counted']}")


def _otherwise(trained: TrainedModel, texts: Sequence[str]) -> dict[str, list[np.ndarray]]:
    """Return {prefix: log-probabilities by window} of the other ways to score that are asked for:
    from overlapping windows, and by a model that learns from each window.
    """
    config, ways = trained.experiment.evaluation, {}
    if config.stride is not None:
        ways["sliding_"] = sliding_log_probs(trained.loaded, texts, config.stride)
    if config.dynamic_rate is not None:
        rates = config.dynamic_rate, config.dynamic_decay
        ways["dynamic_"] = dynamic_log_probs(trained.loaded, texts, *rates)
    return ways


def _losses(
    prefix: str, log_probs: Sequence[np.ndarray], units: Mapping[str, int]
) -> dict[str, float]:
    """Return the loss, its perplexity, and the bits for each unit of the text."""
    nll = -math.fsum(map(math.fsum, log_probs))
    loss = nll / sum(map(len, log_probs))
    values = {"loss": loss, "perplexity": math.exp(min(loss, 700.0))}
    values |= {f"bits_per_{name}": nll / math.log(2) / count for name, count in units.items()}
    return {f"{prefix}{name}": value for name, value in values.items()}


def _summed(prefix: str, log_probs: np.ndarray) -> dict[str, Any]:
    return {
        f"{prefix}pieces": len(log_probs), f"{prefix}log_prob": float(log_probs.sum(dtype=float))
    }  # fmt: skip


def _backward(loaded: Loaded, texts: Sequence[str]) -> _More:
    """Return the scores of each piece given those after it, and what rows have of them."""
    behind = backward_log_probs(loaded, texts)
    loss = -float(np.concatenate(behind).mean())
    values = {"backward_loss": loss, "backward_perplexity": math.exp(min(loss, 700.0))}
    return values, [_summed("backward_", x) for x in behind]


def _pseudo(loaded: Loaded, texts: Sequence[str]) -> _More:
    """Return the score of each piece masked alone, in some windows, and what rows have of it."""
    alone = pseudo_log_probs(loaded, texts, _POSITIONS)
    loss = -float(np.concatenate(alone).mean())
    values = {"pseudo_perplexity": math.exp(min(loss, 700.0))}
    return values, [_summed("pseudo_", x) for x in alone]


def _next_sentence(loaded: Loaded, texts: Sequence[str]) -> _More:
    """Return the scores of predicting next sentences, and what rows have of them."""
    right = np.log(0.5) < (said := validated(loaded, texts))
    values = {
        "next_sentence_loss": -float(said.mean()),
        "next_sentence_accuracy": 100 * float(right.mean()),
    }
    return values, [{"next_sentence_log_prob": x} for x in said.tolist()]


# By what the record of an objective says that its scores also have.
ALSO = {"backward": _backward, "pseudo": _pseudo, "next_sentence": _next_sentence}
