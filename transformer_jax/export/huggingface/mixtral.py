"""The families of decoders with experts: tensor names and keys of config.json. Files hold each
expert's matrices by themselves.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.export.huggingface.decoders import (
    ALIKE,
    ATTENTION,
    LLAMA,
    NO_BIASES,
    QWEN3,
    WINDOW,
    within_window,
)
from transformer_jax.export.huggingface.family import Fixed, Layout, Part, Word
from transformer_jax.nn.experts import LOAD_BIAS


def apart(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaves, by path, with the matrices of each expert as those of its own modules, and
    without the biases by which experts are balanced.

    Raises:
      UserError: if a bias is not 0.
    """
    found = {}
    for path, leaf in leaves.items():
        if path.endswith("/kernels"):
            for number, name in enumerate(_names(path, leaf.shape[0])):
                found[name] = leaf[number] if isinstance(leaf, np.ndarray) else _zeros(leaf)[number]
        elif not path.endswith(LOAD_BIAS):
            found[path] = leaf
        elif isinstance(leaf, np.ndarray) and leaf.any():
            raise UserError(
                f"{path}: is not 0, and experts have no such bias in files of Hugging Face; train "
                "with config.model.balancing_rate=0"
            )
    return found


def together(found: Mapping[str, np.ndarray], shapes: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return what `apart` took apart, in leaves of these shapes; biases are 0."""
    joined = {}
    for path, leaf in shapes.items():
        if path.endswith("/kernels"):
            joined[path] = np.stack([found[name] for name in _names(path, leaf.shape[0])])
        else:
            joined[path] = np.array(_zeros(leaf)) if path.endswith(LOAD_BIAS) else found[path]
    return joined


def _names(path: str, count: int) -> list[str]:
    layer, name, _ = path.rsplit("/", 2)
    return [f"{layer}/expert_{number}/{name}/kernel" for number in range(count)]


def _zeros(leaf: Any) -> np.ndarray:
    return np.broadcast_to(np.float32(0), leaf.shape)


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
        *NO_BIASES,
        ("num_local_experts", Word("num_experts")),
        ("num_experts_per_tok", Word("experts_per_token")),
        WINDOW,
    ),
    whole_heads=False,
    layout=Layout(apart, together),
    follows=ALIKE,
    settle=within_window,
    defaults={
        "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
        "num_key_value_heads": 8, "head_dim": None, "num_hidden_layers": 32,
        "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "hidden_act": "silu",
        "attention_dropout": 0.0, "tie_word_embeddings": False, "num_local_experts": 8,
        "num_experts_per_tok": 2, "sliding_window": None, "rope_theta": 1e6,
    },
    aliases={"num_experts": "num_local_experts"},
    fixed={
        **LLAMA.fixed, "biases": (), "feed_forward_pattern": ("experts",),
        "expert_scores": "softmax", "normalize_expert_weights": True, "shared_experts": 0,
        "balancing_rate": 0.0,
    },
)  # fmt: skip

_OWN = "model.layers.{}.mlp"
_NAMED = {
    **{ours: theirs for ours, theirs in LLAMA.modules.items() if "feed_forward/" not in ours},
    "decoder/layer_{}/feed_forward/router": f"{_OWN}.gate",
    **{
        f"decoder/layer_{{}}/feed_forward/expert_{{}}/{name}": f"{_OWN}.experts.{{}}.{name}_proj"
        for name in ("gate", "up", "down")
    },
}
CHOICE = (
    ("num_experts_per_tok", Word("experts_per_token")),
    ("norm_topk_prob", Word("normalize_expert_weights")),
)
_OF_ALL: tuple[tuple[Any, Any], ...] = (([], ("experts",)), (None, ("experts",)))
# Experts in all layers.
EVERYWHERE = (
    ("decoder_sparse_step", Fixed(1)),
    ("mlp_only_layers", Word("feed_forward_pattern", _OF_ALL, default=None)),
)

# Yang et al. 2025, arXiv:2505.09388, with experts in every layer.
QWEN3_MOE = QWEN3._replace(
    model_type="qwen3_moe",
    architecture="Qwen3MoeForCausalLM",
    modules=_NAMED,
    words=(
        *(item for item in QWEN3.words if item[0] != "intermediate_size"),
        ("moe_intermediate_size", Word("d_ff")),
        ("num_local_experts", Word("num_experts", default=lambda x: x.get("num_experts", 128))),
        *CHOICE,
        *EVERYWHERE,
    ),
    layout=Layout(apart, together),
    defaults={
        "hidden_size": 2048, "moe_intermediate_size": 768, "num_attention_heads": 32,
        "num_key_value_heads": 4, "head_dim": None, "num_hidden_layers": 24,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-06, "hidden_act": "silu",
        "attention_dropout": 0.0, "attention_bias": False, "tie_word_embeddings": False,
        "use_sliding_window": False, "num_experts_per_tok": 8,
        "norm_topk_prob": False, "decoder_sparse_step": 1, "mlp_only_layers": None,
        "rope_theta": 10_000.0,
    },
    fixed={
        **QWEN3.fixed, "feed_forward_pattern": ("experts",), "expert_scores": "softmax",
        "shared_experts": 0, "balancing_rate": 0.0,
    },
)  # fmt: skip
# Muennighoff et al. 2024, arXiv:2409.02060.
OLMOE = LLAMA._replace(
    model_type="olmoe",
    architecture="OlmoeForCausalLM",
    modules=_NAMED,
    words=(
        *(item for item in NO_BIASES if item[0] != "head_dim"),
        ("attention_bias", Part("biases", ATTENTION)),
        ("num_experts", Word("num_experts")),
        *CHOICE,
        ("clip_qkv", Fixed(None)),
    ),
    layout=Layout(apart, together),
    defaults={
        "hidden_size": 2048, "intermediate_size": 2048, "num_attention_heads": 16,
        "num_key_value_heads": None, "num_hidden_layers": 16, "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-05, "hidden_act": "silu", "attention_dropout": 0.0,
        "attention_bias": False, "tie_word_embeddings": False, "num_experts": 64,
        "num_experts_per_tok": 8, "norm_topk_prob": False, "clip_qkv": None,
        "rope_theta": 10_000.0,
    },
    aliases={"num_local_experts": "num_experts"},
    fixed={
        **LLAMA.fixed, "query_key_norm": "all_heads", "feed_forward_pattern": ("experts",),
        "expert_scores": "softmax", "shared_experts": 0, "balancing_rate": 0.0,
    },
)  # fmt: skip
