"""Word and character error rates from jiwer's alignments, as sacrebleu metrics, so that they have
bootstrap intervals and paired tests like BLEU.
"""

from collections.abc import Sequence
from importlib import metadata
from typing import Any

import jiwer
import numpy as np
from sacrebleu.metrics.base import Metric, Score, Signature


class ErrorRateScore(Score):
    """100 times the errors divided by the words, or characters, of the references."""

    def __init__(self, name: str, counts: Sequence[float]) -> None:
        substituted, deleted, inserted, length = map(float, counts)
        errors = substituted + deleted + inserted
        super().__init__(name, 100 * errors / max(length, 1))
        self._verbose = (
            f"({substituted:.0f} substituted, {deleted:.0f} deleted, {inserted:.0f} inserted, of "
            f"{length:.0f})"
        )


class ErrorRateSignature(Signature):
    """What was counted."""

    def __init__(self, args: dict[str, Any]) -> None:
        super().__init__(args)
        self._abbr |= {"case": "c", "unit": "u"}
        self.info |= {"case": "lc" if args["lowercase"] else "mixed", "unit": args["unit"]}
        self.info["version"] = f"jiwer-{metadata.version('jiwer')}"


class ErrorRate(Metric):
    """The minimum number of substitutions, deletions and insertions that turn the hypotheses into
    the references, divided by the references' length. Words are split at whitespace; nothing else
    is normalised.
    """

    _SIGNATURE_TYPE = ErrorRateSignature

    def __init__(self, name: str, lowercase: bool = False) -> None:
        super().__init__()
        self.name, self.lowercase = name, lowercase
        self.unit = "words" if name == "WER" else "characters"

    def _preprocess_segment(self, sent: str) -> str:
        line = " ".join(sent.split())
        return line.lower() if self.lowercase else line

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        return {"reference": refs[0]}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict) -> list[int]:
        reference, by_words = ref_kwargs["reference"], self.unit == "words"
        if not reference or not hypothesis:  # all insertions, or all deletions
            said, true = (len(x.split() if by_words else x) for x in (hypothesis, reference))
            return [0, true, said, true]
        counts: Any = (jiwer.process_words if by_words else jiwer.process_characters)(
            reference, hypothesis
        )
        wrong = counts.substitutions, counts.deletions, counts.insertions
        return [*wrong, counts.hits + counts.substitutions + counts.deletions]

    def _compute_score_from_stats(self, stats: Any) -> ErrorRateScore:
        return ErrorRateScore(self.name, stats)

    def _aggregate_and_compute(self, stats: Any) -> ErrorRateScore:
        return self._compute_score_from_stats(np.sum(stats, axis=0))
