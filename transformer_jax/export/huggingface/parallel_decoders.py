"""Decoders whose layers have their two parts side by side: Phi and Cohere's Command R."""

from transformer_jax.export.huggingface.decoders import (
    ACTIVATIONS,
    ATTENTION,
    LLAMA,
    NO_BIASES,
    ROPE,
    TIED,
)
from transformer_jax.export.huggingface.family import Fixed, Part, Word

_LAYER = "decoder/layer_{}"
_ATTENTION = {name: theirs for name, theirs in LLAMA.modules.items() if "self_attention/" in name}

# Li et al. 2023, arXiv:2309.05463: Phi-1, 1.5 and 2.
PHI = LLAMA._replace(
    model_type="phi",
    architecture="PhiForCausalLM",
    modules={
        "embedding": "model.embed_tokens",
        **_ATTENTION,
        f"{_LAYER}/self_attention_residual/norm": "model.layers.{}.input_layernorm",
        f"{_LAYER}/self_attention/output": "model.layers.{}.self_attn.dense",
        f"{_LAYER}/feed_forward/up": "model.layers.{}.mlp.fc1",
        f"{_LAYER}/feed_forward/down": "model.layers.{}.mlp.fc2",
        "decoder/final_norm": "model.final_layernorm",
        "output": "lm_head",
        "logits_bias": "lm_head",
    },
    words=(
        ("hidden_size", Word("d_model")),
        ("intermediate_size", Word("d_ff")),
        ("num_attention_heads", Word("num_heads")),
        ("num_key_value_heads", Word("num_kv_heads", default=None, written="kv_heads")),
        ("num_hidden_layers", Word("num_decoder_layers")),
        ("max_position_embeddings", Word("max_positions")),
        ("layer_norm_eps", Word("norm_epsilon")),
        ("hidden_act", Word("activation", ACTIVATIONS)),
        ("resid_pdrop", Word("dropout_rate")),
        ("embd_pdrop", Word("dropout_rate", read=False)),  # 0 in Phi-2, beside another rate
        ("attention_dropout", Word("attention_dropout_rate")),
        *ROPE,
        ("tie_word_embeddings", Word("tied_embeddings", TIED)),
        ("qk_layernorm", Fixed(False)),
    ),
    defaults={
        "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32,
        "num_key_value_heads": None, "num_hidden_layers": 24, "max_position_embeddings": 2048,
        "layer_norm_eps": 1e-05, "hidden_act": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0,
        "attention_dropout": 0.0, "tie_word_embeddings": False, "qk_layernorm": False,
        "rope_theta": 10_000.0, "partial_rotary_factor": 0.5,
    },
    fixed={
        **LLAMA.fixed, "norm": "layer_norm", "residual": "parallel", "logits_bias": True,
        "biases": (*ATTENTION, "feed_forward"),
    },
)  # fmt: skip

# Cohere 2024: Command R. Heads are not normalised, as in Command R+.
_OTHERS = ("head_dim", "rms_norm_eps")
COHERE = LLAMA._replace(
    model_type="cohere",
    architecture="CohereForCausalLM",
    modules={
        name: theirs for name, theirs in LLAMA.modules.items()
        if not name.endswith(("feed_forward_residual/norm", "_norm"))
        or name == "decoder/final_norm"
    },
    words=(
        *(item for item in NO_BIASES if item[0] not in _OTHERS),
        ("layer_norm_eps", Word("norm_epsilon")),
        ("attention_bias", Part("biases", ATTENTION)),
        ("logit_scale", Word("logits_factor")),
        ("use_qk_norm", Word("query_key_norm", ((False, "none"), (None, "none")), default=None)),
    ),
    defaults={
        "hidden_size": 8192, "intermediate_size": 22528, "num_attention_heads": 64,
        "num_key_value_heads": None, "num_hidden_layers": 40, "max_position_embeddings": 8192,
        "layer_norm_eps": 1e-05, "hidden_act": "silu", "attention_dropout": 0.0,
        "attention_bias": False, "tie_word_embeddings": True, "logit_scale": 0.0625,
        "use_qk_norm": False, "rope_theta": 500_000.0,
    },
    fixed={
        **LLAMA.fixed, "norm": "layer_norm_no_bias", "residual": "parallel",
        "relative_positions": "rope_interleaved",
    },
)  # fmt: skip
