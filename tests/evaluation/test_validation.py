"""Which sentences of the validation split are translated."""

from hypothesis import given
from hypothesis import strategies as st

from transformer_jax.evaluation.validation import spread


@given(st.integers(0, 300), st.integers(0, 300))
def test_they_are_spread_evenly(total, most):
    """As many as may be, none twice, and gaps that differ by one at most."""
    chosen = spread(total, most)
    assert len(chosen) == min(total, most)
    assert all(0 <= i < total for i in chosen)
    gaps = {b - a for a, b in zip(chosen, [*chosen[1:], total], strict=True)} if chosen else {1}
    assert min(gaps) >= 1
    assert max(gaps) - min(gaps) <= 1
