"""The family of decoders with experts: tensor names and keys of config.json."""

from transformer_jax.export.huggingface.decoders import LLAMA, NO_BIASES
from transformer_jax.export.huggingface.family import Fixed, Word

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
        ("sliding_window", Fixed(None)),
    ),
    whole_heads=False,
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
