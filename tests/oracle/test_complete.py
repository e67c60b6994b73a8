"""Every value of a model's config has an independent check; run by default, without torch."""

from collections.abc import Collection

import pytest
from oracle.cases import CASES, FUSED
from oracle.stems import STEMS

from transformer_jax.config import ModelConfig
from transformer_jax.models.build import MODELS
from transformer_jax.models.encoder import POOLINGS
from transformer_jax.models.layers import FEED_FORWARDS
from transformer_jax.models.recurrent import RECURRENCES
from transformer_jax.models.stack import SHARINGS
from transformer_jax.nn import stems
from transformer_jax.nn.distributions import DISTRIBUTIONS
from transformer_jax.nn.embedding import EMBEDDING_NORMS
from transformer_jax.nn.experts import EXPERT_SCORES
from transformer_jax.nn.feedforward import ACTIVATIONS
from transformer_jax.nn.mixers.attention import GATES, KERNELS, SCORE_SCALES
from transformer_jax.nn.mixers.heads import QUERY_KEY_NORMS
from transformer_jax.nn.mixers.kinds import MIXERS
from transformer_jax.nn.norm import NORMS
from transformer_jax.nn.positions import POSITIONS
from transformer_jax.nn.relative_fixed import ROPE_SCALINGS
from transformer_jax.nn.relative_positions import RELATIVE_POSITIONS
from transformer_jax.nn.residual import RESIDUALS
from transformer_jax.nn.source_attention import SOURCE_ATTENTIONS
from transformer_jax.nn.stems import SERIES_NORMS

CONFIGS = [*(case.config for case in (*CASES.values(), *FUSED.values())), *STEMS]
TABLES: dict[str, Collection[str]] = {
    "architecture": MODELS,
    "pooling": POOLINGS,
    "stem": stems.STEMS,
    "grid_positions": stems.GRID_POSITIONS,
    "distribution": DISTRIBUTIONS,
    "series_norm": SERIES_NORMS,
    "recurrence": RECURRENCES,
    "source_attention": SOURCE_ATTENTIONS,
    "residual": RESIDUALS,
    "norm": NORMS,
    "embedding_norm": EMBEDDING_NORMS,
    "layer_sharing": SHARINGS,
    "activation": ACTIVATIONS,
    "feed_forward_pattern": FEED_FORWARDS,
    "expert_scores": EXPERT_SCORES,
    "attention": KERNELS,
    "score_scale": SCORE_SCALES,
    "attention_gate": GATES,
    "query_key_norm": QUERY_KEY_NORMS,
    "positions": POSITIONS,
    "relative_positions": RELATIVE_POSITIONS,
    "rope_scaling": ROPE_SCALINGS,
    "encoder_pattern or decoder_pattern": MIXERS,
}

# Fields that only some kinds of model read.
ONLY_IN = {
    "recurrence": ("architecture", ("recurrent",)),
    "source_attention": ("architecture", ("recurrent",)),
    "expert_scores": ("feed_forward_pattern", (("experts",), ("dense", "experts"))),
    "distribution": ("stem", ("series", "variates")),
    "series_norm": ("stem", ("series", "variates")),
    "pooling": ("architecture", ("encoder", "decoder")),
}  # fmt: skip


def names(config: ModelConfig, field: str) -> set[str]:
    """Return the entries of a field's table that a config uses."""
    if field in ONLY_IN and getattr(config, ONLY_IN[field][0]) not in ONLY_IN[field][1]:
        return set()  # a default that this model does not read
    if field == "feed_forward_pattern":
        return {*config.feed_forward_pattern}
    if "pattern" not in field:
        return {getattr(config, field)}
    found: set[str] = set()
    for stack in config.stacks:
        pattern, layers = (getattr(config, name.format(stack)) for name in
                           ("{}_pattern", "num_{}_layers"))  # fmt: skip
        found |= {*pattern[:layers]}
    return found


def unchecked() -> list[str]:
    """Return the entries that no comparison covers."""
    return [
        f"{field}: {entry}"
        for field, table in TABLES.items()
        for entry in table
        if not any(entry in names(config, field) for config in CONFIGS)
    ]


def test_every_entry_is_compared():
    """A new entry of a table needs a case in tests/oracle/cases.py."""
    assert unchecked() == []


@pytest.mark.parametrize("field", TABLES)
def test_an_entry_without_a_case_is_reported(field, monkeypatch):
    monkeypatch.setitem(TABLES[field], "planted", None)
    assert unchecked() == [f"{field}: planted"]
