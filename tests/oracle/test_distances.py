"""T5's distance buckets equal those of `transformers` (`make oracle`)."""

import numpy as np
import pytest

from transformer_jax.nn.relative_trained import t5_buckets

pytestmark = pytest.mark.oracle
SETTINGS = (32, 128), (32, 64), (32, 100), (8, 6), (4, 3), (64, 512), (16, 1000), (6, 77)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("count", "reach"), SETTINGS)
def test_t5_buckets(count, reach, bidirectional):
    """They agree at every distance, even far beyond the last bucket."""
    import torch
    from transformers.models.t5.modeling_t5 import T5Attention

    away = np.arange(-2000, 2001)
    theirs = T5Attention._relative_position_bucket(
        torch.from_numpy(away), bidirectional, count, reach
    )
    ours = t5_buckets(count, reach, bidirectional)[np.clip(away, -reach, reach) + reach]
    np.testing.assert_array_equal(ours, theirs.numpy())
