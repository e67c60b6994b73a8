"""How often a model says the right class of a text."""

import math
from typing import Any

from transformer_jax.api import TrainedModel
from transformer_jax.data.sources import Corpus
from transformer_jax.evaluation import gallery, moves
from transformer_jax.evaluation.metrics import interval
from transformer_jax.evaluation.run import Evaluation, described


def evaluate(trained: TrainedModel, corpus: Corpus, split: str, checkpoint: str) -> Evaluation:
    """Return the accuracy (%) and the loss (nats a text) on a split; a row for each text has its
    class, the likeliest one, and the probability of either. Of moves of chess see `moves.judged`.

    Raises:
      UserError: if the model is an ensemble, or a text of the split is of no class of training.
    """
    trained.tokenizers.tgt.encode(corpus.tgt)  # before the work
    found = trained.classify(corpus.src)
    rows: list[dict[str, Any]] = [
        {"line": number, "reference": label, "hypothesis": (best := next(iter(shares))),
         "probability": shares[best], "probability_of_reference": shares[label]}
        for number, (label, shares) in enumerate(zip(corpus.tgt, found, strict=True), 1)
    ]  # fmt: skip
    for place, drawn in gallery.shown(trained, corpus.src, rows).items():
        rows[place] |= drawn
    right = sum(row["hypothesis"] == row["reference"] for row in rows)
    low, high = (100 * end for end in interval(right, len(rows)))
    accuracy = 100 * right / len(rows)
    chances = [max(row["probability_of_reference"], 1e-45) for row in rows]
    loss = -math.fsum(map(math.log, chances)) / len(rows)
    scores: dict[str, dict[str, Any]] = {
        "accuracy": {"value": accuracy, "signature": "", "interval": [low, high]},
        "loss": {"value": loss, "signature": ""},
    }
    details = [
        f"accuracy = {accuracy:.2f} % ({right} of {len(rows)}), 95 % interval {low:.1f} to "
        f"{high:.1f} %",
        f"loss = {loss:.4f}",
    ]
    judged, rates, lines = moves.evaluated(trained, corpus.src, found)
    for row, one in zip(rows, judged, strict=False):  # none, if they are no moves
        row |= one
    scores, details = scores | rates, details + lines
    result = described(trained, corpus.tgt, split, checkpoint, scores, details)
    return Evaluation(result, [row["hypothesis"] for row in rows], rows)
