"""Labelled bracket F1 of constituency trees, counted as EVALB does (Collins 1997's settings).

Brackets match if they have the same label and span the same words; one that occurs twice has to be
found twice. A linearised tree has neither TOP nor parts of speech, so neither is counted. It has no
words either: punctuation counts like any other word unless the sentences are given with the trees.
It is then excluded from the spans, which EVALB does by part of speech and this module by word form.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sacrebleu.metrics.base import Metric, Score, Signature
from sacrebleu.utils import sum_of_lists

from transformer_jax.data.codecs.trees import WORD, fault
from transformer_jax.data.scripts import words_in

Bracket = tuple[str, int, int]  # label, first word, one past the last
# Words that the Penn Treebank tags as , : `` '' or . (Marcus et al. 1993).
PUNCTUATION = frozenset([",", ":", ";", "--", "-", "...", "``", "`", "''", "'", ".", "?", "!"])


def brackets(tree: Sequence[str], words: int) -> tuple[list[Bracket], bool]:
    """Return the brackets that are not empty, and whether the tree, which should have `words`
    words, had to be repaired.

    A closing bracket also closes those opened inside; one that closes nothing, and surplus words,
    are ignored. Missing words are added at the end, inside the brackets still open there.
    """
    repaired = fault(tree) is not None or tree.count(WORD) != words
    spans, stack, place = [], [], 0
    for piece in tree:
        if piece[0] == "(":
            stack.append((piece[1:], place))
        elif piece == WORD:
            place = min(place + 1, words)
        elif piece[0] == ")" and piece[1:] in (label for label, _ in stack):
            label = ""
            while label != piece[1:]:
                label, begin = stack.pop()
                spans.append((label, begin, place))
    spans += [(label, begin, words) for label, begin in stack]
    return [bracket for bracket in spans if bracket[1] < bracket[2]], repaired


class BracketScore(Score):
    """The F1 (%) of brackets, with their precision and recall (%)."""

    def __init__(self, right: int, said: int, true: int, repaired: int, trees: int) -> None:
        super().__init__("labelled F1", 200 * right / max(said + true, 1))
        self.precision, self.recall = 100 * right / max(said, 1), 100 * right / max(true, 1)
        self.repaired, self.trees = repaired, trees
        self._verbose = (
            f"{self.precision:.1f}/{self.recall:.1f} (precision/recall; "
            f"{repaired} of {trees} trees repaired)"
        )


class BracketSignature(Signature):
    """A signature that says whether punctuation counts."""

    def __init__(self, args: dict[str, Any]) -> None:
        super().__init__(args)
        self.info.update(nrefs=1, punctuation="no" if args["num_refs"] > 1 else "yes")
        self._abbr["punctuation"] = "p"


class BracketF1(Metric):
    """Labelled F1 as a sacrebleu metric, for its resampling and significance tests. References are
    the correct trees and, to exclude punctuation, their sentences.
    """

    _SIGNATURE_TYPE = BracketSignature

    def _preprocess_segment(self, sent: str) -> str:
        return sent

    def _extract_reference_info(self, refs: Sequence[str]) -> dict[str, Any]:
        tree = refs[0].split()
        words = tree.count(WORD)
        counted = (
            [word not in PUNCTUATION for word in words_in(refs[1])] if refs[1:] else [True] * words
        )
        places = [0, *(sum(counted[: i + 1]) for i in range(words))]
        return {"words": words, "places": places, "brackets": _moved(tree, words, places)[0]}

    def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: dict[str, Any]) -> list[int]:
        true = ref_kwargs["brackets"]
        said, repaired = _moved(hypothesis.split(), ref_kwargs["words"], ref_kwargs["places"])
        return [(said & true).total(), said.total(), true.total(), repaired, 1]

    def _compute_score_from_stats(self, stats: Sequence[Any]) -> BracketScore:
        return BracketScore(*map(int, stats))

    def _aggregate_and_compute(self, stats: list[list[int]]) -> BracketScore:
        return self._compute_score_from_stats(sum_of_lists(stats))


def _moved(tree: Sequence[str], words: int, places: Sequence[int]) -> tuple[Counter[Bracket], bool]:
    """Return brackets over the words that count; `places` has how many of those precede each."""
    spans, repaired = brackets(tree, words)
    moved = ((label, places[begin], places[end]) for label, begin, end in spans)
    return Counter(bracket for bracket in moved if bracket[1] < bracket[2]), repaired


def flat(words: int) -> str:
    """Return the tree with all words directly under one S."""
    return " ".join(["(S", *[WORD] * words, ")S"])


def right_branching(words: int) -> str:
    """Return the tree in which each word but the last has all words after it as its sister."""
    depth = max(words - 1, 1)
    return " ".join([*[f"(S {WORD}"] * (depth if words > 1 else 0), *["(S"] * (words == 1), WORD,
                     *[")S"] * depth])  # fmt: skip


CONTROLS = {"flat": flat, "right-branching": right_branching}


def details(
    hypotheses: Sequence[str], references: Sequence[str], sources: Sequence[str]
) -> list[str]:
    """Return lines on trees: F1 without punctuation, and F1 of the uninformed baselines."""
    without = BracketF1().corpus_score(hypotheses, [references, sources])
    lines = [f"without punctuation: {without}"]
    for name, tree in CONTROLS.items():
        guesses = [tree(len(words_in(line))) if line.strip() else "" for line in sources]
        both = (BracketF1().corpus_score(guesses, [references, *x]) for x in ([], [sources]))
        shown = " and ".join(f"{one.score:.1f}" for one in both)
        lines.append(f"{name} trees: labelled F1 = {shown} without punctuation")
    return lines
