"""Every pair of entries of the model's tables works together, or is rejected with a reason."""

import by_formula
import pytest
from pairs import config_of, rows
from tiny import MODEL, PAIRS

from transformer_jax.config.choices.positions import ROTARY, SCALED_BY_LENGTH
from transformer_jax.nn.relative_positions import RELATIVE_POSITIONS
from transformer_jax.training.cost import parameters

SCALED = ("linear", *SCALED_BY_LENGTH)  # values of rope_scaling
UNSHARED = ("none", "rope", "rope_interleaved", "alibi")  # nothing to share


def test_only_meaningless_pairs_are_rejected():
    """Two streams without positions, or with windows or linear attention; initial values that
    DeepNorm already sets; what a kernel lacks; the scale of logits set twice, and their bias beside
    an encoder's own; sharing of tables that do not exist; scores of no experts; angles scaled where
    nothing rotates; constants of layers with feed-forward parts where some have none; parts side by
    side around cross-attention; pooling that the architecture does not have; relative positions
    with linear attention; reversible layers that cannot be undone one by one; and further pieces
    beside what is not a decoder, or a stack that its layers know as a whole.
    """
    expected = [
        {"architecture": "two_stream", "positions": "none"},
        *({"architecture": "two_stream", "decoder_pattern": (name, "full")}
          for name in ("local", "linear")),
        *({"relative_positions": name, "decoder_pattern": ("linear", "full")}
          for name in RELATIVE_POSITIONS if name != "none"),
        *({"decoder_pattern": ("linear", "full"), "share_relative_positions": shared}
          for shared in (True, False)),
        *({"residual": "reversible"} | other for other in (
            {"layer_sharing": "all"}, {"layer_sharing": "universal"}, {"layer_loop": "scan"},
            {"remat": "dots"}, {"remat": "full"}, {"layer_drop_rate": 0.2},
        )),
        {"architecture": "two_stream", "input_norm": True},
        {"residual": "deep_norm", "initializer": "t5"},
        {"residual": "deep_norm", "initializer": "gpt2"},
        {"residual": "deep_norm", "initializer": "gpt2_zero"},
        *({"attention": kernel, "relative_positions": "shaw_values"}
          for kernel in ("fused", "ring")),
        *({"expert_scores": "sigmoid", "feed_forward_pattern": pattern}
           for pattern in (("dense",), ("dense", "none"))),
        {"residual": "deep_norm", "feed_forward_pattern": ("dense", "none")},
        *({"architecture": "encoder_decoder", "residual": name}
           for name in ("parallel", "parallel_norms")),
        {"positions": "learned", "layer_sharing": "universal"},
        {"positions": "none", "layer_sharing": "universal"},
        {"tied_embeddings": "none", "logits_scale": True},
        {"embedding_norm": "fix_norm", "logits_scale": True},
        {"architecture": "encoder", "logits_bias": True},
        *({"architecture": name, "pooling": pooling}
          for name in ("encoder_decoder", "two_stream") for pooling in ("mean", "last")),
        *({"relative_positions": name, "share_relative_positions": shared}
          for name in UNSHARED for shared in (True, False)),
        *({"relative_positions": name, "rope_scaling": scaling}
          for name in RELATIVE_POSITIONS if name not in ROTARY for scaling in SCALED),
        *({"rope_scaling": scaling} | other for scaling in SCALED for other in (
            {"decoder_pattern": ("linear", "full")}, {"share_relative_positions": True},
            {"share_relative_positions": False},
        )),
        *(other | {"multi_token": form} for form in ("sequential", "parallel") for other in (
            *({"architecture": name} for name in ("encoder_decoder", "two_stream", "encoder")),
            {"residual": "deep_norm"}, {"residual": "reversible"}, {"layer_sharing": "universal"},
        )),
    ]  # fmt: skip
    refused = rows(MODEL)[1]
    assert sorted(refused, key=str) == sorted(expected, key=str)
    for pair in refused:
        assert config_of(MODEL, pair) is None


@pytest.mark.thorough
@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.e2e)])
def test_the_formula_counts_the_parameters_of_all_pairs(every):
    """For the first rows, which hold the most pairs, and for all rows."""
    wrong = []
    for name, config in list(PAIRS.items())[: len(PAIRS) // every]:
        sizes = (30, 30) if config.tied_embeddings == "all" else (30, 41)
        if by_formula.parameters(config, *sizes) != parameters(config, sizes):
            wrong.append(name)
    assert wrong == []
    assert 60 < len(PAIRS) < 150
