"""Fixtures for the data tests: small corpora and tokenised stores."""

from collections.abc import Callable

import numpy as np
import pytest

from transformer_jax.base.vocabulary import EOS, RESERVED
from transformer_jax.config import DataConfig
from transformer_jax.data.batches.batch import Ragged
from transformer_jax.data.sources import Corpus, spelled_numbers
from transformer_jax.data.store.token_store import TokenStore


@pytest.fixture(scope="session")
def numbers() -> Corpus:
    """150 spelled-out numbers, German to English."""
    config = DataConfig(
        source="spelled_numbers", source_language="de", target_language="en",
        num_examples=(150, 1, 1), max_number=100_000,
    )  # fmt: skip
    return Corpus(*spelled_numbers.load(config, "train"), fingerprint="numbers")


@pytest.fixture(scope="session")
def make_store() -> Callable[..., TokenStore]:
    """Return a function that makes a store of random ids with given or random lengths."""

    def side(lengths, generator) -> Ragged:
        lists = [[*generator.integers(RESERVED, 99, n - 1).tolist(), EOS] for n in lengths]
        return Ragged.from_lists(lists)

    def make(src=None, tgt=None, *, count=300, longest=40, seed=0) -> TokenStore:
        generator = np.random.default_rng(seed)
        if src is None:
            src = generator.integers(2, longest + 1, count)
            tgt = np.clip(src + generator.integers(-5, 6, count), 2, longest)
        return TokenStore(side(src, generator), side(tgt, generator))

    return make
