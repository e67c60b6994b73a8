"""Families of encoder-decoders: their tables of tensor names and keys of config.json."""

from collections.abc import Mapping
from typing import Any

from transformer_jax.export.huggingface.decoders import ACTIVATIONS, ATTENTION
from transformer_jax.export.huggingface.family import LOGITS_BIAS, Family, Fixed, Word

_SEQ2SEQ = {"architecture": "encoder_decoder", "tied_embeddings": "all"}


def _layers(side: str, names: dict[str, str]) -> dict[str, str]:
    """Return the names of one stack's layers."""
    return {f"{side}/layer_{{}}/{ours}": theirs for ours, theirs in names.items()}


def _bart_layers(side: str) -> dict[str, str]:
    """Return fairseq's names, which a dozen families of `transformers` use."""
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


# The paper's model: Marian with norms after sub-layers, Pegasus with norms before them.
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
        "logits_bias": LOGITS_BIAS,
    },
    words=(
        ("d_model", Word("d_model")),
        ("encoder_ffn_dim", Word("d_ff")),
        ("decoder_ffn_dim", Word("d_ff")),
        ("encoder_attention_heads", Word("num_heads")),
        ("decoder_attention_heads", Word("num_heads")),
        ("encoder_layers", Word("num_encoder_layers")),
        ("decoder_layers", Word("num_decoder_layers")),
        ("max_position_embeddings", Word("max_positions")),
        ("activation_function", Word("activation", ACTIVATIONS)),
        ("dropout", Word("dropout_rate")),
        ("attention_dropout", Word("attention_dropout_rate")),
        ("activation_dropout", Word("activation_dropout_rate")),
        ("scale_embedding", Word("embedding_scale")),
        ("share_encoder_decoder_embeddings", Fixed(True)),
        ("tie_word_embeddings", Fixed(True)),
        # Not a key: whether the file has a bias other than 0.
        (LOGITS_BIAS, Word("logits_bias", ((False, False), (True, True)), default=lambda _: False,
                           written=None)),
    ),
    defaults={
        "d_model": 1024, "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096,
        "encoder_attention_heads": 16, "decoder_attention_heads": 16, "encoder_layers": 12,
        "decoder_layers": 12, "max_position_embeddings": 1024, "activation_function": "gelu",
        "dropout": 0.1, "attention_dropout": 0.0, "activation_dropout": 0.0,
        "scale_embedding": False, "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
    },
    aliases={
        "hidden_size": "d_model", "num_attention_heads": "encoder_attention_heads",
        "num_hidden_layers": "encoder_layers",
    },
    fixed={
        **_SEQ2SEQ, "residual": "post_norm", "norm": "layer_norm", "norm_epsilon": 1e-5,
        "positions": "sinusoidal", "relative_positions": "none",
        "biases": (*ATTENTION, "feed_forward"), "logits_scale": False,
    },
    nearly={"norm_epsilon": (1e-5, 1e-6)},
    tables=(
        "model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight",
    ),
    logits_bias=LOGITS_BIAS,
    halves=True,
    sinusoids=("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight"),
)  # fmt: skip
_UNSHARED = tuple(item for item in MARIAN.words if not item[0].startswith("share"))
_DEFAULTS = {k: v for k, v in MARIAN.defaults.items() if not k.startswith("share")}


def _norms(before: bool, embedding: bool) -> tuple[tuple[str, Fixed], ...]:
    """Return keys of older versions, without which CTranslate2 does not convert a directory."""
    return (
        ("normalize_before", Fixed(before, default=lambda _: before)),
        ("normalize_embedding", Fixed(embedding, default=lambda _: embedding)),
        ("add_final_layer_norm", Fixed(before, default=lambda _: before)),
    )


PEGASUS = MARIAN._replace(
    model_type="pegasus",
    architecture="PegasusForConditionalGeneration",
    words=(
        *_UNSHARED,
        *_norms(before=True, embedding=False),
        ("static_position_embeddings", Fixed(True, default=lambda _: True)),
    ),
    defaults={**_DEFAULTS},
    fixed={**MARIAN.fixed, "residual": "pre_norm"},
    saves_sinusoids=True,
)
# Lewis et al. 2020, arXiv:1910.13461.
BART = MARIAN._replace(
    model_type="bart",
    architecture="BartForConditionalGeneration",
    modules={
        **MARIAN.modules,
        "src_positions": "model.encoder.embed_positions",
        "src_input_norm": "model.encoder.layernorm_embedding",
        "tgt_positions": "model.decoder.embed_positions",
        "tgt_input_norm": "model.decoder.layernorm_embedding",
    },
    words=(*_UNSHARED, *_norms(before=False, embedding=True)),
    defaults={**_DEFAULTS},
    fixed={**MARIAN.fixed, "positions": "learned", "input_norm": True},
    nearly={},
    halves=False,
    sinusoids=(),
    drops=("encoder.version", "decoder.version"),
    offset=2,
)  # fmt: skip
# BART with norms before sub-layers (Liu et al. 2020, arXiv:2001.08210).
MBART = BART._replace(
    model_type="mbart",
    architecture="MBartForConditionalGeneration",
    words=(*_UNSHARED, *_norms(before=True, embedding=True)),
    defaults={**_DEFAULTS},
    fixed={**BART.fixed, "residual": "pre_norm"},
)


def _t5_layers(side: str, feed_forward: dict[str, str]) -> dict[str, str]:
    parts = {"self_attention": "0.SelfAttention"}
    if side == "decoder":
        parts["cross_attention"] = "1.EncDecAttention"
    names, last = {}, len(parts)
    for number, (ours, theirs) in enumerate(parts.items()):
        for map in ATTENTION:
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
        ("relative_attention_num_buckets", Word("relative_buckets")),
        ("relative_attention_max_distance", Word("relative_max_distance")),
        ("layer_norm_epsilon", Word("norm_epsilon")),
        ("dropout_rate", Word("dropout_rate")),
        ("feed_forward_proj", Word("activation", activations)),
        # Version 1.0 shares one table and scales its logits; 1.1 has a separate pre-softmax table,
        # but the key that used to say so now says that logits are not scaled.
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
    defaults={
        "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8,
        "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128,
        "layer_norm_epsilon": 1e-06, "dropout_rate": 0.1, "feed_forward_proj": "relu",
    },
    aliases={
        "hidden_size": "d_model", "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers", "head_dim": "d_kv",
    },
    fixed={
        "architecture": "encoder_decoder", "residual": "pre_norm", "norm": "rms_norm",
        "positions": "none", "relative_positions": "t5", "biases": (), "score_scale": "none",
        "embedding_scale": False,
    },
    tables=("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"),
    caches_as_encoder=True,
    # A table of the first version's cross-attention, which has never been read.
    drops=("EncDecAttention.relative_attention_bias.weight",),
)  # fmt: skip
T5_GATED = T5._replace(
    modules=_t5_modules({"gate": "wi_0", "up": "wi_1", "down": "wo"}),
    words=_t5_words((("gated-gelu", "geglu_tanh"), ("gated-silu", "swiglu"),
                     ("gated-relu", "reglu"))),
)  # fmt: skip
