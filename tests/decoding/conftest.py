"""Searches over toy models are many small programs, each run briefly: compile them quickly."""

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def quick_to_compile():
    """Disable most XLA optimisations; what is computed stays the same."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
