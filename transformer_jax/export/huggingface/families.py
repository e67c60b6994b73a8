"""The families: a table of names, and what their config.json says.

A family belongs here once tests/oracle/test_huggingface.py passes with it.
"""

from collections.abc import Mapping
from typing import Any

from transformer_jax.export.huggingface.family import Family, Fixed, Part, Word

_ATTENTION = ("query", "key", "value", "output")
_ACTIVATIONS = (
    ("relu", "relu"), ("gelu", "gelu"), ("gelu_new", "gelu_tanh"),
    ("gelu_pytorch_tanh", "gelu_tanh"), ("relu2", "relu_squared"), ("silu", "silu"),
    ("swish", "silu"), ("mish", "mish"),
)  # fmt: skip
_TIED = ((True, "all"), (True, "decoder"), (False, "none"))
_DECODER = {
    "architecture": "decoder", "residual": "pre_norm", "embedding_scale": False,
    "logits_scale": False,
}  # fmt: skip


def _theta(words: Mapping[str, Any]) -> float:
    rope = words.get("rope_parameters") or {}
    return rope.get("rope_theta", words.get("rope_theta", 10_000.0))


# Radford et al. 2019; q, k and v are one map.
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
        ("layer_norm_epsilon", Word("norm_epsilon", default=1e-5)),
        ("activation_function", Word("activation", _ACTIVATIONS, default="gelu_new")),
        ("resid_pdrop", Word("dropout_rate", default=0.1)),
        ("embd_pdrop", Word("dropout_rate", default=0.1)),
        ("attn_pdrop", Word("attention_dropout_rate", default=0.1)),
        ("tie_word_embeddings", Word("tied_embeddings", _TIED, default=True)),
        ("scale_attn_weights", Fixed(True)),
        ("scale_attn_by_inverse_layer_idx", Fixed(False)),
        ("add_cross_attention", Fixed(False)),
    ),
    fixed={
        **_DECODER, "norm": "layer_norm", "positions": "learned", "relative_positions": "none",
        "biases": (*_ATTENTION, "feed_forward"),
    },
    in_out=True,
    tables=("lm_head.weight",),
    drops=("attn.bias", "attn.masked_bias"),
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
        ("max_position_embeddings", Word("max_positions", default=2048)),
        ("rms_norm_eps", Word("norm_epsilon", default=1e-6)),
        (
            "hidden_act",
            Word(
                "activation",
                (
                    ("silu", "swiglu"), ("relu", "reglu"), ("gelu", "geglu"),
                    ("gelu_pytorch_tanh", "geglu_tanh"), ("gelu_new", "geglu_tanh"),
                ),
                default="silu",
            ),
        ),
        ("attention_dropout", Word("attention_dropout_rate", default=0.0)),
        ("attention_bias", Part("biases", _ATTENTION)),
        ("mlp_bias", Part("biases", ("feed_forward",))),
        ("rope_parameters.rope_theta", Word("rope_theta", default=_theta)),
        ("rope_theta", Word("rope_theta", default=_theta)),  # where older versions look for it
        ("rope_parameters.rope_type", Fixed("default")),
        ("rope_scaling", Fixed(None, written=False)),
        ("tie_word_embeddings", Word("tied_embeddings", _TIED, default=False)),
    ),
    fixed={
        **_DECODER, "norm": "rms_norm", "positions": "none", "relative_positions": "rope",
        "query_key_norm": "none",
    },
    whole_heads=True,
    tables=("lm_head.weight",),
    drops=("rotary_emb.inv_freq",),
)  # fmt: skip

_NO_BIASES = tuple(item for item in LLAMA.words if not isinstance(item[1], Part))
_NO_WINDOW = (*_NO_BIASES, ("sliding_window", Fixed(None)))
_OFF = (*_NO_BIASES, ("use_sliding_window", Fixed(False)))

# Llama whose heads may be of any size.
MISTRAL = LLAMA._replace(
    model_type="mistral",
    architecture="MistralForCausalLM",
    words=_NO_WINDOW,
    whole_heads=False,
    fixed={**LLAMA.fixed, "biases": ()},
)
QWEN2 = LLAMA._replace(
    model_type="qwen2",
    architecture="Qwen2ForCausalLM",
    words=tuple(item for item in _OFF if item[0] != "head_dim"),
    fixed={**LLAMA.fixed, "biases": ("query", "key", "value")},
)
QWEN3 = LLAMA._replace(
    model_type="qwen3",
    architecture="Qwen3ForCausalLM",
    words=(*_OFF, ("attention_bias", Part("biases", _ATTENTION))),
    whole_heads=False,
    fixed={**LLAMA.fixed, "query_key_norm": "per_head"},
)

_SEQ2SEQ = {"architecture": "encoder_decoder", "tied_embeddings": "all"}


def _layers(side: str, names: dict[str, str]) -> dict[str, str]:
    """Return names of one stack's layers."""
    return {f"{side}/layer_{{}}/{ours}": theirs for ours, theirs in names.items()}


def _bart_layers(side: str) -> dict[str, str]:
    """Return names as fairseq had them, of which `transformers` made a dozen families."""
    layer = f"model.{side}.layers.{{}}"
    parts = {"self_attention": "self_attn", "cross_attention": "encoder_attn"}
    maps = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
    return _layers(
        side,
        {
            f"{ours}/{map}": f"{layer}.{theirs}.{proj}"
            for ours, theirs in parts.items()
            for map, proj in maps.items()
        }
        | {f"{ours}_residual/norm": f"{layer}.{p}_layer_norm" for ours, p in parts.items()}
        | {
            "feed_forward/up": f"{layer}.fc1",
            "feed_forward/down": f"{layer}.fc2",
            "feed_forward_residual/norm": f"{layer}.final_layer_norm",
        },
    )


# The paper's model: Marian with norms behind sub-layers, Pegasus with norms before them.
MARIAN = Family(
    model_type="marian",
    architecture="MarianMTModel",
    prefix="model.",
    modules={
        "embedding": "model.shared",
        **_bart_layers("encoder"),
        "encoder/final_norm": "model.encoder.layer_norm",
        **_bart_layers("decoder"),
        "decoder/final_norm": "model.decoder.layer_norm",
    },
    words=(
        ("d_model", Word("d_model")),
        ("encoder_ffn_dim", Word("d_ff")),
        ("decoder_ffn_dim", Word("d_ff")),
        ("encoder_attention_heads", Word("num_heads")),
        ("decoder_attention_heads", Word("num_heads")),
        ("encoder_layers", Word("num_encoder_layers")),
        ("decoder_layers", Word("num_decoder_layers")),
        ("max_position_embeddings", Word("max_positions", default=1024)),
        ("activation_function", Word("activation", _ACTIVATIONS, default="gelu")),
        ("dropout", Word("dropout_rate", default=0.1)),
        ("attention_dropout", Word("attention_dropout_rate", default=0.0)),
        ("activation_dropout", Word("activation_dropout_rate", default=0.0)),
        ("scale_embedding", Word("embedding_scale", default=False)),
        ("share_encoder_decoder_embeddings", Fixed(True)),
        ("tie_word_embeddings", Fixed(True)),
    ),
    fixed={
        **_SEQ2SEQ, "residual": "post_norm", "norm": "layer_norm", "norm_epsilon": 1e-5,
        "positions": "sinusoidal", "relative_positions": "none",
        "biases": (*_ATTENTION, "feed_forward"), "logits_scale": False,
    },
    nearly={"norm_epsilon": (1e-5, 1e-6)},
    tables=(
        "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight",
    ),
    zeros=("final_logits_bias",),
    halves=True,
    sinusoids=("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"),
)  # fmt: skip
PEGASUS = MARIAN._replace(
    model_type="pegasus",
    architecture="PegasusForConditionalGeneration",
    words=tuple(item for item in MARIAN.words if not item[0].startswith("share")),
    fixed={**MARIAN.fixed, "residual": "pre_norm"},
    saves_sinusoids=True,
)


def _t5_layers(side: str, feed_forward: dict[str, str]) -> dict[str, str]:
    parts = {"self_attention": "0.SelfAttention"}
    if side == "decoder":
        parts["cross_attention"] = "1.EncDecAttention"
    names, last = {}, len(parts)
    for number, (ours, theirs) in enumerate(parts.items()):
        for map in _ATTENTION:
            names[f"{ours}/{map}"] = f"{side}.block.{{}}.layer.{theirs}.{map[0]}"
        names[f"{ours}_residual/norm"] = f"{side}.block.{{}}.layer.{number}.layer_norm"
    for ours, theirs in feed_forward.items():
        names[f"feed_forward/{ours}"] = f"{side}.block.{{}}.layer.{last}.DenseReluDense.{theirs}"
    names["feed_forward_residual/norm"] = f"{side}.block.{{}}.layer.{last}.layer_norm"
    bias = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
    return {
        **_layers(side, names),
        f"{side}/relative_positions": bias,
        f"{side}/final_norm": f"{side}.final_layer_norm",
    }


def _t5_modules(feed_forward: dict[str, str]) -> dict[str, str]:
    return {
        "embedding": "shared",
        "src_embedding": "shared",
        "tgt_embedding": "shared",
        **_t5_layers("encoder", feed_forward),
        **_t5_layers("decoder", feed_forward),
        "output": "lm_head",
    }


def _scaled(words: Mapping[str, Any]) -> bool:
    return words.get("tie_word_embeddings") is not False


def _t5_words(activations: tuple[tuple[str, str], ...]) -> tuple:
    return (
        ("d_model", Word("d_model")),
        ("d_kv", Word("head_dim", written="key_size")),
        ("d_ff", Word("d_ff")),
        ("num_layers", Word("num_encoder_layers")),
        ("num_decoder_layers", Word("num_decoder_layers", default=lambda w: w["num_layers"])),
        ("num_heads", Word("num_heads")),
        ("relative_attention_num_buckets", Word("relative_buckets", default=32)),
        ("relative_attention_max_distance", Word("relative_max_distance", default=128)),
        ("layer_norm_epsilon", Word("norm_epsilon", default=1e-6)),
        ("dropout_rate", Word("dropout_rate", default=0.1)),
        ("feed_forward_proj", Word("activation", activations, default="relu")),
        # Version 1.0 has one table for all, and scales its logits; 1.1 has a pre-softmax table of
        # its own, but what says so says now that logits are not scaled.
        ("lm_head", Word("tied_embeddings", ((False, "all"), (True, "none")), written=None)),
        ("scale_decoder_outputs", Word("logits_scale", default=_scaled)),
        ("tie_word_embeddings", Word("logits_scale", read=False)),
    )  # fmt: skip


# Raffel et al. 2020, arXiv:1910.10683.
T5 = Family(
    model_type="t5",
    architecture="T5ForConditionalGeneration",
    prefix="",
    modules=_t5_modules({"up": "wi", "down": "wo"}),
    words=_t5_words((("relu", "relu"), ("gelu", "gelu"), ("gelu_new", "gelu_tanh"),
                     ("silu", "silu"))),
    fixed={
        "architecture": "encoder_decoder", "residual": "pre_norm", "norm": "rms_norm",
        "positions": "none", "relative_positions": "t5", "biases": (), "score_scale": "none",
        "embedding_scale": False,
    },
    tables=("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"),
)  # fmt: skip
T5_GATED = T5._replace(
    modules=_t5_modules({"gate": "wi_0", "up": "wi_1", "down": "wo"}),
    words=_t5_words((("gated-gelu", "geglu_tanh"), ("gated-silu", "swiglu"),
                     ("gated-relu", "reglu"))),
)  # fmt: skip

FAMILIES = {
    "gpt2": GPT2,
    "llama": LLAMA,
    "mistral": MISTRAL,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "marian": MARIAN,
    "pegasus": PEGASUS,
    "t5": T5,
    "t5, gated": T5_GATED,
}
