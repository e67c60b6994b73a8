"""The family of Qwen3-Next, gated DeltaNet and attention in turn: tensor names and keys of
config.json. What enters a layer is joined head by head, or group by group.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from transformer_jax.export.huggingface import mixtral
from transformer_jax.export.huggingface.decoders import NO_BIASES, ROPE
from transformer_jax.export.huggingface.family import Layout, Word

_LAYER = "decoder/layer_{}"
_DELTA = ("query", "key", "value", "gate"), ("strength", "rate")  # joined by group
_CONVOLVED = "query", "key", "value"
_ITSELF = {"rate_bias": "dt_bias", "log_decay": "A_log"}


def _deltas(paths: Iterable[str]) -> list[str]:
    """Return the mixers that are gated DeltaNets."""
    return [path.removesuffix("/log_decay") for path in paths if path.endswith("/log_decay")]


def _gated(paths: Iterable[str]) -> list[str]:
    """Return the mixers that are attention with a gate."""
    names = {path.removesuffix("/query_norm/scale") for path in paths}
    return sorted(name for name in names if name.endswith("/self_attention"))


def _sizes(paths: Mapping[str, Any], mixer: str) -> tuple[int, int]:
    """Return the width of the stream, and the number of groups."""
    width, groups = paths[f"{mixer}/key/kernel"].shape[:2]
    return width, groups


def _joined(kernels: list[np.ndarray], width: int, parts: int) -> np.ndarray:
    """Return maps as one [out in], whose rows are those of all maps for each of so many parts."""
    return np.concatenate([x.reshape(width, parts, -1) for x in kernels], 2).reshape(width, -1).T


def _cut(whole: np.ndarray, shapes: list[tuple[int, ...]], parts: int) -> list[np.ndarray]:
    """Return the maps that `_joined` joined, in these shapes."""
    sizes = [int(np.prod(shape[1:])) // parts for shape in shapes]
    pieces = np.split(whole.T.reshape(len(whole.T), parts, -1), np.cumsum(sizes)[:-1], axis=2)
    return [piece.reshape(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def _array(leaf: Any) -> np.ndarray:
    return leaf if isinstance(leaf, np.ndarray) else np.zeros(leaf.shape, np.float32)


def apart(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Return leaves by the paths of the family's tensors."""
    found = dict(leaves)
    for mixer in _deltas(leaves):
        own, (width, groups) = f"{mixer.rpartition('/')[0]}/delta", _sizes(leaves, mixer)
        for name, parts in zip(("qkvz", "ba"), _DELTA, strict=True):
            kernels = [_array(found.pop(f"{mixer}/{part}/kernel")) for part in parts]
            found[f"{own}/in_proj_{name}/channels"] = _joined(kernels, width, groups)
        kernels = [_array(found.pop(f"{mixer}/{x}_convolution/depthwise")) for x in _CONVOLVED]
        flat = [kernel.reshape(len(kernel), -1) for kernel in kernels]
        found[f"{own}/conv/channels"] = np.concatenate(flat, 1).T[:, None]
        for ours, theirs in _ITSELF.items():
            found[f"{own}/{theirs}/itself"] = found.pop(f"{mixer}/{ours}")
        for name in ("norm/scale", "output/kernel"):
            found[f"{own}/{name}"] = found.pop(f"{mixer}/{name}")
    for mixer in _gated(leaves):
        kernels = [_array(found.pop(f"{mixer}/{name}/kernel")) for name in ("query", "gate")]
        found[f"{mixer}/query/channels"] = _joined(kernels, *kernels[0].shape[:2])
    return mixtral.apart(found)


def together(found: Mapping[str, np.ndarray], shapes: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return what `apart` took apart, in leaves of these shapes."""
    own: dict[str, np.ndarray] = {}

    def take(whole: np.ndarray, paths: list[str], parts: int) -> None:
        pieces = _cut(whole, [shapes[path].shape for path in paths], parts)
        own.update(zip(paths, pieces, strict=True))

    for mixer in _deltas(shapes):
        place, (_, groups) = f"{mixer.rpartition('/')[0]}/delta", _sizes(shapes, mixer)
        for name, parts in zip(("qkvz", "ba"), _DELTA, strict=True):
            whole = found[f"{place}/in_proj_{name}/channels"]
            take(whole, [f"{mixer}/{part}/kernel" for part in parts], groups)
        paths = [f"{mixer}/{x}_convolution/depthwise" for x in _CONVOLVED]
        take(found[f"{place}/conv/channels"][:, 0], paths, 1)
        for ours, theirs in _ITSELF.items():
            own[f"{mixer}/{ours}"] = found[f"{place}/{theirs}/itself"]
        for name in ("norm/scale", "output/kernel"):
            own[f"{mixer}/{name}"] = found[f"{place}/{name}"]
    for mixer in _gated(shapes):
        paths = [f"{mixer}/{name}/kernel" for name in ("query", "gate")]
        take(found[f"{mixer}/query/channels"], paths, shapes[paths[0]].shape[1])
    rest = {path: leaf for path, leaf in shapes.items() if path not in own}
    return own | mixtral.together(found, rest)


def _settled(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields with the width of all heads that have a state; a file has that of one."""
    if not {"state_width", "state_heads"} <= fields.keys():
        return fields
    return fields | {"state_width": fields["state_width"] * fields["state_heads"]}


_OTHERWISE = "intermediate_size", "hidden_act"
_MLP = "model.layers.{}.mlp"
_DELTANET = {
    "in_proj_qkvz": "in_proj_qkvz", "in_proj_ba": "in_proj_ba", "conv": "conv1d",
    "dt_bias": "dt_bias", "A_log": "A_log", "norm": "norm", "output": "out_proj",
}  # fmt: skip
# Qwen Team 2025: https://huggingface.co/Qwen/Qwen3-Next-80B-A3B-Instruct.
QWEN3_NEXT = mixtral.QWEN3_MOE._replace(
    model_type="qwen3_next",
    architecture="Qwen3NextForCausalLM",
    modules={
        **mixtral.QWEN3_MOE.modules,
        **{
            f"{_LAYER}/delta/{ours}": f"model.layers.{{}}.linear_attn.{theirs}"
            for ours, theirs in _DELTANET.items()
        },
        **{
            f"{_LAYER}/feed_forward/shared/{name}": f"{_MLP}.shared_expert.{name}_proj"
            for name in ("gate", "up", "down")
        },
        f"{_LAYER}/feed_forward/shared_gate": f"{_MLP}.shared_expert_gate",
    },
    words=(
        *(item for item in NO_BIASES if item[0] not in _OTHERWISE and "rope" not in item[0]),
        *ROPE,
        # Theirs is that of the DeltaNets' convolutions too, which ours have no other for.
        ("hidden_act", Word("activation", (("silu", "swiglu"), ("swish", "swiglu")))),
        ("layer_types", Word(
            "decoder_pattern", (("linear_attention", "gated_delta"), ("full_attention", "full")),
            each=True, default=lambda words: [
                "full_attention" if n % words.get("full_attention_interval", 4) == 0
                else "linear_attention" for n in range(1, words["num_hidden_layers"] + 1)
            ],
        )),
        ("linear_num_value_heads", Word("state_heads", written="inner_heads")),
        ("linear_value_head_dim", Word(
            "state_width", written=lambda c: c.inner_width // c.inner_heads
        )),
        ("linear_num_key_heads", Word(
            "state_groups", written=lambda c: c.state_groups or c.inner_heads
        )),
        ("linear_key_head_dim", Word("state_size")),
        ("linear_conv_kernel_dim", Word("state_conv")),
        ("moe_intermediate_size", Word("d_ff")),
        ("shared_expert_intermediate_size", Word("d_ff")),
        ("num_experts", Word("num_experts")),
        *mixtral.CHOICE,
        *mixtral.EVERYWHERE,
    ),
    layout=Layout(apart, together),
    defaults={
        "hidden_size": 2048, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
        "num_hidden_layers": 48, "max_position_embeddings": 32768, "rms_norm_eps": 1e-06,
        "hidden_act": "silu", "attention_dropout": 0.0, "attention_bias": False,
        "tie_word_embeddings": False, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
        "num_experts": 512, "num_experts_per_tok": 10, "norm_topk_prob": True,
        "decoder_sparse_step": 1, "mlp_only_layers": None, "partial_rotary_factor": 0.25,
        "rope_theta": 10_000.0, "layer_types": None,
    },
    fixed={
        **mixtral.QWEN3_MOE.fixed, "norm": "zero_centered_rms_norm", "shared_experts": 1,
        "shared_expert_gate": True, "attention_gate": "elementwise", "biases": (),
    },
    settle=_settled,
    others=("mtp.",),  # further layers, which predict the pieces after the next
)  # fmt: skip
