"""Evaluation of taggers: accuracy of words, precision, recall and F1 of entities."""

import math
import re
from collections.abc import Sequence
from typing import Any

from transformer_jax.api import TrainedEnsemble, TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.data.scripts import words_in
from transformer_jax.data.sources import Corpus
from transformer_jax.decoding.text.tag import tag
from transformer_jax.evaluation import confusion
from transformer_jax.evaluation.metrics import interval
from transformer_jax.evaluation.run import Evaluation, described

_OF_ENTITIES = re.compile(r"O|[BIES]-.+")


def evaluate(trained: TrainedModel, corpus: Corpus, split: str, checkpoint: str) -> Evaluation:
    """Return the accuracy of words (%), the loss (nats per word) and, if the labels mark entities,
    like B-PER and I-PER, their precision, recall and F1 (%), and of each label what
    `confusion.by_class` says. Each text's row has its labels, their log-probability (nats), and the
    predicted labels.

    Raises:
      UserError: if the model is an ensemble, or a label of the split does not occur in training.
    """
    if isinstance(trained, TrainedEnsemble):
        raise UserError("cannot score an ensemble of taggers: load one checkpoint of one --workdir")
    tagged = tag(trained.loaded, corpus.src, corpus.tgt)
    references = [words_in(line) for line in corpus.tgt]
    hypotheses = [one.labels for one in tagged]
    true, said = ([x for labels in side for x in labels] for side in (references, hypotheses))
    right, total = sum(x == y for x, y in zip(true, said, strict=True)), len(true)
    low, high = (100 * end for end in interval(right, total))
    accuracy = 100 * right / total
    loss = -math.fsum(math.fsum(one.log_probs) for one in tagged) / total
    scores: dict[str, dict[str, Any]] = {
        "accuracy": {"value": accuracy, "signature": "", "interval": [low, high]},
        "loss": {"value": loss, "signature": ""},
    }
    details = [
        f"accuracy = {accuracy:.2f} % ({right} of {total} words), 95 % interval {low:.1f} to "
        f"{high:.1f} %",
        f"loss = {loss:.4f}",
    ]
    if all(map(_OF_ENTITIES.fullmatch, true)):
        of_entities = entity_scores(references, hypotheses)
        signature = "entities as conlleval has them"
        scores |= {k: {"value": v, "signature": signature} for k, v in of_entities.items()}
        details += [f"{name} = {value:.2f} % of entities" for name, value in of_entities.items()]
    of_labels = confusion.by_class(true, said)
    result = described(trained, corpus.tgt, split, checkpoint, scores, details)
    result["classes"] = of_labels
    lines = [" ".join(labels) for labels in hypotheses]
    rows = [
        {"line": number, "reference": label, "hypothesis": line,
         "log_prob": math.fsum(one.log_probs)}
        for number, (label, line, one) in enumerate(zip(corpus.tgt, lines, tagged, strict=True), 1)
    ]  # fmt: skip
    return Evaluation(result, lines, rows, notes=confusion.table(of_labels))


def entities(labels: Sequence[str]) -> set[tuple[int, int, str]]:
    """Return (first word, one past the last, kind) of each entity.

    Entities are those of conlleval (CoNLL shared tasks) and of seqeval's default mode, for any
    scheme of B, I, E and S: I or E continues an entity if B or I of the same kind precedes it, and
    begins one otherwise.
    """
    spans: list[tuple[int, int, str]] = []
    before, kind_before = "O", ""
    for place, label in enumerate(labels):
        letter, _, kind = label.partition("-")
        goes_on = letter in "IE" and before in "BI" and kind == kind_before
        if goes_on:
            spans[-1] = (spans[-1][0], place + 1, kind)
        elif letter != "O":
            spans.append((place, place + 1, kind))
        before, kind_before = letter, kind
    return set(spans)


def entity_scores(
    references: Sequence[Sequence[str]], hypotheses: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Return precision, recall and F1 of entities, over all texts (%)."""
    right = said = true = 0
    for one, other in zip(references, hypotheses, strict=True):
        wanted, predicted = entities(one), entities(other)
        right, said, true = (
            right + len(wanted & predicted),
            said + len(predicted),
            true + len(wanted),
        )
    return {
        "precision": 100 * right / max(said, 1),
        "recall": 100 * right / max(true, 1),
        "f1": 200 * right / max(said + true, 1),
    }
