"""Which way each score is better: whatever chooses, ranks or compares by a score asks here.

A new score is a line in one of the tables; the value of `checkpoint.best_by` is a key of the first.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple


class Metric(NamedTuple):
    """What a score is called and which way it is better."""

    title: str
    greater_is_better: bool
    shown: Callable[[float], float] = float  # the value as a table has it, under the title

    def gain(self, value: float) -> float:
        """Return a value, or the difference of two, such that greater is better."""
        return value if self.greater_is_better else -value

    def rank(self, value: float | None) -> float:
        """Return a key that sorts the best first, and what is not known or not finite last."""
        return math.inf if value is None or not math.isfinite(value) else -self.gain(value)


def _perplexity(loss: float) -> float:
    return math.exp(min(loss, 700.0))  # loss: nats a piece


# What each validation measures while training, under the names that its rows and checkpoints have.
VALIDATION = {
    "bleu": Metric("BLEU", greater_is_better=True),
    "loss": Metric("perplexity", greater_is_better=False, shown=_perplexity),
    "accuracy": Metric("accuracy", greater_is_better=True, shown=lambda share: 100 * share),
    "wer": Metric("WER", greater_is_better=False),
}


def standing(scores: Mapping[str, float], by: str) -> tuple[float, float]:
    """Return what puts the scores of validations in order, by a name in VALIDATION, the best the
    greatest: of those that are alike, as where all is right, the one with the least loss.
    """
    loss = scores.get("loss", math.inf)
    return VALIDATION[by].gain(scores[by]), -loss if math.isfinite(loss) else -math.inf


_NO_NATS = ("regress", "forecast", "reconstruct")  # whose loss is of numbers, and no cross-entropy


def validation(name: str, kind: str) -> Metric:
    """Return the metric of a name in VALIDATION, as an objective of this kind has it."""
    if name == "loss" and not in_nats(kind):
        return Metric("loss", greater_is_better=False)
    return VALIDATION[name]


def in_nats(kind: str) -> bool:
    """Say whether the loss of an objective of this kind is of pieces or classes, in nats."""
    return kind not in _NO_NATS


# What eval.py and compare measure, under the names that their files have.
TRANSLATION = {
    "BLEU": Metric("BLEU", greater_is_better=True),
    "chrF": Metric("chrF", greater_is_better=True),
    "TER": Metric("TER", greater_is_better=False),
    "labelled_F1": Metric("labelled F1", greater_is_better=True),
    "WER": Metric("WER", greater_is_better=False),
    "CER": Metric("CER", greater_is_better=False),
    "exact_match": Metric("exact match, %", greater_is_better=True),
}
_GREATER = (
    "accuracy", "legal", "agreement", "precision", "recall", "f1", "pearson", "spearman",
    "next_sentence_accuracy",
)  # fmt: skip
_LESS = (
    "loss", "perplexity", "bits_per_character", "bits_per_byte", "backward_loss",
    "backward_perplexity", "pseudo_perplexity", "next_sentence_loss", "mean_squared_error", "mse",
    "mae", "crps", "pixel_error",
)  # fmt: skip
# And what they measure of models that translate nothing, likewise.
PREDICTION = {name: Metric(name, name in _GREATER) for name in (*_GREATER, *_LESS)}
