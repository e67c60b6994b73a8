"""Evaluation of classifiers: accuracy and loss."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from transformer_jax.api import TrainedModel
from transformer_jax.data.codecs import classes
from transformer_jax.data.sources import Corpus
from transformer_jax.evaluation import confusion, gallery, moves
from transformer_jax.evaluation.metrics import interval, is_right
from transformer_jax.evaluation.run import Evaluation, described, origin

_LEAST = 1e-45  # the smallest float32, in place of a probability that was rounded to 0


def evaluate(trained: TrainedModel, corpus: Corpus, split: str, checkpoint: str) -> Evaluation:
    """Return the accuracy (%) and the loss (nats per text) on a split, and of each class what
    `confusion.by_class` says; each text's row has its class, the likeliest class, and the
    probability of both. For chess moves see `moves.judged`.

    If a text has several classes, the prediction is right if it is one of them, and their
    probability is the geometric mean. Its own class is then the predicted one, or else the first.
    The loss is then the cross-entropy used in training, which is at least the logarithm of the
    number of classes of the text.

    Raises:
      UserError: if the model is an ensemble, or the class of a text does not occur in training.
    """
    codec = trained.tokenizers.tgt
    classes.check(codec, corpus.tgt, lambda number: f"{split}: line {number}")  # fail early
    probabilities = trained.classify(corpus.src)
    labels = [codec.pieces(ids) for ids in codec.encode(corpus.tgt)]
    rows = [*map(_row, itertools.count(1), corpus.src, corpus.tgt, labels, probabilities)]
    for place, drawn in gallery.shown(trained, corpus.src, rows).items():
        rows[place] |= drawn
    right = sum(map(is_right, rows))
    low, high = (100 * end for end in interval(right, len(rows)))
    accuracy = 100 * right / len(rows)
    loss = -math.fsum(math.log(row["probability_of_reference"]) for row in rows) / len(rows)
    scores: dict[str, dict[str, Any]] = {
        "accuracy": {"value": accuracy, "signature": "", "interval": [low, high]},
        "loss": {"value": loss, "signature": ""},
    }
    details = [
        f"accuracy = {accuracy:.2f} % ({right} of {len(rows)}), 95 % interval {low:.1f} to "
        f"{high:.1f} %",
        f"loss = {loss:.4f}",
    ]
    judged, rates, lines = moves.evaluated(trained, corpus.src, probabilities)
    for row, one in zip(rows, judged, strict=False):  # empty unless these are moves
        row |= one
    scores, details = scores | rates, details + lines
    said = [row["hypothesis"] for row in rows]
    true = [best if best in right else right[0] for best, right in zip(said, labels, strict=True)]
    of_classes = confusion.by_class(true, said)
    result = described(trained, corpus.tgt, split, checkpoint, scores, details)
    result["classes"] = of_classes
    return Evaluation(result, said, rows, notes=confusion.table(of_classes))


def _row(
    number: int, value: Any, line: str, labels: Sequence[str], shares: Mapping[str, float]
) -> dict[str, Any]:
    best, share = next(iter(shares)), 1 / len(labels)
    mean = math.prod(max(shares[label], _LEAST) ** share for label in labels)
    return {
        "line": number, **origin(value), "reference": line, "hypothesis": best,
        "right": best in labels, "probability": shares[best], "probability_of_reference": mean,
    }  # fmt: skip
