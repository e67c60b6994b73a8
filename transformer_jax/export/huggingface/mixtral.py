"""The family of decoders with experts: tensor names and keys of config.json."""

from collections.abc import Mapping
from typing import Any

from transformer_jax.export.huggingface.decoders import LLAMA, NO_BIASES, theta
from transformer_jax.export.huggingface.family import Fixed, Part, Word


def _base(words: Mapping[str, Any]) -> float:
    """Return `theta`, whose default is another in Mixtral."""
    return theta({"rope_theta": 1e6, **words})


_DEFAULTS = {
    "max_position_embeddings": 4096 * 32, "rms_norm_eps": 1e-5, "rope_theta": _base,
    "rope_parameters.rope_theta": _base,
}  # fmt: skip


def _of_mixtral(name: str, word: Word | Part | Fixed) -> tuple[str, Word | Part | Fixed]:
    if isinstance(word, Word) and name in _DEFAULTS:
        return name, word._replace(default=_DEFAULTS[name])
    return name, word


# Jiang et al. 2024, arXiv:2401.04088: Mistral with experts, which no biases balance.
_EXPERTS = "model.layers.{}.block_sparse_moe"
MIXTRAL = LLAMA._replace(
    model_type="mixtral",
    architecture="MixtralForCausalLM",
    modules={
        **{ours: theirs for ours, theirs in LLAMA.modules.items() if "feed_forward/" not in ours},
        "decoder/layer_{}/feed_forward/router": f"{_EXPERTS}.gate",
        "decoder/layer_{}/feed_forward/expert_{}/gate": f"{_EXPERTS}.experts.{{}}.w1",
        "decoder/layer_{}/feed_forward/expert_{}/down": f"{_EXPERTS}.experts.{{}}.w2",
        "decoder/layer_{}/feed_forward/expert_{}/up": f"{_EXPERTS}.experts.{{}}.w3",
    },
    words=(
        *(_of_mixtral(*item) for item in NO_BIASES),
        ("num_local_experts", Word("num_experts", default=8)),
        ("num_experts_per_tok", Word("experts_per_token", default=2)),
        ("sliding_window", Fixed(None)),
    ),
    whole_heads=False,
    fixed={
        **LLAMA.fixed, "biases": (), "feed_forward_pattern": ("experts",),
        "expert_scores": "softmax", "normalize_expert_weights": True, "shared_experts": 0,
        "balancing_rate": 0.0,
    },
)  # fmt: skip
