"""Evaluation of answers: exact match and F1 of SQuAD (Rajpurkar et al. 2016, arXiv:1606.05250)."""

import re
import string
from collections import Counter
from typing import Any

from transformer_jax.api import TrainedModel
from transformer_jax.data.sources import Corpus
from transformer_jax.data.sources.questions import answers_of
from transformer_jax.evaluation.metrics import interval
from transformer_jax.evaluation.run import Evaluation, described

_SIGNS = str.maketrans("", "", string.punctuation)


def evaluate(trained: TrainedModel, corpus: Corpus, split: str, checkpoint: str) -> Evaluation:
    """Return exact match and F1 (%), each the maximum over the right answers; each question's row
    has the first right answer, the predicted one, and both scores.

    Raises:
      UserError: if the model is an ensemble.
    """
    questions, _, contexts = zip(*(line.partition("\t") for line in corpus.src), strict=True)
    predicted = trained.answer(questions, contexts)
    rows = []
    for number, (line, said) in enumerate(zip(corpus.tgt, predicted, strict=True), 1):
        right = answers_of(line.partition("\t")[2])
        rows.append({
            "line": number, "reference": right[0], "hypothesis": said.text,
            "exact_match": max(normalised(said.text) == normalised(x) for x in right),
            "f1": max(f1(said.text, x) for x in right), "log_prob": said.log_prob,
        })  # fmt: skip
    exact, total = sum(row["exact_match"] for row in rows), len(rows)
    low, high = (100 * end for end in interval(exact, total))
    mean = 100 * sum(row["f1"] for row in rows) / total
    scores: dict[str, dict[str, Any]] = {
        "exact_match": {"value": 100 * exact / total, "signature": "", "interval": [low, high]},
        "f1": {"value": mean, "signature": ""},
    }
    details = [
        f"exact match = {100 * exact / total:.2f} % ({exact} of {total}), 95 % interval "
        f"{low:.1f} to {high:.1f} %",
        f"f1 = {mean:.2f}",
    ]
    result = described(trained, corpus.tgt, split, checkpoint, scores, details)
    return Evaluation(result, [row["hypothesis"] for row in rows], rows)


def normalised(text: str) -> str:
    """Return a text in lower case, without punctuation and articles, with single spaces."""
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(_SIGNS)).split())


def f1(said: str, right: str) -> float:
    """Return the harmonic mean of word precision and recall."""
    one, other = normalised(said).split(), normalised(right).split()
    common = (Counter(one) & Counter(other)).total()
    return 2 * common / (len(one) + len(other)) if common else 0.0
