"""Entities in labels are those that seqeval and conlleval find."""

import random

import pytest

from transformer_jax.evaluation.tags import entities, entity_scores

LABELS = ["O", *(f"{letter}-{kind}" for letter in "BIES" for kind in ("PER", "LOC"))]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("O O", set()),
        ("B-PER I-PER O B-LOC", {(0, 2, "PER"), (3, 4, "LOC")}),
        ("B-PER B-PER I-PER", {(0, 1, "PER"), (1, 3, "PER")}),
        ("I-PER I-PER I-LOC", {(0, 2, "PER"), (2, 3, "LOC")}),
        ("B-PER E-PER I-PER", {(0, 2, "PER"), (2, 3, "PER")}),
        ("S-PER I-PER O E-LOC", {(0, 1, "PER"), (1, 2, "PER"), (3, 4, "LOC")}),
        ("B-first-name I-first-name", {(0, 2, "first-name")}),
    ],
)
def test_entities_match_those_found_by_hand(labels, expected):
    assert entities(labels.split()) == expected


# Counts of seqeval 1.2.2: entities in both, in the second and in the first.
SEQEVAL = {1: (7, 20, 18), 2: (9, 23, 17), 3: (8, 20, 22)}


@pytest.mark.parametrize("seed", SEQEVAL)
def test_counts_match_seqeval(seed):
    """Recorded counts; it found the same entities in 20,000 random sequences of these labels."""
    choose = random.Random(seed)
    references, hypotheses = (
        [[LABELS[choose.randrange(9)] for _ in range(n)] for n in (7, 1, 12, 5)] for _ in range(2)
    )
    right, said, true = SEQEVAL[seed]
    assert entity_scores(references, hypotheses) == pytest.approx({
        "precision": 100 * right / said, "recall": 100 * right / true,
        "f1": 200 * right / (said + true),
    })  # fmt: skip


def test_scores_without_entities_are_zero():
    assert entity_scores([["O"]], [["O"]]) == {"precision": 0, "recall": 0, "f1": 0}
