"""Breakdowns of translation quality by length, by rare words and by sentence.

A system's rows are those of `evaluation.sentences`; all systems have the same references. BLEU is
computed on a group as a whole, chrF is the mean of its sentences.
"""

import bisect
import difflib
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from transformer_jax.evaluation.sentences import corpus_bleu, words

Rows = Sequence[dict[str, Any]]

# Upper ends of groups: words of a reference, and occurrences of a word in the training text.
_LENGTHS = (5, 10, 15, 20, 30, 50)
_COUNTS = (0, 1, 10, 100, 1000)


def by_length(systems: Sequence[Rows]) -> list[dict[str, Any]]:
    """Return the scores of sentences, grouped by the number of words in their reference."""
    return _grouped(systems, [len(words(row["reference"])) for row in systems[0]], _LENGTHS)


def by_rarest_word(systems: Sequence[Rows]) -> list[dict[str, Any]]:
    """Return the scores of sentences, grouped by the training-text count of the rarest word in
    their reference; [] if counts are unknown.
    """
    rarest = [min(row.get("seen", ()), default=None) for row in systems[0]]
    return _grouped(systems, rarest, _COUNTS)


def words_found(systems: Sequence[Rows]) -> list[dict[str, Any]]:
    """Return the percentage of reference words that a system's hypotheses contain, grouped by their
    training-text count; a word matches at most as often as the hypothesis has it.
    """
    rows = []
    for number, system in enumerate(systems):
        total: Counter[int] = Counter()
        hits: Counter[int] = Counter()
        for row in system:
            left = Counter(words(row["hypothesis"]))
            for word, seen in zip(words(row["reference"]), row.get("seen", ()), strict=False):
                group = bisect.bisect_left(_COUNTS, seen)
                total[group] += 1
                if left[word] > 0:
                    left[word] -= 1
                    hits[group] += 1
        rows += [
            {"system": number, "group": group, "label": _label(_COUNTS, group), "count": count,
             "found": round(100 * hits[group] / count, 2)}
            for group, count in sorted(total.items())
        ]  # fmt: skip
    return rows


def _grouped(
    systems: Sequence[Rows],
    values: Sequence[int | None],
    edges: Sequence[int],
) -> list[dict[str, Any]]:
    groups: dict[int, list[int]] = defaultdict(list)
    for i, value in enumerate(values):
        if value is not None:
            groups[bisect.bisect_left(edges, value)].append(i)
    rows = []
    for group, members in sorted(groups.items()):
        for number, system in enumerate(systems):
            bleu = corpus_bleu([system[i]["counts"] for i in members])
            chrf = statistics.fmean(system[i]["chrF"] for i in members)
            rows.append(
                {"system": number, "group": group, "label": _label(edges, group),
                 "count": len(members), "BLEU": round(bleu.score, 2), "chrF": round(chrf, 2),
                 "length ratio": round(bleu.sys_len / max(bleu.ref_len, 1), 3)}
            )  # fmt: skip
    return rows


def _label(edges: Sequence[int], group: int) -> str:
    if group == len(edges):
        return f">{edges[-1]}"
    low = edges[group - 1] + 1 if group else 0
    return str(low) if low == edges[group] else f"{low}–{edges[group]}"


def marks(reference: str, hypothesis: str) -> tuple[list[int], list[int]]:
    """Return the indices of reference words missing from the hypothesis, and of hypothesis words
    missing from the reference, when both are aligned.
    """
    one, other = reference.split(), hypothesis.split()
    missing, extra = set(range(len(one))), set(range(len(other)))
    for block in difflib.SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks():
        missing -= set(range(block.a, block.a + block.size))
        extra -= set(range(block.b, block.b + block.size))
    return sorted(missing), sorted(extra)
