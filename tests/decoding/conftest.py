"""Searches over toys are many small programs that run for a moment: compile them quickly."""

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def quick_to_compile():
    """Let XLA optimise little; what is computed is the same."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
