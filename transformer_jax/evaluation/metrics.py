"""BLEU and chrF through sacrebleu, always with the signature that says what was counted."""

from collections.abc import Sequence
from typing import NamedTuple

from sacrebleu.metrics import BLEU, CHRF

from transformer_jax.config import EvaluationConfig


class Score(NamedTuple):
    """One corpus score, 0 to 100."""

    name: str
    value: float
    details: str  # as sacrebleu prints it
    signature: str


def score(
    hypotheses: Sequence[str], references: Sequence[str], config: EvaluationConfig
) -> list[Score]:
    """Return BLEU (Papineni et al. 2002) and chrF (Popovic 2015) against raw references.

    Raises:
      ValueError: if the numbers of lines differ.
    """
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses for {len(references)} references")
    # force: with tokenize=none the text is tokenised on purpose, and the warning about it is noise.
    bleu = BLEU(tokenize=config.bleu_tokenize, lowercase=config.lowercase, force=True)
    chrf = CHRF(lowercase=config.lowercase)
    scores = []
    for name, metric in (("BLEU", bleu), ("chrF", chrf)):
        result = metric.corpus_score(list(hypotheses), [list(references)])
        signature = str(metric.get_signature())
        scores.append(Score(name, result.score, str(result), signature))
    return scores


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Return the percentage of hypotheses that equal their reference."""
    pairs = zip(hypotheses, references, strict=True)
    return 100 * sum(h == r for h, r in pairs) / max(len(references), 1)
