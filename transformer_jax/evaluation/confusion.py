"""What a classifier takes for what: the confusion matrix, and the scores of each class."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

_MOST = 100  # classes of a matrix
_PAIRS = 50  # of confused classes, at most
_SHOWN = 30  # classes in a printed table


def by_class(true: Sequence[str], said: Sequence[str]) -> dict[str, Any]:
    """Return what an evaluation stores of the classes that occur in a split or were predicted:

    scores      for each, by name: class, precision, recall, f1 (%), count (of the split) and
                predicted (how often); null where there is nothing to divide by
    confusions  [class, predicted class, count], the most frequent first, at most 50
    confusion   the matrix [class][predicted class], in the order of the scores, of up to 100
                classes; null for more
    """
    pairs = Counter(zip(true, said, strict=True))
    of_split, of_model = Counter(true), Counter(said)
    names = sorted(of_split.keys() | of_model.keys())
    wrong = [(*pair, count) for pair, count in pairs.items() if pair[0] != pair[1]]
    scores = []
    for name in names:
        right, count, predicted = pairs[name, name], of_split[name], of_model[name]
        scores.append({
            "class": name, "precision": _percent(right, predicted),
            "recall": _percent(right, count), "f1": _percent(2 * right, count + predicted),
            "count": count, "predicted": predicted,
        })  # fmt: skip
    matrix = [[pairs[one, other] for other in names] for one in names]
    return {
        "scores": scores,
        "confusions": sorted(wrong, key=lambda row: (-row[2], row[:2]))[:_PAIRS],
        "confusion": matrix if len(names) <= _MOST else None,
    }


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def table(found: dict[str, Any]) -> list[str]:
    """Return the scores of each class as lines to be printed, the most frequent classes first, and
    the three most frequent confusions.
    """
    scores = sorted(found["scores"], key=lambda row: -row["count"])
    width = max(map(len, [*(row["class"] for row in scores[:_SHOWN]), "class"]))
    lines = [f"{'class':<{width}}  precision  recall     f1  count"]
    for row in scores[:_SHOWN]:
        numbers = (("precision", 9), ("recall", 6), ("f1", 5))
        cells = [
            f"{'-' if row[name] is None else format(row[name], '.1f'):>{size}}"
            for name, size in numbers
        ]
        lines.append(f"{row['class']:<{width}}  {'  '.join(cells)}  {row['count']:>5}")
    if len(scores) > _SHOWN:
        lines.append(f"and {len(scores) - _SHOWN:,} more classes, in the .json file")
    worst = [f"{one} as {other} ({count})" for one, other, count in found["confusions"][:3]]
    return lines + [f"confused most: {', '.join(worst)}"] * bool(worst)
