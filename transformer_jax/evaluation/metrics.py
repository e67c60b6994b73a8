"""BLEU, chrF and TER through sacrebleu, always with the signature that says what was counted."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sacrebleu.metrics import BLEU, CHRF, TER

from transformer_jax.config import EvaluationConfig
from transformer_jax.errors import UserError

# force: with tokenize=none the text is tokenised on purpose, and the warning about it is noise.
METRICS: dict[str, Callable[[EvaluationConfig], Any]] = {
    "BLEU": lambda c: BLEU(tokenize=c.bleu_tokenize, lowercase=c.lowercase, force=True),
    "chrF": lambda c: CHRF(lowercase=c.lowercase),
    "TER": lambda c: TER(case_sensitive=not c.lowercase),
}


def check(config: EvaluationConfig) -> None:
    """Refuse a BLEU that cannot be computed here, before anything waits for it.

    Raises:
      UserError: if a tokenizer is not installed.
    """
    try:
        METRICS["BLEU"](config)
    except (RuntimeError, ImportError) as error:
        language = config.bleu_tokenize.partition("-")[0]
        raise UserError(
            f"config.evaluation.bleu_tokenize={config.bleu_tokenize!r}: {error}; "
            f"pip install 'sacrebleu[{language}]'"
        ) from None


def sentence_metric(name: str, config: EvaluationConfig) -> Any:
    """Return a metric for single sentences: BLEU of one shorter than four words counts what n-grams
    it has.
    """
    metric = METRICS[name](config)
    if isinstance(metric, BLEU):
        metric.effective_order = True
    return metric


class Score(NamedTuple):
    """One corpus score, 0 to 100."""

    name: str
    value: float
    details: str  # as sacrebleu prints it
    signature: str
    interval: tuple[float, float] | None  # 95 % of the bootstrap resamples lie in it


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    config: EvaluationConfig,
    resamples: int = 0,
) -> list[Score]:
    """Return BLEU (Papineni et al. 2002) and chrF (Popovic 2015) against raw references.

    With `resamples`, each has the mean and the 95 % interval of so many bootstrap resamples of the
    sentences (Koehn 2004), by sacrebleu.

    Raises:
      ValueError: if the numbers of lines differ.
    """
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses for {len(references)} references")
    scores = []
    for name in ("BLEU", "chrF"):
        metric = METRICS[name](config)
        result = metric.corpus_score(list(hypotheses), [list(references)])
        signature = str(metric.get_signature())
        interval = None
        if resamples:
            result = METRICS[name](config).corpus_score(
                list(hypotheses), [list(references)], n_bootstrap=resamples
            )
            mean, half = float(result._mean), float(result._ci)
            interval = mean - half, mean + half
        scores.append(Score(name, result.score, str(result), signature, interval))
    return scores


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Return the percentage of hypotheses that equal their reference."""
    pairs = zip(hypotheses, references, strict=True)
    return 100 * sum(h == r for h, r in pairs) / max(len(references), 1)
