"""Evaluation of regression: mean squared error and correlations."""

from typing import Any

import numpy as np

from transformer_jax.api import TrainedModel
from transformer_jax.data.sources import Corpus
from transformer_jax.evaluation.run import Evaluation, described, origin


def evaluate(trained: TrainedModel, corpus: Corpus, split: str, checkpoint: str) -> Evaluation:
    """Return the mean squared error, on the numbers' own scale, and Pearson's and Spearman's
    correlations, unless all numbers are equal; each text's row has its number and the predicted
    one.

    Raises:
      UserError: if the model is an ensemble.
    """
    said, true = np.array(trained.value(corpus.src)), np.array([float(x) for x in corpus.tgt])
    values = {
        "mean_squared_error": float(np.mean((said - true) ** 2)),
        "pearson": correlation(said, true),
        "spearman": correlation(ranks(said), ranks(true)),
    }
    scores: dict[str, dict[str, Any]] = {
        name: {"value": value, "signature": ""}
        for name, value in values.items()
        if not np.isnan(value)
    }
    details = [f"{name} = {score['value']:.4f}" for name, score in scores.items()]
    result = described(trained, corpus.tgt, split, checkpoint, scores, details)
    hypotheses = [f"{value:.9g}" for value in said.tolist()]
    rows = [
        {"line": number, **origin(value), "reference": reference, "hypothesis": hypothesis}
        for number, (value, reference, hypothesis) in enumerate(
            zip(corpus.src, corpus.tgt, hypotheses, strict=True), 1
        )
    ]
    return Evaluation(result, hypotheses, rows)


def correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Return Pearson's correlation; NaN if either array is constant."""
    one, other = one - one.mean(), other - other.mean()
    with np.errstate(invalid="ignore"):
        return float((one * other).sum() / np.sqrt((one**2).sum() * (other**2).sum()))


def ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each number; equal numbers share the mean of their ranks."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[place]
