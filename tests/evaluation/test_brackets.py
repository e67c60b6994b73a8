"""Labelled F1 on small trees: counted by hand, and as spans of words."""

import pytest

from transformer_jax.config import EvaluationConfig
from transformer_jax.data.codecs.trees import fault
from transformer_jax.evaluation.metrics import score
from transformer_jax.evaluation.trees import BracketF1, brackets, details, flat, right_branching

TRUE = "(S (NP XX XX )NP (VP XX (NP XX )NP )VP XX )S"
# The verb phrase includes the full stop, a noun phrase is missing, and one phrase is too many.
SAID = "(S (NP XX XX )NP (VP XX (PP XX )PP XX )VP )S"


def f1(said, true, *sentence):
    return BracketF1().sentence_score(said, [true, *sentence])


def test_f1_matches_counts_by_hand():
    found = f1(SAID, TRUE)
    assert found.score == pytest.approx(100 * 2 * 2 / (4 + 4))
    assert (found.precision, found.recall, found.repaired) == (50, 50, 0)
    assert f1(TRUE, TRUE).score == 100


def test_punctuation_is_ignored_where_the_sentence_is_given():
    """Then the verb phrase is right, and a bracket around punctuation alone does not count."""
    assert f1(SAID, TRUE, "the dog saw me .").score == pytest.approx(100 * 2 * 3 / (4 + 4))
    alone = SAID.replace("XX )VP", "(X XX )X )VP")
    assert f1(alone, TRUE, "the dog saw me .").score == pytest.approx(100 * 2 * 3 / (4 + 4))
    assert f1(alone, TRUE).score == pytest.approx(100 * 2 * 2 / (5 + 4))


def test_a_repeated_bracket_counts_twice():
    twice = "(S (NP (NP XX )NP )NP XX )S"
    assert f1("(S (NP XX )NP XX )S", twice).score == pytest.approx(100 * 2 * 2 / (2 + 3))
    assert f1(twice, twice).score == 100
    assert f1(twice, "(S (NP XX )NP XX )S").score == pytest.approx(100 * 2 * 2 / (3 + 2))


# Outputs for three words, and the brackets that are read from them.
REPAIRS = {
    "(S (NP XX )NP XX XX )S": ({("S", 0, 3), ("NP", 0, 1)}, False),
    "(S (NP XX XX XX )S": ({("S", 0, 3), ("NP", 0, 3)}, True),  # )S closes both
    "(S XX )NP XX XX )S": ({("S", 0, 3)}, True),  # closes nothing
    "(S (NP XX": ({("S", 0, 3), ("NP", 0, 3)}, True),  # cut off
    "(S (NP XX )NP": ({("S", 0, 3), ("NP", 0, 1)}, True),
    "(S XX XX XX XX (NP XX )NP )S": ({("S", 0, 3)}, True),  # too many words
    "(S XX (NP )NP XX XX )S": ({("S", 0, 3)}, True),  # holds nothing
    "(NP XX )NP (VP XX XX )VP": ({("NP", 0, 1), ("VP", 1, 3)}, True),
    "": (set(), True),
}  # fmt: skip


@pytest.mark.parametrize(("said", "expected"), REPAIRS.items(), ids=REPAIRS)
def test_malformed_trees_are_repaired(said, expected):
    found, repaired = brackets(said.split(), 3)
    assert ({*found}, repaired) == expected
    assert f1(said, flat(3)).repaired == repaired


def test_flat_and_right_branching_controls():
    """The controls are trees of as many words and find only the bracket of the sentence."""
    for words in range(1, 5):
        for tree in (flat(words), right_branching(words)):
            assert fault(tree.split()) is None
            assert tree.count("XX") == words
    assert right_branching(3) == "(S XX (S XX XX )S )S"
    without, *controls = details([TRUE], [TRUE], ["the dog saw me ."])
    assert "= 100.0" in without
    assert controls == [
        "flat trees: labelled F1 = 40.0 and 40.0 without punctuation",
        "right-branching trees: labelled F1 = 25.0 and 25.0 without punctuation",
    ]


def test_f1_is_resampled_like_other_metrics():
    """With an interval over sentences, and a signature that says what counts."""
    config = EvaluationConfig(metrics=("labelled_F1",))
    (found,) = score([SAID, TRUE] * 8, [TRUE] * 16, config, resamples=200)
    assert found.value == pytest.approx(75)
    low, high = found.interval
    assert 60 < low < 75 < high < 90
    assert "punctuation:yes" in found.signature
    assert "0 of 16 trees repaired" in found.details
