"""The copying task: random letters to be reproduced, a test of memory."""

import random
import string

from transformer_jax.config import DataConfig
from transformer_jax.data.sources.spelled_numbers import SPLITS

_SEED = 20141020  # the corpus is the same for every experiment


def load(config: DataConfig, split: str) -> tuple[list[str], list[str]]:
    """Return the texts of a split, space-separated letters, the same on both sides."""
    number = SPLITS.index(split)
    chance, (least, most) = random.Random(f"{_SEED} {split}"), config.example_lengths
    texts = [
        " ".join(chance.choices(string.ascii_lowercase, k=chance.randint(least, most)))
        for _ in range(config.num_examples[number])
    ]
    return texts, texts
