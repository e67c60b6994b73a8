"""SQuAD scores match those of its evaluation script."""

import pytest

from transformer_jax.evaluation.answers import f1, normalised


@pytest.mark.parametrize(
    ("said", "right", "exact", "score"),
    [
        ("The Tower of London!", "tower of london", True, 1.0),
        ("Denver Broncos", "the Broncos", False, 2 / 3),
        ("a cat and a cat", "cat", False, 0.5),
        ("U.S.", "us", True, 1.0),
        ("in 1066", "1067", False, 0.0),
        ("another theory", "other theory", False, 0.5),  # articles are words of their own
    ],
)
def test_exact_match_and_f1(said, right, exact, score):
    assert (normalised(said) == normalised(right)) is exact
    assert f1(said, right) == f1(right, said) == pytest.approx(score)
