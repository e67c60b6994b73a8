"""Families of decoders: their tables of tensor names and keys of config.json."""

from collections.abc import Mapping
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.config import ModelConfig
from transformer_jax.config.choices.positions import SCALED_BY_LENGTH
from transformer_jax.export.huggingface.family import Family, Fixed, Part, Word

ATTENTION = ("query", "key", "value", "output")
ACTIVATIONS = (
    ("relu", "relu"), ("gelu", "gelu"), ("gelu_new", "gelu_tanh"),
    ("gelu_pytorch_tanh", "gelu_tanh"), ("relu2", "relu_squared"), ("silu", "silu"),
    ("swish", "silu"), ("mish", "mish"),
)  # fmt: skip
TIED = ((True, "all"), (True, "decoder"), (False, "none"))
DECODER = {
    "architecture": "decoder", "residual": "pre_norm", "embedding_scale": False,
    "logits_scale": False,
}  # fmt: skip


def theta(words: Mapping[str, Any]) -> float:
    """Return the base of rotary frequencies, from whichever key of config.json has it."""
    rope = words.get("rope_parameters") or {}
    return rope.get("rope_theta", words.get("rope_theta", words.get("rotary_emb_base")))


def standard_rope(words: Mapping[str, Any]) -> dict[str, Any]:
    """Return config.json with all that it says about rotary positions in "rope_parameters", which
    what older versions wrote to "rope_scaling" replaces, as in `transformers`.
    """
    rope = group(words, "rope_scaling") or group(words, "rope_parameters")
    rope = {"rope_type": rope.get("type", "default"), **rope}
    if rope["rope_type"] in SCALED_BY_LENGTH and words.get(_TRAINED):
        rope[_TRAINED] = words[_TRAINED]
    return {**words, "rope_parameters": rope}


def group(words: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a group of keys, which may be absent or null.

    Raises:
      UserError: if it is something else.
    """
    found = words.get(name)
    if not isinstance(found, Mapping | None):
        raise UserError(f"{name}={found!r}: must be an object with keys, or null")
    return dict(found or {})


def _trained_length(words: Mapping[str, Any]) -> int:
    """Return the length of training texts of a model whose config.json does not give it."""
    scaled = words["rope_parameters"]["rope_type"] in SCALED_BY_LENGTH
    return words["max_position_embeddings"] if scaled else ModelConfig.rope_length


_TRAINED = "original_max_position_embeddings"
_SCALED = ("linear", *SCALED_BY_LENGTH)
# Settings of these methods, of which only the published values are supported.
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
_YARN = {
    "beta_slow": 1, "beta_fast": 32, "attention_factor": None, "mscale": None,
    "mscale_all_dim": None, "truncate": True,
}  # fmt: skip


def _published(name: str, value: Any) -> tuple[str, Fixed]:
    fixed = Fixed(value, written=name in _LLAMA3, only=("rope_scaling", ("llama3",)))
    return f"rope_parameters.{name}", fixed


ROPE_SCALING: tuple[tuple[str, Word | Fixed], ...] = (
    ("rope_parameters.rope_type", Word(
        "rope_scaling", (("default", "none"), *((name, name) for name in _SCALED)),
    )),
    ("rope_parameters.factor", Word(
        "rope_factor", default=ModelConfig.rope_factor, only=("rope_scaling", _SCALED)
    )),
    (f"rope_parameters.{_TRAINED}", Word(
        "rope_length", default=_trained_length, only=("rope_scaling", SCALED_BY_LENGTH)
    )),
    *(_published(name, value) for name, value in (_LLAMA3 | _YARN).items()),
)  # fmt: skip


def _fraction(words: Mapping[str, Any]) -> float:
    """Return the fraction of a head that rotates, from whichever key of config.json has it."""
    rope = words.get("rope_parameters") or {}
    older = words.get("partial_rotary_factor", words.get("rotary_pct"))
    return rope.get("partial_rotary_factor", older)


ROPE = (
    ("rope_parameters.rope_theta", Word("rope_theta", default=theta)),
    ("rope_parameters.rope_type", Fixed("default")),
    ("rope_parameters.partial_rotary_factor", Word("rope_fraction", default=_fraction)),
)


# Radford et al. 2019; q, k and v are a single projection.
GPT2 = Family(
    model_type="gpt2",
    architecture="GPT2LMHeadModel",
    prefix="transformer.",
    modules={
        "embedding": "transformer.wte",
        "positions": "transformer.wpe",
        "decoder/layer_{}/self_attention_residual/norm": "transformer.h.{}.ln_1",
        "decoder/layer_{}/self_attention/query": "transformer.h.{}.attn.c_attn",
        "decoder/layer_{}/self_attention/key": "transformer.h.{}.attn.c_attn",
        "decoder/layer_{}/self_attention/value": "transformer.h.{}.attn.c_attn",
        "decoder/layer_{}/self_attention/output": "transformer.h.{}.attn.c_proj",
        "decoder/layer_{}/feed_forward_residual/norm": "transformer.h.{}.ln_2",
        "decoder/layer_{}/feed_forward/up": "transformer.h.{}.mlp.c_fc",
        "decoder/layer_{}/feed_forward/down": "transformer.h.{}.mlp.c_proj",
        "decoder/final_norm": "transformer.ln_f",
        "output": "lm_head",
    },
    words=(
        ("n_embd", Word("d_model")),
        ("n_inner", Word("d_ff", default=lambda words: 4 * words["n_embd"])),
        ("n_head", Word("num_heads")),
        ("n_layer", Word("num_decoder_layers")),
        ("n_positions", Word("max_positions")),
        ("layer_norm_epsilon", Word("norm_epsilon")),
        ("activation_function", Word("activation", ACTIVATIONS)),
        ("resid_pdrop", Word("dropout_rate")),
        ("embd_pdrop", Word("dropout_rate")),
        ("attn_pdrop", Word("attention_dropout_rate")),
        ("tie_word_embeddings", Word("tied_embeddings", TIED)),
        ("scale_attn_weights", Fixed(True)),
        ("scale_attn_by_inverse_layer_idx", Fixed(False)),
        ("add_cross_attention", Fixed(False)),
    ),
    defaults={
        "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
        "layer_norm_epsilon": 1e-05, "activation_function": "gelu_new", "resid_pdrop": 0.1,
        "embd_pdrop": 0.1, "attn_pdrop": 0.1, "tie_word_embeddings": True,
        "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
    },
    aliases={
        "hidden_size": "n_embd", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer",
        "max_position_embeddings": "n_positions",
    },
    fixed={
        **DECODER, "norm": "layer_norm", "positions": "learned", "relative_positions": "none",
        "biases": (*ATTENTION, "feed_forward"),
    },
    in_out=True,
    tables=("lm_head.weight",),
    drops=("attn.bias", "attn.masked_bias", "crossattention.bias"),
)  # fmt: skip

# Touvron et al. 2023, arXiv:2302.13971.
LLAMA = Family(
    model_type="llama",
    architecture="LlamaForCausalLM",
    prefix="model.",
    modules={
        "embedding": "model.embed_tokens",
        "decoder/layer_{}/self_attention_residual/norm": "model.layers.{}.input_layernorm",
        "decoder/layer_{}/self_attention/query": "model.layers.{}.self_attn.q_proj",
        "decoder/layer_{}/self_attention/key": "model.layers.{}.self_attn.k_proj",
        "decoder/layer_{}/self_attention/value": "model.layers.{}.self_attn.v_proj",
        "decoder/layer_{}/self_attention/output": "model.layers.{}.self_attn.o_proj",
        "decoder/layer_{}/self_attention/query_norm": "model.layers.{}.self_attn.q_norm",
        "decoder/layer_{}/self_attention/key_norm": "model.layers.{}.self_attn.k_norm",
        "decoder/layer_{}/feed_forward_residual/norm": "model.layers.{}.post_attention_layernorm",
        "decoder/layer_{}/feed_forward/gate": "model.layers.{}.mlp.gate_proj",
        "decoder/layer_{}/feed_forward/up": "model.layers.{}.mlp.up_proj",
        "decoder/layer_{}/feed_forward/down": "model.layers.{}.mlp.down_proj",
        "decoder/final_norm": "model.norm",
        "output": "lm_head",
    },
    words=(
        ("hidden_size", Word("d_model")),
        ("intermediate_size", Word("d_ff")),
        ("num_attention_heads", Word("num_heads")),
        ("num_key_value_heads", Word("num_kv_heads", default=None, written="kv_heads")),
        ("head_dim", Word("head_dim", default=None, written="key_size")),
        ("num_hidden_layers", Word("num_decoder_layers")),
        ("max_position_embeddings", Word("max_positions")),
        ("rms_norm_eps", Word("norm_epsilon")),
        (
            "hidden_act",
            Word(
                "activation",
                (
                    ("silu", "swiglu"), ("swish", "swiglu"), ("relu", "reglu"), ("gelu", "geglu"),
                    ("gelu_pytorch_tanh", "geglu_tanh"), ("gelu_new", "geglu_tanh"),
                ),
            ),
        ),
        ("attention_dropout", Word("attention_dropout_rate")),
        ("attention_bias", Part("biases", ATTENTION)),
        ("mlp_bias", Part("biases", ("feed_forward",))),
        ("rope_parameters.rope_theta", Word("rope_theta", default=theta)),
        ("rope_theta", Word("rope_theta", default=theta)),  # read by older versions
        *ROPE_SCALING,
        ("tie_word_embeddings", Word("tied_embeddings", TIED)),
    ),
    defaults={
        "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
        "num_key_value_heads": None, "head_dim": None, "num_hidden_layers": 32,
        "max_position_embeddings": 2048, "rms_norm_eps": 1e-06, "hidden_act": "silu",
        "attention_dropout": 0.0, "attention_bias": False, "mlp_bias": False,
        "tie_word_embeddings": False, "rope_theta": 10_000.0,
    },
    fixed={
        **DECODER, "norm": "rms_norm", "positions": "none", "relative_positions": "rope",
        "query_key_norm": "none",
    },
    standard=standard_rope,
    whole_heads=True,
    tables=("lm_head.weight",),
)  # fmt: skip

# OLMo et al. 2025, arXiv:2501.00656.
OLMO2 = LLAMA._replace(
    model_type="olmo2",
    architecture="Olmo2ForCausalLM",
    modules={
        **LLAMA.modules,
        "decoder/layer_{}/self_attention_residual/norm": "model.layers.{}.post_attention_layernorm",
        "decoder/layer_{}/feed_forward_residual/norm": "model.layers.{}.post_feedforward_layernorm",
    },
    words=tuple(item for item in LLAMA.words if item[0] not in ("head_dim", "mlp_bias")),
    defaults={
        "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
        "num_key_value_heads": None, "num_hidden_layers": 32, "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-05, "hidden_act": "silu", "attention_dropout": 0.0,
        "attention_bias": False, "tie_word_embeddings": False, "rope_theta": 10_000.0,
    },
    fixed={**LLAMA.fixed, "residual": "reordered_norm", "query_key_norm": "all_heads"},
)  # fmt: skip
NO_BIASES = tuple(item for item in LLAMA.words if not isinstance(item[1], Part))
# A window in all layers, or in none.
WINDOW = ("sliding_window", Word("window", default=None))


def within_window(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields with the kind of layers, which have a window if there is one."""
    return fields | {"decoder_pattern": ("local" if fields.get("window") else "full",)}


ALIKE = {"decoder_pattern": (("full",), ("local",))}
_OFF = (*NO_BIASES, ("use_sliding_window", Fixed(False)))

# Llama with heads of any size.
MISTRAL = LLAMA._replace(
    model_type="mistral",
    architecture="MistralForCausalLM",
    words=(*NO_BIASES, WINDOW),
    whole_heads=False,
    follows=ALIKE,
    settle=within_window,
    defaults={
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": None,
        "num_hidden_layers": 32,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-06,
        "hidden_act": "silu",
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "sliding_window": 4096,
        "rope_theta": 10_000.0,
    },
    fixed={**LLAMA.fixed, "biases": ()},
)
QWEN2 = LLAMA._replace(
    model_type="qwen2",
    architecture="Qwen2ForCausalLM",
    words=tuple(item for item in _OFF if item[0] != "head_dim"),
    defaults={
        "hidden_size": 4096,
        "intermediate_size": 22016,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "num_hidden_layers": 32,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-06,
        "hidden_act": "silu",
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "rope_theta": 10_000.0,
    },
    fixed={**LLAMA.fixed, "biases": ("query", "key", "value")},
)
QWEN3 = LLAMA._replace(
    model_type="qwen3",
    architecture="Qwen3ForCausalLM",
    words=(*_OFF, ("attention_bias", Part("biases", ATTENTION))),
    whole_heads=False,
    defaults={
        "hidden_size": 4096,
        "intermediate_size": 22016,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "num_hidden_layers": 32,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-06,
        "hidden_act": "silu",
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "attention_bias": False,
        "rope_theta": 10_000.0,
    },
    fixed={**LLAMA.fixed, "query_key_norm": "per_head"},
)

# Abdin et al. 2024, arXiv:2404.14219: Phi-3 and 4. Queries, keys and values are one projection, as
# are gates and what they multiply.
PHI3 = LLAMA._replace(
    model_type="phi3",
    architecture="Phi3ForCausalLM",
    modules={
        **LLAMA.modules,
        **dict.fromkeys(
            [f"decoder/layer_{{}}/self_attention/{name}" for name in ATTENTION[:3]],
            "model.layers.{}.self_attn.qkv_proj",
        ),
        **dict.fromkeys(
            [f"decoder/layer_{{}}/feed_forward/{name}" for name in ("gate", "up")],
            "model.layers.{}.mlp.gate_up_proj",
        ),
    },
    words=(
        *(item for item in NO_BIASES if item[0] != "head_dim" and "rope" not in item[0]),
        ("resid_pdrop", Word("dropout_rate")),
        ("embd_pdrop", Word("dropout_rate", read=False)),
        *ROPE,
        WINDOW,
    ),
    defaults={
        "hidden_size": 3072,
        "intermediate_size": 8192,
        "num_attention_heads": 32,
        "num_key_value_heads": None,
        "num_hidden_layers": 32,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-05,
        "hidden_act": "silu",
        "resid_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "sliding_window": None,
        "rope_theta": 10_000.0,
        "partial_rotary_factor": 1.0,
    },
    fixed={**LLAMA.fixed, "biases": ()},
    follows=ALIKE,
    settle=within_window,
)
