"""BLEU, chrF, TER and bracket F1 through sacrebleu, word and character error rates through jiwer,
ROUGE through rouge-score, always with the signature that says what was counted.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest

from transformer_jax.base.errors import UserError
from transformer_jax.config import EvaluationConfig, parts
from transformer_jax.config.registry import pick
from transformer_jax.data.scripts import are_words, is_japanese, without_spaces
from transformer_jax.data.texts import spread
from transformer_jax.evaluation import summaries
from transformer_jax.evaluation.error_rates import ErrorRate
from transformer_jax.evaluation.trees import BracketF1

_LOOKED_AT = 1000  # references
_UNSPACED = 0.3  # share of characters of scripts without spaces between words, to be looked at
NORMAL = 1.959964  # 95 % of a normal distribution lie within this many standard deviations

# transformer_jax/config/metrics.py says which way each metric is better.
METRICS: dict[str, Callable[[EvaluationConfig], Any]] = {
    "BLEU": lambda c: _bleu(c),
    "chrF": lambda c: CHRF(lowercase=c.lowercase),
    "TER": lambda _: TER(),  # by default without regard to case, unlike the others
    "labelled_F1": lambda c: BracketF1(),
    "WER": lambda c: ErrorRate("WER", c.lowercase),
    "CER": lambda c: ErrorRate("CER", c.lowercase),
    "ROUGE-1": lambda c: summaries.Rouge("ROUGE-1", c.rouge_stemmer),
    "ROUGE-2": lambda c: summaries.Rouge("ROUGE-2", c.rouge_stemmer),
    "ROUGE-L": lambda c: summaries.Rouge("ROUGE-L", c.rouge_stemmer),
    "ROUGE-Lsum": lambda c: summaries.Rouge("ROUGE-Lsum", c.rouge_stemmer),
}


def _bleu(config: EvaluationConfig) -> BLEU:
    # sacrebleu's name of the same model warns that it may be removed.
    name = "flores101" if config.bleu_tokenize == "spm" else config.bleu_tokenize
    # force: with "none" the text is already tokenised on purpose, so a warning of that is noise.
    return BLEU(tokenize=name, lowercase=config.lowercase, force=name == "none")


def check(config: EvaluationConfig) -> None:
    """Check that BLEU, and ROUGE if it is wanted, can be computed on this machine, before any work
    depends on them.

    Raises:
      UserError: if a library is not installed, or a tokenizer's model cannot be downloaded.
    """
    summaries.check(config)
    try:
        METRICS["BLEU"](config)
    except (OSError, SystemExit) as error:
        raise UserError(
            f"config.evaluation.bleu_tokenize={config.bleu_tokenize!r}: sacrebleu cannot download "
            f"its model ({error}); put it into ~/.sacrebleu/models, or choose 'char'"
        ) from None
    except (RuntimeError, ImportError) as error:
        language = config.bleu_tokenize.partition("-")[0]
        raise UserError(
            f"config.evaluation.bleu_tokenize={config.bleu_tokenize!r}: {error}; "
            f"pip install 'sacrebleu[{language}]'"
        ) from None


def unsuited(
    config: EvaluationConfig, names: Sequence[str], references: Sequence[str]
) -> list[str]:
    """Return a warning for each of the metrics named that takes whole phrases of these references
    for words, as of Chinese or Japanese text (it is near its worst for nearly perfect output), or
    that does not count their letters.
    """
    lines = [references[i] for i in spread(len(references), _LOOKED_AT)]
    problem = summaries.dropped(lines) if summaries.TYPES.keys() & {*names} else None
    problems = [f"evaluation.metrics: ROUGE {problem}; use chrF"] if problem else []
    if without_spaces(lines) < _UNSPACED:
        return problems
    words = {"BLEU": METRICS["BLEU"](config).tokenizer, "TER": str, "WER": str}
    languages = ["'zh' for Chinese", "'ja-mecab' for Japanese"]
    best = ", ".join(languages[::-1] if is_japanese(lines) else languages)
    remedies = {
        "BLEU": f"set it to {best}, or 'char' or 'spm' for any language",
        "TER": "use chrF", "WER": "use CER",
    }  # fmt: skip
    for name in words.keys() & {*names}:
        cut = " ".join(map(words[name], lines)).split()
        if not are_words(cut):
            field = f"bleu_tokenize={config.bleu_tokenize!r}" if name == "BLEU" else "metrics"
            problems.append(
                f"evaluation.{field}: takes whole phrases of the references for words, such as "
                f"{max(cut, key=len)[:20]!r}, so {name} says nothing about them; {remedies[name]}"
            )
    return sorted(problems)


def sentence_metric(name: str, config: EvaluationConfig) -> Any:
    """Return a metric for single sentences: with fewer than four words, BLEU uses the n-gram orders
    that the sentence has.
    """
    metric = METRICS[name](config)
    if isinstance(metric, BLEU):
        metric.effective_order = True
    return metric


def same(hypothesis: str, reference: str, lowercase: bool = False) -> bool:
    """Return whether two texts are equal as scores see them: whatever the spaces between and around
    words, and without regard to case if requested.
    """
    one, other = (" ".join(text.split()) for text in (hypothesis, reference))
    return one.lower() == other.lower() if lowercase else one == other


def interval(right: float, total: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a proportion (1927, https://doi.org/10.2307/2276774), which
    is valid for few texts and for proportions near 0 and 1 too.
    """
    z, share = NORMAL**2 / total, right / total
    middle = (share + z / 2) / (1 + z)
    half = math.sqrt(z * share * (1 - share) + z * z / 4) / (1 + z)
    # If none or all are right, that end is the proportion itself, which rounding would miss.
    return (middle - half if right else 0.0), (middle + half if right < total else 1.0)


def is_right(row: Mapping[str, Any]) -> bool:
    """Say whether a prediction is right; with several classes per text, the row itself says so."""
    return row.get("right", same(row["hypothesis"], row["reference"]))


class Score(NamedTuple):
    """One corpus score, 0 to 100."""

    name: str
    value: float
    details: str  # as sacrebleu prints it
    signature: str
    interval: tuple[float, float] | None  # contains 95 % of the bootstrap resamples


def score(
    hypotheses: Sequence[str],
    references: Sequence[str],
    config: EvaluationConfig,
    resamples: int = 0,
) -> list[Score]:
    """Return the scores named in the config, against raw references: BLEU (Papineni et al. 2002),
    chrF (Popovic 2015), TER (Snover et al. 2006), ROUGE (Lin 2004), WER, CER or a user-defined
    metric.

    With `resamples`, each sacrebleu metric has the mean and the 95 % interval of that many
    bootstrap resamples of the sentences (Koehn 2004), computed by sacrebleu.

    Raises:
      ValueError: if the numbers of lines differ.
    """
    if len(hypotheses) != len(references):
        raise ValueError(f"{len(hypotheses)} hypotheses for {len(references)} references")
    texts = list(hypotheses), list(references)
    scores = []
    for word in config.metrics:
        make = pick(METRICS, word, "config.evaluation.metrics")
        metric, part = make(config), parts.read(word)
        name = part.name if part else word
        result = metric.corpus_score(texts[0], [texts[1]])
        signature = str(metric.get_signature())
        interval = None
        if resamples and isinstance(metric, Metric):
            result._mean, result._ci = _resampled(make(config), *texts, resamples)
            interval = result._mean - result._ci, result._mean + result._ci
        scores.append(Score(name, result.score, str(result), signature, interval))
    return scores


def _resampled(
    metric: Any, hypotheses: list[str], references: list[str], resamples: int
) -> tuple[float, float]:
    """Return the mean of the resamples and half the width of their interval.

    This avoids `corpus_score`, whose mean fails if some resamples score a float and others a
    numpy.float32: the chrF of a resample without any match is the float 0.0.
    """
    if isinstance(metric, BLEU):
        metric._force = True  # the score itself has warned of text that looks tokenised
    system: Any = [("", hypotheses)]
    _, scores = PairedTest(system, {"": metric}, [references], "bs", resamples)()
    result: Any = list(scores.values())[-1][0]  # after the column with names
    return float(result.mean), float(result.ci)


def exact_match(
    hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False
) -> float:
    """Return the percentage of hypotheses that are the `same` as their reference."""
    pairs = zip(hypotheses, references, strict=True)
    return 100 * sum(same(h, r, lowercase) for h, r in pairs) / max(len(references), 1)
