"""Reranking hypotheses.

Minimum Bayes risk (Eikema and Aziz 2020, arXiv:2005.10283): the hypotheses represent the model's
distribution, so the one most similar to all of them, by a sentence-level score, comes first.
"""

from collections.abc import Callable, Sequence

import numpy as np
from sacrebleu.metrics import BLEU, CHRF


def as_found(texts: Sequence[str]) -> list[int]:
    """Return the order of the search."""
    return list(range(len(texts)))


def by_score(metric: BLEU | CHRF) -> Callable[[Sequence[str]], list[int]]:
    """Return the function that orders texts by their mean score against all of them."""

    def order(texts: Sequence[str]) -> list[int]:
        # Equal texts have equal scores, and samples repeat often.
        distinct, place, counts = np.unique(texts, return_inverse=True, return_counts=True)
        gains = [
            sum(
                count * metric.sentence_score(text, [other]).score
                for other, count in zip(distinct.tolist(), counts.tolist(), strict=True)
            )
            for text in distinct.tolist()
        ]
        return np.argsort(-np.asarray(gains)[place], kind="stable").tolist()

    return order


RERANKERS = {
    "none": as_found,
    "chrf": by_score(CHRF()),
    "bleu": by_score(BLEU(effective_order=True)),
}
