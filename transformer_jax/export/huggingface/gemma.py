"""The families of Gemma: tensor names and keys of config.json. Their norms add 1 to their scales,
embeddings are scaled, and from the second on, layers with a window alternate with others.
"""

from collections.abc import Callable, Mapping
from typing import Any

from transformer_jax.config import ModelConfig
from transformer_jax.export.huggingface.decoders import ATTENTION, LLAMA, NO_BIASES, group
from transformer_jax.export.huggingface.family import Fixed, Part, Word

_KINDS = (("sliding_attention", "local"), ("full_attention", "full"))
# Whether texts are read in both directions, as encoders made of these models read them.
_CAUSAL = (
    "use_bidirectional_attention",
    Word("architecture", ((None, "decoder"), (False, "decoder")), default=None, written=None),
)
_ATTENTION_BIAS = ("attention_bias", Part("biases", ATTENTION))
_NORMS = {
    f"decoder/layer_{{}}/{ours}": f"model.layers.{{}}.{theirs}_layernorm"
    for ours, theirs in {
        "self_attention_residual/norm": "input",
        "self_attention_residual/output_norm": "post_attention",
        "feed_forward_residual/norm": "pre_feedforward",
        "feed_forward_residual/output_norm": "post_feedforward",
    }.items()
}
_SIZES = {
    "hidden_size": 2304, "intermediate_size": 9216, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 256, "num_hidden_layers": 26, "rms_norm_eps": 1e-06,
    "hidden_activation": "gelu_pytorch_tanh", "attention_dropout": 0.0, "attention_bias": False,
    "tie_word_embeddings": True, "query_pre_attn_scalar": 256, "sliding_window": 4096,
}  # fmt: skip


def _every(words: Mapping[str, Any], period: int) -> list[str]:
    """Return the kinds of layers of which one in each period has no window, the last."""
    (near, _), (full, _) = _KINDS
    return [near if n % period else full for n in range(1, words["num_hidden_layers"] + 1)]


def _settled(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields without those that no layer reads, and without a size that is the usual one."""
    if "local" not in fields.get("decoder_pattern", ()):
        fields |= {"window": None, "local_rope_theta": None}
    same = fields.get("score_size") == fields.get("head_dim")
    return fields | {"score_size": None if same else fields.get("score_size")}


# Gemma Team 2024, arXiv:2403.08295.
GEMMA = LLAMA._replace(
    model_type="gemma",
    architecture="GemmaForCausalLM",
    words=(*NO_BIASES, _ATTENTION_BIAS, _CAUSAL),
    defaults={
        "hidden_size": 3072, "intermediate_size": 24576, "num_attention_heads": 16,
        "num_key_value_heads": 16, "head_dim": 256, "num_hidden_layers": 28,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-06, "hidden_act": "gelu_pytorch_tanh",
        "attention_dropout": 0.0, "attention_bias": False, "tie_word_embeddings": True,
        "use_bidirectional_attention": None, "rope_theta": 10_000.0,
    },
    fixed={**LLAMA.fixed, "norm": "zero_centered_rms_norm", "embedding_scale": True},
)  # fmt: skip

_ACTIVATION = dict(NO_BIASES)["hidden_act"]
_COMMON = (
    *(item for item in NO_BIASES if item[0] != "hidden_act" and "rope" not in item[0]),
    ("hidden_activation", _ACTIVATION),
    _ATTENTION_BIAS,
    ("query_pre_attn_scalar", Word("score_size", written="scored_size")),
    ("attn_logit_softcapping", Word("attention_softcap", default=None)),
    ("final_logit_softcapping", Word("logits_softcap", default=None)),
    ("sliding_window", Word("window", default=None)),
    _CAUSAL,
)
# Gemma Team 2024, arXiv:2408.00118.
GEMMA2 = GEMMA._replace(
    model_type="gemma2",
    architecture="Gemma2ForCausalLM",
    modules={**LLAMA.modules, **_NORMS},
    words=(
        *_COMMON,
        ("layer_types", Word("decoder_pattern", _KINDS, lambda words: _every(words, 2), each=True)),
        *(item for item in NO_BIASES if "rope" in item[0]),
    ),
    defaults={
        **_SIZES, "max_position_embeddings": 8192, "final_logit_softcapping": 30.0,
        "attn_logit_softcapping": 50.0, "layer_types": None, "use_bidirectional_attention": None,
        "rope_theta": 10_000.0,
    },
    fixed={**GEMMA.fixed, "residual": "sandwich"},
    settle=_settled,
)  # fmt: skip


def _older(name: str, base: float | None = None) -> Callable[[Mapping[str, Any]], Any]:
    """Return a function that finds what older versions wrote beside rope_parameters."""
    return lambda words: words.get(name, base)


def _standard(words: Mapping[str, Any]) -> dict[str, Any]:
    """Return config.json with all that it says about rotary positions in "rope_parameters": what
    older versions wrote to "rope_scaling" is about layers without a window.
    """
    rope = group(words, "rope_parameters")
    kinds = {kind: group(rope, kind) for kind, _ in _KINDS}
    named = {kind: {"rope_type": own.get("type", "default"), **own} for kind, own in kinds.items()}
    named["full_attention"] |= group(words, "rope_scaling")
    return {**words, "rope_parameters": named}


_FULL, _NEAR = "rope_parameters.full_attention", "rope_parameters.sliding_attention"
_LINEAR = ("rope_scaling", ("linear",))
# Gemma Team 2025, arXiv:2503.19786: the part that reads text.
GEMMA3 = GEMMA2._replace(
    model_type="gemma3_text",
    architecture="Gemma3ForCausalLM",
    words=(
        *_COMMON,
        ("layer_types", Word(
            "decoder_pattern", _KINDS, each=True,
            default=lambda words: _every(words, words.get("sliding_window_pattern", 6)),
        )),
        (f"{_FULL}.rope_theta", Word("rope_theta", default=_older("rope_theta", 1e6))),
        (f"{_FULL}.rope_type", Word(
            "rope_scaling", (("default", "none"), ("linear", "linear"))
        )),
        (f"{_FULL}.factor", Word("rope_factor", default=ModelConfig.rope_factor, only=_LINEAR)),
        (f"{_NEAR}.rope_theta", Word(
            "local_rope_theta", default=_older("rope_local_base_freq", 1e4)
        )),
        (f"{_NEAR}.rope_type", Fixed("default")),
    ),
    defaults={
        **_SIZES, "max_position_embeddings": 131072, "final_logit_softcapping": None,
        "attn_logit_softcapping": None, "layer_types": None, "use_bidirectional_attention": False,
    },
    standard=_standard,
    fixed={**GEMMA2.fixed, "query_key_norm": "per_head"},
)  # fmt: skip
