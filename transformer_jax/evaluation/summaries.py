"""ROUGE of summaries (Lin 2004, https://aclanthology.org/W04-1013) by Google's `rouge-score`, as
sacrebleu metrics, and the first sentences of the documents as baselines.

The score of several summaries is the mean of their F-measures. Words are runs of a to z and digits,
in lower case and, with `evaluation.rouge_stemmer`, without their endings (Porter's stemmer for
English). Sentences, which only ROUGE-Lsum tells apart, end at line breaks, or at "<n>" in texts
that are one line.
"""

import functools
import re
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric, Score, Signature

from transformer_jax.base.errors import UserError
from transformer_jax.config import EvaluationConfig

# rouge-score's names. N: n-grams; L: the longest common subsequence; Lsum: the union of those of a
# sentence of the reference with each sentence of the summary.
TYPES = {
    "ROUGE-1": "rouge1", "ROUGE-2": "rouge2", "ROUGE-L": "rougeL", "ROUGE-Lsum": "rougeLsum",
}  # fmt: skip
LEADS = (1, 3)  # sentences
_BREAK = re.compile(r"\s*(?:<n>|[\r\n])\s*")
# A full stop, perhaps in quotes or brackets, before anything but a small letter; not that of an
# initial or a title.
_TITLES = ("Mr", "Ms", "Dr", "St", "Lt", "No", "vs", "Mrs", "Rev", "Gen", "Col", "Sen", "Rep",
           "Gov", "Prof", "Capt", "U.S", "U.K")  # fmt: skip
_NO_END = "".join(rf"(?<!\b{title}\.)" for title in (*map(re.escape, _TITLES), "[A-Z]"))
_END = re.compile(rf"(?:(?<=[.!?]){_NO_END}|(?<=[.!?][\"'”’)\]]))\s+(?![a-z])|(?<=[。！？])")
_DROPPED = 0.01  # share of letters, from which on words are no longer whole


@functools.cache
def _scorer(stemmer: bool) -> Any:
    try:
        from rouge_score.rouge_scorer import RougeScorer  # it loads all of NLTK
    except ImportError:
        raise UserError(
            "config.evaluation.metrics: ROUGE needs rouge-score: pip install rouge-score"
        ) from None
    return RougeScorer([*TYPES.values()], use_stemmer=stemmer)


@functools.lru_cache(2**16)
def _scores(reference: str, summary: str, stemmer: bool) -> dict[str, Any]:
    """Return the scores of all types: they share the words, and are asked for one by one."""
    return _scorer(stemmer).score(reference, summary)


def check(config: EvaluationConfig) -> None:
    """Check that the metrics can be computed.

    Raises:
      UserError: if one is ROUGE, and rouge-score is not installed.
    """
    if TYPES.keys() & {*config.metrics}:
        _scorer(config.rouge_stemmer)


class RougeScore(Score):
    """The mean F-measure (%) of summaries, with their mean precision and recall (%)."""

    def __init__(self, name: str, sums: Sequence[float]) -> None:
        precision, recall, f, summaries = map(float, sums)
        whole = max(summaries, 1)
        super().__init__(name, 100 * f / whole)
        self._verbose = (
            f"{100 * precision / whole:.1f}/{100 * recall / whole:.1f} (precision/recall, means "
            "over summaries)"
        )


class RougeSignature(Signature):
    """What was counted."""

    def __init__(self, args: dict[str, Any]) -> None:
        super().__init__(args)
        self._abbr |= {"case": "c", "stemmer": "st", "tok": "tok", "sentences": "sn"}
        self.info |= {"case": "lc", "stemmer": "porter" if args["stemmer"] else "no"}
        self.info |= {"tok": "ascii", "sentences": "lines"}
        self.info["version"] = f"rouge-score-{metadata.version('rouge-score')}"


class Rouge(Metric):
    """One type of ROUGE. A summary contributes its precision, recall and F-measure, from 0 to 1,
    and 1, so that sums over summaries give the means.
    """

    _SIGNATURE_TYPE = RougeSignature

    def __init__(self, name: str, stemmer: bool = True) -> None:
        super().__init__()
        self.name, self.stemmer = name, stemmer

    def _preprocess_segment(self, sent: str) -> str:
        return _BREAK.sub("\n", sent)

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"reference": refs[0]}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict) -> list[float]:
        scores = _scores(ref_kwargs["reference"], hypothesis, self.stemmer)
        return [*map(float, scores[TYPES[self.name]]), 1.0]

    def _compute_score_from_stats(self, stats: Any) -> RougeScore:
        return RougeScore(self.name, stats)

    def _aggregate_and_compute(self, stats: Any) -> RougeScore:
        return self._compute_score_from_stats(np.sum(stats, axis=0))


def dropped(lines: Sequence[str]) -> str | None:
    """Return what a warning says of texts with letters that ROUGE does not count; None: they have
    almost none.
    """
    letters = [sign for line in lines for sign in line.lower() if sign.isalpha()]
    lost = [sign for sign in letters if not sign.isascii()]
    if len(lost) <= _DROPPED * len(letters):
        return None
    return (
        f"takes only a to z and digits for parts of words, which {len(lost) / len(letters):.0%} of "
        f"the letters of the references are not, such as {max({*lost}, key=lost.count)!r}"
    )


def lead(document: str, count: int) -> str:
    """Return the first sentences of a document, on a line each. They end at line breaks ("<n>" too)
    and full stops, which are found by rule.
    """
    lines = _BREAK.split(document.strip())
    sentences = [x.strip() for line in lines for x in _END.split(line) if x.strip()]
    return "\n".join(sentences[:count])


def controls(
    documents: Sequence[str], references: Sequence[str], config: EvaluationConfig
) -> list[str]:
    """Return a line for each baseline, lead-1 and lead-3: its ROUGE, of the types in the config."""
    lines = []
    for count in LEADS:
        said = [lead(document, count) for document in documents]
        scores = [
            Rouge(name, config.rouge_stemmer).corpus_score(said, [references])
            for name in config.metrics
            if name in TYPES
        ]
        shown = ", ".join(f"{score.name} = {score.score:.1f}" for score in scores)
        lines.append(f"lead-{count} (the first {'sentence' if count == 1 else f'{count} sentences'}"
                     f" of the document): {shown}")  # fmt: skip
    return lines
