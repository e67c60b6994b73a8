"""Scores: which value is better, which scores can be compared, and of which checkpoint they are.

A new score is one line in one of the tables; the value of `checkpoint.best_by` is a key of the
first.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from transformer_jax.base.errors import UserError
from transformer_jax.config.bounds import STEPS
from transformer_jax.config.choices.objectives import OBJECTIVES


class Metric(NamedTuple):
    """The title of a score and its direction."""

    title: str
    greater_is_better: bool
    shown: Callable[[float], float] = float  # the value as tables show it, under the title

    def gain(self, value: float) -> float:
        """Return a value, or a difference of two, signed so that greater is better."""
        return value if self.greater_is_better else -value

    def rank(self, value: float | None) -> float:
        """Return a sort key: the best first, unknown and non-finite values last."""
        return math.inf if value is None or not math.isfinite(value) else -self.gain(value)


def _perplexity(loss: float) -> float:
    return math.exp(min(loss, 700.0))  # loss: nats per piece


# Scores of a validation during training, by their names in its rows and in checkpoints.
VALIDATION = {
    "bleu": Metric("BLEU", greater_is_better=True),
    "loss": Metric("perplexity", greater_is_better=False, shown=_perplexity),
    "accuracy": Metric("accuracy", greater_is_better=True, shown=lambda share: 100 * share),
    "wer": Metric("WER", greater_is_better=False),
    "reward": Metric("reward", greater_is_better=True),
}


def standing(scores: Mapping[str, float], by: str) -> tuple[float, float]:
    """Return a sort key for the scores of a validation, by a name in VALIDATION, the best greatest:
    ties, as between perfect scores, go to the lower loss.
    """
    loss = scores.get("loss", math.inf)
    return VALIDATION[by].gain(scores[by]), -loss if math.isfinite(loss) else -math.inf


def validation(name: str, kind: str) -> Metric:
    """Return the metric of a name in VALIDATION, for an objective of this kind."""
    if name == "loss" and not in_nats(kind):
        return Metric("loss", greater_is_better=False)
    return VALIDATION[name]


def in_nats(kind: str) -> bool:
    """Return whether the loss of an objective of this kind is over pieces or classes, in nats."""
    return OBJECTIVES[kind].nats


# Scores of eval.py and compare, by their names in the files.
TRANSLATION = {
    "BLEU": Metric("BLEU", greater_is_better=True),
    "chrF": Metric("chrF", greater_is_better=True),
    "TER": Metric("TER", greater_is_better=False),
    "labelled_F1": Metric("labelled F1", greater_is_better=True),
    "WER": Metric("WER", greater_is_better=False),
    "CER": Metric("CER", greater_is_better=False),
    "ROUGE-1": Metric("ROUGE-1", greater_is_better=True),
    "ROUGE-2": Metric("ROUGE-2", greater_is_better=True),
    "ROUGE-L": Metric("ROUGE-L", greater_is_better=True),
    "ROUGE-Lsum": Metric("ROUGE-Lsum", greater_is_better=True),
    "exact_match": Metric("exact match, %", greater_is_better=True),
}
_GREATER = (
    "accuracy", "legal", "agreement", "precision", "recall", "f1", "pearson", "spearman",
    "next_sentence_accuracy", "return", "success", "return_correlation",
    "lddt", "margin", "reward_chosen", "reward_rejected", "reward",
)  # fmt: skip
# Ways to score a language model, by what precedes the names of their scores: by windows as in
# training, and by those that `evaluation.stride` and `evaluation.dynamic_rate` ask for.
WAYS = ("", "sliding_", "dynamic_")
_LIKELIHOOD = ("loss", "perplexity", "bits_per_character", "bits_per_byte")
_LESS = (
    *(f"{way}{name}" for way in WAYS for name in _LIKELIHOOD),
    "backward_loss", "backward_perplexity", "pseudo_perplexity", "next_sentence_loss",
    "mean_squared_error", "mse", "mae", "crps", "pixel_error", "frechet_distance",
)  # fmt: skip
# The same for models that do not translate.
PREDICTION = {name: Metric(name, name in _GREATER) for name in (*_GREATER, *_LESS)}

# Fields of evaluation: scores that differ in one of them cannot be compared.
PROTOCOL = ("bleu_tokenize", "lowercase", "rouge_stemmer")


class Gauge(NamedTuple):
    """What layers report of a training step besides the loss: one number of it, the gauge, is
    averaged over steps; the rest is a row of a file of its own.

    title: of its curve.
    shown: how the console shows it.
    details: the file's name, without the suffix, and what its rows call the reports of layers.
    steps: what checkpoints call the number of steps it is averaged over.
    """

    title: str
    shown: str
    details: tuple[str, str]
    steps: str


# By their names in metrics.jsonl. A gauge of 0 says that no layer reported anything.
GAUGES = {
    "busiest_expert": Gauge(
        "load of the busiest expert", "busiest expert {:.2f} x mean load",
        ("expert_loads", "loads"), "loaded",
    ),
}  # fmt: skip

# Of answers that a model wrote in order to learn from them, by their names in metrics.jsonl: the
# titles of their curves.
ROLLOUTS = {
    "reward": "reward",
    "kl": "divergence from the reference, nats a piece",
    "answer_length": "pieces of an answer",
    "equal_groups": "groups whose answers all earned the same",
    "cut_answers": "answers cut off",
}

# Of training.noise_scale, by their names in metrics.jsonl: the titles of their curves. The last is
# the first over the second: means of both over the steps of a row.
NOISE = {
    "gradient_noise": "variance of a token's gradient",
    "gradient_signal": "squared length of the true gradient",
    "noise_scale": "noise scale of the gradient, target tokens",
}


def average_count(checkpoint: str) -> int | None:
    """Return the N of the checkpoint name "average:N", or None for best, last and a step.

    Raises:
      UserError: if the name is none of these.
    """
    head, colon, tail = checkpoint.partition(":")
    number = tail if colon else head
    short = number.isdecimal() and len(number) <= len(str(STEPS))  # longer is not a step
    if head == "average" and colon and short and int(tail) > 0:
        return int(tail)
    if checkpoint in ("best", "last") or (short and not colon):
        return None
    raise UserError(f"checkpoint={checkpoint!r}: must be best, last, a step, or average:N")
