"""What llama.cpp computes: its architectures, with names of metadata and of tensors.

Each is a Family whose words are keys of a file's metadata below "ARCHITECTURE." and whose modules
are llama.cpp's names of tensors (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md). An
architecture has one activation there, so each is narrower than its family of Hugging Face.
"""

from transformer_jax.export.huggingface.decoders import ATTENTION, DECODER, TIED
from transformer_jax.export.huggingface.family import Family, Fixed, Layout, Part, Word
from transformer_jax.export.huggingface.mixtral import apart

_ALL = (*ATTENTION, "feed_forward")
_LAYER = {
    "self_attention_residual/norm": "attn_norm",
    "self_attention/query": "attn_q",
    "self_attention/key": "attn_k",
    "self_attention/value": "attn_v",
    "self_attention/output": "attn_output",
    "self_attention/query_norm": "attn_q_norm",
    "self_attention/key_norm": "attn_k_norm",
    "feed_forward_residual/norm": "ffn_norm",
    "feed_forward/gate": "ffn_gate",
    "feed_forward/up": "ffn_up",
    "feed_forward/down": "ffn_down",
}
_JOINED = {f"self_attention/{part}": "attn_qkv" for part in ATTENTION[:3]}
_POST = {
    "self_attention_residual/norm": "post_attention_norm",
    "feed_forward_residual/norm": "post_ffw_norm",
}
_EXPERTS = {  # of which files hold those of a layer together
    "feed_forward/router": "ffn_gate_inp",
    "feed_forward/expert_{}/gate": "ffn_gate_exps.{}",
    "feed_forward/expert_{}/up": "ffn_up_exps.{}",
    "feed_forward/expert_{}/down": "ffn_down_exps.{}",
}


def _modules(layer: dict[str, str]) -> dict[str, str]:
    return {
        "embedding": "token_embd",
        "input_norm": "token_embd_norm",
        "positions": "position_embd",
        **{f"decoder/layer_{{}}/{ours}": f"blk.{{}}.{theirs}" for ours, theirs in layer.items()},
        "decoder/final_norm": "output_norm",
        "output": "output",
    }


_SIZES = (
    ("context_length", Word("max_positions")),
    ("embedding_length", Word("d_model")),
    ("feed_forward_length", Word("d_ff")),
    ("block_count", Word("num_decoder_layers")),
    ("attention.head_count", Word("num_heads")),
    ("tied", Word("tied_embeddings", TIED, written=None)),  # files show it by their tensors
)
_GROUPS = ("attention.head_count_kv", Word("num_kv_heads", written="kv_heads"))
_ANY_HEADS = (
    ("attention.key_length", Word("head_dim", written="key_size")),
    ("attention.value_length", Word("head_dim", written="key_size")),
)
_EPSILON = ("attention.layer_norm_epsilon", Word("norm_epsilon"))
_RMS = ("attention.layer_norm_rms_epsilon", Word("norm_epsilon"))
_ROPE = (
    ("rope.freq_base", Word("rope_theta")),
    ("rope.dimension_count", Word("rope_fraction", (), written="rotated_channels")),
)
_WHOLE_ROPE = (  # all channels of a head are rotated
    ("rope.freq_base", Word("rope_theta")),
    ("rope.dimension_count", Word("head_dim", written="key_size")),
)


def _scaling(*others: str) -> tuple[tuple[str, Word], ...]:
    """Return the keys of scaled frequencies; `others` are scalings that are tensors of factors."""
    scaled = ("linear", "yarn")
    pairs = (("none", "none"), *((name, name) for name in scaled), *(("none", x) for x in others))
    return (
        ("rope.scaling.type", Word("rope_scaling", pairs)),
        ("rope.scaling.factor", Word("rope_factor", only=("rope_scaling", scaled))),
        ("rope.scaling.original_context_length",
         Word("rope_length", only=("rope_scaling", ("yarn",)))),
    )  # fmt: skip


_SILU = ("activation", Word("activation", (("silu", "swiglu"),), written=None))
_GELU = ("activation", Word("activation", (("gelu", "gelu_tanh"),), written=None))
_DENSE = {**DECODER, "norm": "rms_norm", "positions": "none", "relative_positions": "rope",
          "query_key_norm": "none"}  # fmt: skip

# Llama and Mistral; here pairs of neighbouring channels rotate together.
LLAMA = Family(
    model_type="llama",
    architecture="llama",
    prefix="",
    modules=_modules(_LAYER),
    words=(
        *_SIZES, _GROUPS, *_ANY_HEADS, _RMS, *_WHOLE_ROPE, *_scaling("llama3"), _SILU,
        ("attention_bias", Part("biases", ATTENTION, written=False)),
        ("mlp_bias", Part("biases", ("feed_forward",), written=False)),
    ),
    fixed=_DENSE,
    engine="llama.cpp",
)  # fmt: skip
MIXTRAL = LLAMA._replace(
    modules=_modules({k: v for k, v in _LAYER.items() if "feed_forward/" not in k} | _EXPERTS),
    words=(
        *_SIZES, _GROUPS, *_ANY_HEADS, _RMS, *_WHOLE_ROPE, *_scaling("llama3"), _SILU,
        ("expert_count", Word("num_experts")),
        ("expert_used_count", Word("experts_per_token")),
    ),
    layout=Layout(apart),
    fixed={
        **_DENSE, "biases": (), "feed_forward_pattern": ("experts",), "expert_scores": "softmax",
        "normalize_expert_weights": True, "shared_experts": 0, "balancing_rate": 0.0,
    },
)  # fmt: skip
QWEN2 = LLAMA._replace(
    model_type="qwen2",
    words=(*_SIZES, _GROUPS, _RMS, *_ROPE[:1], *_scaling(), _SILU),
    fixed={**_DENSE, "biases": ATTENTION[:3]},
)
QWEN3 = LLAMA._replace(
    model_type="qwen3",
    words=(*_SIZES, _GROUPS, *_ANY_HEADS, _RMS, *_ROPE[:1], *_scaling(), _SILU),
    fixed={**_DENSE, "biases": (), "query_key_norm": "per_head"},
)
OLMO2 = LLAMA._replace(
    model_type="olmo2",
    modules=_modules({**_LAYER, **_POST}),
    words=(*_SIZES, _GROUPS, _RMS, *_ROPE[:1], *_scaling(), _SILU),
    fixed={**_DENSE, "biases": (), "residual": "reordered_norm", "query_key_norm": "all_heads"},
)
STABLELM = LLAMA._replace(
    model_type="stablelm",
    words=(
        *_SIZES, _GROUPS, _EPSILON, *_ROPE, _SILU,
        ("use_qkv_bias", Part("biases", ATTENTION[:3], written=False)),
        ("use_parallel_residual", Fixed(False)),
    ),
    fixed={**_DENSE, "norm": "layer_norm"},
)  # fmt: skip
STARCODER2 = STABLELM._replace(
    model_type="starcoder2",
    words=(*_SIZES, _GROUPS, _EPSILON, *_ROPE[:1], _GELU),
    fixed={**_DENSE, "norm": "layer_norm", "biases": _ALL},
)
GPT_NEOX = STABLELM._replace(
    model_type="gptneox",
    modules=_modules({**_LAYER, **_JOINED}),
    words=(*_SIZES, _EPSILON, *_ROPE, _GELU, ("use_parallel_residual", Fixed(False))),
    fixed={**_DENSE, "norm": "layer_norm", "biases": _ALL},
)
GPT2 = GPT_NEOX._replace(
    model_type="gpt2",
    words=(*_SIZES, _EPSILON, _GELU),
    fixed={**_DENSE, "norm": "layer_norm", "biases": _ALL, "positions": "learned",
           "relative_positions": "none"},
)  # fmt: skip
BLOOM = GPT2._replace(
    model_type="bloom",
    fixed={**_DENSE, "norm": "layer_norm", "biases": _ALL, "input_norm": True,
           "relative_positions": "alibi"},
)  # fmt: skip

ARCHITECTURES = (
    LLAMA, MIXTRAL, QWEN2, QWEN3, OLMO2, STABLELM, STARCODER2, GPT_NEOX, GPT2, BLOOM,
)  # fmt: skip
# Those that llama.cpp does not load without a head of their own, even if it is the embedding.
UNTIED = ("olmo2", "stablelm", "gptneox")
PERMUTED = ("llama",)  # those in which pairs of neighbouring channels rotate together
