"""The contribution of each unit of a split to each score that eval.py writes, and the score's test.

A unit is a row of eval/<split>.<checkpoint>.jsonl: a sentence, a text, a window, a picture. It
contributes some numbers, and a score is a function of their sums; correlations need all of them.
If a unit is either right or wrong, the test is McNemar's, which is exact; otherwise, as for the
labels of a sentence, which depend on each other, units are resampled (`paired`).

There is no test of the scores of other methods ("ridge_mse"), nor of a split's use of a codebook.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.base.arrays import Float
from transformer_jax.config import EvaluationConfig
from transformer_jax.config.choices.objectives import OBJECTIVES
from transformer_jax.config.metrics import WAYS
from transformer_jax.data.scripts import words_in
from transformer_jax.evaluation.metrics import METRICS, is_right, same
from transformer_jax.evaluation.tags import entities
from transformer_jax.reports.paired import Score, of_sums

Row = Mapping[str, Any]


class Unit(NamedTuple):
    """The contributions of rows to a score [n k], the score of these, and its test."""

    of: Callable[[Sequence[Row]], Sequence[Sequence[float]]]
    score: Score
    right_or_wrong: bool = False


def correlation(
    counts: Float[np.ndarray, "T n"], x: Float[np.ndarray, "..."], y: Float[np.ndarray, "..."]
) -> Float[np.ndarray, " T"]:
    """Return Pearson's correlation of numbers, each counted `counts` times."""
    total = counts.sum(1, keepdims=True)
    x, y = (z - (counts * z).sum(1, keepdims=True) / total for z in (x, y))
    with np.errstate(invalid="ignore", divide="ignore"):
        return (counts * x * y).sum(1) / np.sqrt((counts * x**2).sum(1) * (counts * y**2).sum(1))


def ranks(counts: Float[np.ndarray, "T n"], x: Float[np.ndarray, " n"]) -> Float[np.ndarray, "T n"]:
    """Return the ranks of numbers, each counted `counts` times; equal ones share the mean rank."""
    values, group = np.unique(x, return_inverse=True)
    order = np.argsort(group, kind="stable")
    begins = np.searchsorted(group[order], np.arange(len(values)))
    sizes = np.add.reduceat(counts[:, order], begins, axis=1)
    return (np.cumsum(sizes, axis=1) - (sizes - 1) / 2)[:, group]


def _pearson(counts: np.ndarray, units: np.ndarray) -> np.ndarray:
    return correlation(counts, *units.T)


def _spearman(counts: np.ndarray, units: np.ndarray) -> np.ndarray:
    return correlation(counts, *(ranks(counts, x) for x in units.T))


def _ratio(of: Callable[[Row], Sequence[float]], score: Callable = lambda share: share) -> Unit:
    """Return the unit of a numerator and a denominator, scored by the ratio of their sums."""
    whole = of_sums(lambda sums: score(sums[:, 0] / np.maximum(sums[:, 1], 1)))
    return Unit(lambda rows: [of(row) for row in rows], whole)


def _mean(of: Callable[[Row], float], score: Callable = lambda mean: mean) -> Unit:
    return _ratio(lambda row: (of(row), 1), score)


def _percent(share: np.ndarray) -> np.ndarray:
    return 100 * share


def _share(of: Callable[[Row], bool]) -> Unit:
    return _mean(of, _percent)._replace(right_or_wrong=True)


def _perplexity(loss: np.ndarray) -> np.ndarray:
    return np.exp(np.minimum(loss, 700.0))


def _labels_right(row: Row) -> tuple[int, int]:
    true, said = words_in(row["reference"]), words_in(row["hypothesis"])
    return sum(x == y for x, y in zip(true, said, strict=True)), len(true)


def _entities(row: Row) -> tuple[int, int, int]:
    """Return the numbers of correct, predicted and true entities."""
    true, said = (entities(words_in(row[key])) for key in ("reference", "hypothesis"))
    return len(true & said), len(said), len(true)


def _off(row: Row) -> float:
    return (float(row["hypothesis"]) - float(row["reference"])) ** 2


def _both(rows: Sequence[Row]) -> list[tuple[float, float]]:
    return [(float(row["hypothesis"]), float(row["reference"])) for row in rows]


def _per(unit: str, prefix: str = "") -> Unit:
    """Return the bits per character or byte; these are shared out to windows by their pieces."""
    return _ratio(lambda row: (
        -row[f"{prefix}log_prob"] / math.log(2), row["pieces"] / row["tokens"] * row[unit]
    ))  # fmt: skip


def _losses(prefix: str) -> dict[str, Unit]:
    def of(row: Row) -> tuple[float, int]:
        return -row[f"{prefix}log_prob"], row[f"{prefix}pieces"]

    return {f"{prefix}loss": _ratio(of), f"{prefix}perplexity": _ratio(of, _perplexity)}


def _likelihood(prefix: str) -> dict[str, Unit]:
    bits = {f"{prefix}bits_per_{unit}": _per(f"{unit}s", prefix) for unit in ("character", "byte")}
    return _losses(prefix) | bits


_MOVES = {name: _share(itemgetter(name)) for name in ("legal", "agreement")}
_CLASSES = _MOVES | {
    "accuracy": _share(is_right),
    "loss": _mean(lambda row: -math.log(max(row["probability_of_reference"], 1e-45))),
}
TEXTS = _MOVES | {"exact_match": _share(is_right)}
_LANGUAGE = {
    **{name: unit for way in WAYS for name, unit in _likelihood(way).items()},
    **_losses("backward_"), "pseudo_perplexity": _losses("pseudo_")["pseudo_perplexity"],
    "next_sentence_loss": _mean(lambda row: -row["next_sentence_log_prob"]),
    "next_sentence_accuracy": _share(lambda row: row["next_sentence_log_prob"] > math.log(0.5)),
}  # fmt: skip
# What scores a model, a module of evaluation/ -> score -> unit. Translations also have the scores
# in METRICS.
UNITS: dict[str, dict[str, Unit]] = {
    "run": TEXTS,
    "classes": _CLASSES,
    "tags": {
        "accuracy": _ratio(_labels_right, _percent),
        "loss": _ratio(lambda row: (-row["log_prob"], len(words_in(row["reference"])))),
        "precision": _ratio(lambda row: _entities(row)[:2], _percent),
        "recall": _ratio(lambda row: _entities(row)[::2], _percent),
        "f1": _ratio(lambda row: (2 * (found := _entities(row))[0], sum(found[1:])), _percent),
    },
    "answers": {
        "exact_match": _share(itemgetter("exact_match")),
        "f1": _mean(itemgetter("f1"), _percent),
    },
    "chat": {
        "exact_match": _share(itemgetter("exact_match")), "reward": _mean(itemgetter("reward")),
        **_losses(""),
    },
    "preferences": {
        "accuracy": _share(itemgetter("right")),
        "margin": _mean(lambda row: row["rewards"][0] - row["rewards"][1]),
    },
    "values": {
        "mean_squared_error": _mean(_off),
        "pearson": Unit(_both, _pearson), "spearman": Unit(_both, _spearman),
    },
    "forecasts": {
        name: _mean(itemgetter(name)) for name in ("mse", "mae", "crps", "coverage")
    },
    "distances": {name: _mean(itemgetter(name)) for name in ("lddt", "mae")},
    "reconstructions": {"pixel_error": _mean(itemgetter("mse"), np.sqrt)},
    "acting": {
        "return": _ratio(lambda row: (row["return"] * row["for_best"], row["for_best"])),
        "success": _ratio(
            lambda row: (row.get("success", False) * row["for_best"], row["for_best"]), _percent
        ),
    },
    "drawn": {"accuracy": _share(is_right), "loss": _mean(itemgetter("mse"))},
    "language": _LANGUAGE,
}  # fmt: skip


def table_of(kind: str) -> dict[str, Unit] | None:
    """Return the units of an objective of this kind; None: there is no such objective."""
    return UNITS[OBJECTIVES[kind].evaluated] if kind in OBJECTIVES else None


def units(kind: str, config: EvaluationConfig) -> dict[str, Unit]:
    """Return {score: its unit} for models with an objective of this kind."""
    table = table_of(kind) or {}
    if table is not TEXTS:
        return table

    def right(row: Row) -> bool:
        return same(row["hypothesis"], row["reference"], config.lowercase)

    return {n: _of_texts(n, config) for n in METRICS} | table | {"exact_match": _share(right)}


def _of_texts(name: str, config: EvaluationConfig) -> Unit:
    """Return the unit of a sacrebleu metric: the statistics of a sentence."""
    metric = METRICS[name](config)

    def of(rows: Sequence[Row]) -> Sequence[Sequence[float]]:
        said, true = ([row[key] for row in rows] for key in ("hypothesis", "reference"))
        return metric._extract_corpus_statistics(said, [true])

    def score(sums: np.ndarray) -> np.ndarray:
        return np.array([float(metric._compute_score_from_stats(row).score) for row in sums])

    return Unit(of, of_sums(score))
