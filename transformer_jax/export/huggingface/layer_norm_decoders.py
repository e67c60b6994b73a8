"""Decoders with LayerNorm other than GPT-2: tables of tensor names and keys of config.json."""

from transformer_jax.export.huggingface.decoders import (
    ACTIVATIONS,
    ALIKE,
    ATTENTION,
    DECODER,
    LLAMA,
    ROPE,
    TIED,
    WINDOW,
    standard_rope,
    theta,
    within_window,
)
from transformer_jax.export.huggingface.family import Family, Fixed, Part, Word

_ALL = (*ATTENTION, "feed_forward")


def _modules(layer: str, names: dict[str, str]) -> dict[str, str]:
    return {f"decoder/layer_{{}}/{ours}": f"{layer}.{theirs}" for ours, theirs in names.items()}


def _beside(word: str) -> Word:
    """Return what a flag says: whether the two parts of a layer stand side by side."""
    return Word("residual", ((True, word), (False, "pre_norm")))


# Zhang et al. 2022, arXiv:2205.01068.
OPT = Family(
    model_type="opt",
    architecture="OPTForCausalLM",
    prefix="model.",
    modules={
        "embedding": "model.decoder.embed_tokens",
        "positions": "model.decoder.embed_positions",
        **_modules("model.decoder.layers.{}", {
            "self_attention_residual/norm": "self_attn_layer_norm",
            "self_attention/query": "self_attn.q_proj",
            "self_attention/key": "self_attn.k_proj",
            "self_attention/value": "self_attn.v_proj",
            "self_attention/output": "self_attn.out_proj",
            "feed_forward_residual/norm": "final_layer_norm",
            "feed_forward/up": "fc1",
            "feed_forward/down": "fc2",
        }),
        "decoder/final_norm": "model.decoder.final_layer_norm",
        "output": "lm_head",
    },
    words=(
        ("hidden_size", Word("d_model")),
        ("word_embed_proj_dim", Word("d_model", default=lambda words: words["hidden_size"])),
        ("ffn_dim", Word("d_ff")),
        ("num_attention_heads", Word("num_heads")),
        ("num_hidden_layers", Word("num_decoder_layers")),
        ("max_position_embeddings", Word("max_positions")),
        ("activation_function", Word("activation", ACTIVATIONS)),
        ("dropout", Word("dropout_rate")),
        ("attention_dropout", Word("attention_dropout_rate")),
        ("tie_word_embeddings", Word("tied_embeddings", TIED)),
        ("do_layer_norm_before", Fixed(True)),
        ("enable_bias", Fixed(True)),
        ("layer_norm_elementwise_affine", Fixed(True)),
        ("_remove_final_layer_norm", Fixed(False)),
    ),
    defaults={
        "hidden_size": 768, "ffn_dim": 3072, "num_attention_heads": 12, "num_hidden_layers": 12,
        "max_position_embeddings": 2048, "activation_function": "relu", "dropout": 0.1,
        "attention_dropout": 0.0, "tie_word_embeddings": True, "do_layer_norm_before": True,
        "enable_bias": True, "layer_norm_elementwise_affine": True,
        "_remove_final_layer_norm": False,
    },
    fixed={
        **DECODER, "norm": "layer_norm", "norm_epsilon": 1e-5, "positions": "learned",
        "relative_positions": "none", "biases": _ALL,
    },
    tables=("lm_head.weight",),
    drops=("decoder.version",),
    offset=2,
)  # fmt: skip

_FUSED = {
    "self_attention_residual/norm": "input_layernorm",
    "feed_forward_residual/norm": "post_attention_layernorm",
    "feed_forward/up": "mlp.dense_h_to_4h",
    "feed_forward/down": "mlp.dense_4h_to_h",
}


def _joined(name: str) -> dict[str, str]:
    maps = dict.fromkeys(ATTENTION[:3], "query_key_value") | {"output": "dense"}
    return {f"self_attention/{ours}": f"{name}.{theirs}" for ours, theirs in maps.items()}


# Black et al. 2022, arXiv:2204.06745; Pythia.
GPT_NEOX = Family(
    model_type="gpt_neox",
    architecture="GPTNeoXForCausalLM",
    prefix="gpt_neox.",
    modules={
        "embedding": "gpt_neox.embed_in",
        **_modules("gpt_neox.layers.{}", _FUSED | _joined("attention")),
        "decoder/final_norm": "gpt_neox.final_layer_norm",
        "output": "embed_out",
    },
    words=(
        ("hidden_size", Word("d_model")),
        ("intermediate_size", Word("d_ff")),
        ("num_attention_heads", Word("num_heads")),
        ("num_hidden_layers", Word("num_decoder_layers")),
        ("max_position_embeddings", Word("max_positions")),
        ("layer_norm_eps", Word("norm_epsilon")),
        ("hidden_act", Word("activation", ACTIVATIONS)),
        ("hidden_dropout", Word("dropout_rate")),
        ("attention_dropout", Word("attention_dropout_rate")),
        *ROPE,
        ("tie_word_embeddings", Word("tied_embeddings", TIED)),
        ("use_parallel_residual", _beside("parallel_norms")),
        ("attention_bias", Fixed(True)),
    ),
    defaults={
        "hidden_size": 6144, "intermediate_size": 24576, "num_attention_heads": 64,
        "num_hidden_layers": 44, "max_position_embeddings": 2048, "layer_norm_eps": 1e-05,
        "hidden_act": "gelu", "hidden_dropout": 0.0, "attention_dropout": 0.0,
        "tie_word_embeddings": False, "use_parallel_residual": True, "attention_bias": True,
        "rotary_emb_base": 10_000.0, "rotary_pct": 0.25,
    },
    fixed={
        **DECODER, "norm": "layer_norm", "positions": "none", "relative_positions": "rope",
        "biases": _ALL,
    },
    standard=standard_rope,
    per_head=True,
    tables=("embed_out.weight",),
    drops=("attention.bias", "attention.masked_bias"),
)  # fmt: skip

# BigScience 2022, arXiv:2211.05100. Its GELU has sqrt(2 / pi) to eight digits, as in float32.
BLOOM = Family(
    model_type="bloom",
    architecture="BloomForCausalLM",
    prefix="transformer.",
    modules={
        "embedding": "transformer.word_embeddings",
        "input_norm": "transformer.word_embeddings_layernorm",
        **_modules("transformer.h.{}", _FUSED | _joined("self_attention")),
        "decoder/final_norm": "transformer.ln_f",
        "output": "lm_head",
    },
    words=(
        ("hidden_size", Word("d_model")),
        ("n_inner", Word("d_ff", default=lambda words: 4 * words["hidden_size"], written=None)),
        ("n_head", Word("num_heads")),
        ("n_layer", Word("num_decoder_layers")),
        ("layer_norm_epsilon", Word("norm_epsilon")),
        ("hidden_dropout", Word("dropout_rate")),
        ("attention_dropout", Word("attention_dropout_rate")),
        ("tie_word_embeddings", Word("tied_embeddings", TIED)),
        ("apply_residual_connection_post_layernorm", Fixed(False)),
    ),
    defaults={
        "hidden_size": 64, "n_head": 8, "n_layer": 2, "layer_norm_epsilon": 1e-05,
        "hidden_dropout": 0.0, "attention_dropout": 0.0, "tie_word_embeddings": True,
        "apply_residual_connection_post_layernorm": False,
    },
    aliases={
        "n_embed": "hidden_size", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer",
    },
    fixed={
        **DECODER, "norm": "layer_norm", "positions": "none", "relative_positions": "alibi",
        "biases": _ALL, "input_norm": True, "activation": "gelu_tanh",
    },
    fourfold=True,
    per_head=True,
    tables=("lm_head.weight",),
)  # fmt: skip

_LLAMA = {name: word for name, word in LLAMA.words if not isinstance(word, Part)}
_SIZED = tuple((name, word) for name, word in _LLAMA.items()
               if name not in ("head_dim", "rms_norm_eps") and "rope" not in name)  # fmt: skip
STABLELM = LLAMA._replace(
    model_type="stablelm",
    architecture="StableLmForCausalLM",
    words=(
        *_SIZED,
        ("layer_norm_eps", Word("norm_epsilon")),
        ("hidden_dropout", Word("dropout_rate")),
        ("use_qkv_bias", Part("biases", ATTENTION[:3])),
        *ROPE,
        ("use_parallel_residual", _beside("parallel")),
        ("qk_layernorm", Fixed(False)),
    ),
    defaults={
        "hidden_size": 2560,
        "intermediate_size": 6912,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "num_hidden_layers": 32,
        "max_position_embeddings": 4096,
        "hidden_act": "silu",
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "layer_norm_eps": 1e-05,
        "hidden_dropout": 0.0,
        "use_qkv_bias": False,
        "use_parallel_residual": False,
        "qk_layernorm": False,
        "rope_theta": 10_000.0,
        "partial_rotary_factor": 0.25,
    },
    fixed={**LLAMA.fixed, "norm": "layer_norm"},
)
_TANH = (("gelu_pytorch_tanh", "gelu_tanh"), *ACTIVATIONS)
# Lozhkov et al. 2024, arXiv:2402.19173.
STARCODER2 = LLAMA._replace(
    model_type="starcoder2",
    architecture="Starcoder2ForCausalLM",
    modules={
        **LLAMA.modules,
        "decoder/layer_{}/feed_forward/up": "model.layers.{}.mlp.c_fc",
        "decoder/layer_{}/feed_forward/down": "model.layers.{}.mlp.c_proj",
    },
    words=(
        *(item for item in _SIZED if item[0] not in ("hidden_act", "tie_word_embeddings")),
        ("norm_epsilon", Word("norm_epsilon")),
        ("hidden_act", Word("activation", _TANH)),
        ("residual_dropout", Word("dropout_rate")),
        ("embedding_dropout", Word("dropout_rate")),
        ("use_bias", Part("biases", _ALL)),
        ("rope_parameters.rope_theta", Word("rope_theta", default=theta)),
        ("rope_parameters.rope_type", Fixed("default")),
        WINDOW,
        ("tie_word_embeddings", Word("tied_embeddings", TIED)),
    ),
    defaults={
        "hidden_size": 3072, "intermediate_size": 12288, "num_attention_heads": 24,
        "num_key_value_heads": 2, "num_hidden_layers": 30, "max_position_embeddings": 4096,
        "attention_dropout": 0.0, "norm_epsilon": 1e-05, "hidden_act": "gelu_pytorch_tanh",
        "residual_dropout": 0.0, "embedding_dropout": 0.0, "use_bias": True,
        "sliding_window": None, "tie_word_embeddings": True, "rope_theta": 10_000.0,
    },
    fixed={**LLAMA.fixed, "norm": "layer_norm"},
    follows=ALIKE,
    settle=within_window,
)  # fmt: skip
