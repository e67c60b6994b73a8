"""The families of Mamba: tensor names and keys of config.json. Their layers are a mixer alone, and
what enters it is a single projection.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from transformer_jax.export.huggingface.decoders import DECODER, TIED
from transformer_jax.export.huggingface.family import Family, Fixed, Layout, Word

_MIXER = "/self_attention/"
# Names of parameters, and those of the paths by which their tensors are named.
_MAMBA = {
    "value_convolution/depthwise": "value_convolution/channels", "rate_bias": "rate/bias",
    "log_decay": "log_decay/itself", "skip": "skip/itself",
}  # fmt: skip
_MAMBA2 = {
    **{f"{name}_convolution/depthwise": f"{name}_convolution/channels"
       for name in ("value", "key", "query")},
    "rate_bias": "rate_bias/itself", "log_decay": "log_decay/itself", "skip": "skip/itself",
    "scale": "norm/scale",
}  # fmt: skip


def _layout(names: Mapping[str, str]) -> Layout:
    """Return the layout in which these have other names, and kernels of convolutions are [C 1 W]
    for C channels, as in torch; ours are [W C], with C one axis or several.
    """

    def renamed(path: str) -> str:
        layer, part, own = path.partition(_MIXER)
        return layer + part + names.get(own, own)

    def apart(leaves: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for path, leaf in leaves.items():
            name = renamed(path)
            if name.endswith("/channels"):
                whole = leaf if isinstance(leaf, np.ndarray) else np.zeros(leaf.shape, np.float32)
                leaf = whole.reshape(len(whole), -1).T[:, None]
            found[name] = leaf
        return found

    def together(found: Mapping[str, np.ndarray], shapes: Mapping[str, Any]) -> dict[str, Any]:
        joined = {}
        for path, leaf in shapes.items():
            array = found[renamed(path)]
            turned = array[:, 0].T if renamed(path).endswith("/channels") else array
            joined[path] = turned.reshape(leaf.shape)
        return joined

    return Layout(apart, together)


def _modules(joined: Mapping[str, tuple[str, ...]], **others: str) -> dict[str, str]:
    """Return all modules; `joined` has, by theirs, those of ours that are a part of one."""
    layer, theirs = "decoder/layer_{}", "backbone.layers.{}"
    own = {ours: name for name, parts in joined.items() for ours in parts} | others
    return {
        "embedding": "backbone.embeddings",
        f"{layer}/self_attention_residual/norm": f"{theirs}.norm",
        **{f"{layer}{_MIXER}{ours}": f"{theirs}.mixer.{name}" for ours, name in own.items()},
        "decoder/final_norm": "backbone.norm_f",
        "output": "lm_head",
    }


def _settled(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields with the number of heads of attention, of which there is none."""
    return fields | {"num_heads": 1, "biases": ()}


_ALL = "query", "key", "value", "output", "feed_forward"
_WORDS = (
    ("hidden_size", Word("d_model")),
    ("num_hidden_layers", Word("num_decoder_layers")),
    ("state_size", Word("state_size")),
    ("conv_kernel", Word("state_conv")),
    ("layer_norm_epsilon", Word("norm_epsilon")),
    ("expand", Fixed(2)),
    ("use_bias", Fixed(False)),
    ("use_conv_bias", Fixed(True)),
    ("hidden_act", Fixed("silu")),
    ("tie_word_embeddings", Word("tied_embeddings", TIED)),
)

# Gu and Dao 2023, arXiv:2312.00752.
MAMBA = Family(
    model_type="mamba",
    architecture="MambaForCausalLM",
    prefix="backbone.",
    modules=_modules(
        {"in_proj": ("value", "gate"), "x_proj": ("rate_latent", "key", "query")},
        rate="dt_proj", output="out_proj", value_convolution="conv1d", log_decay="A_log", skip="D",
    ),
    words=_WORDS,
    defaults={
        "hidden_size": 768, "num_hidden_layers": 32, "state_size": 16, "conv_kernel": 4,
        "layer_norm_epsilon": 1e-05, "expand": 2, "use_bias": False, "use_conv_bias": True,
        "hidden_act": "silu", "tie_word_embeddings": True,
    },
    fixed={
        **DECODER, "norm": "rms_norm", "positions": "none", "relative_positions": "none",
        "decoder_pattern": ("mamba",), "feed_forward_pattern": ("none",), "activation": "relu",
    },
    tables=("lm_head.weight",),
    layout=_layout(_MAMBA),
    follows={"biases": ((), *_ALL)},
    settle=_settled,
)  # fmt: skip


# Time steps of any length, as versions write that.
_NO_LIMIT = [0.0, math.inf], (0.0, math.inf), [0.0, {"__float__": "Infinity"}]


# Dao and Gu 2024, arXiv:2405.21060.
MAMBA2 = MAMBA._replace(
    model_type="mamba2",
    architecture="Mamba2ForCausalLM",
    modules=_modules(
        {
            "in_proj": ("gate", "value", "key", "query", "rate"),
            "conv1d": ("value_convolution", "key_convolution", "query_convolution"),
        },
        rate_bias="dt_bias", output="out_proj", log_decay="A_log", skip="D", norm="norm",
    ),
    words=(
        *_WORDS,
        ("num_heads", Word("state_heads", written="inner_heads")),
        ("head_dim", Word(
            "state_heads", written=lambda c: c.inner_width // c.inner_heads, read=False
        )),
        ("n_groups", Word("state_groups", written=lambda c: c.state_groups or 1)),
        ("time_step_limit", Word(
            "architecture", tuple((limit, "decoder") for limit in _NO_LIMIT), written=None
        )),
    ),
    defaults={
        "hidden_size": 4096, "num_hidden_layers": 64, "state_size": 128, "conv_kernel": 4,
        "layer_norm_epsilon": 1e-05, "expand": 2, "use_bias": False, "use_conv_bias": True,
        "hidden_act": "silu", "tie_word_embeddings": False, "num_heads": 128, "n_groups": 8,
        "time_step_limit": [0.0, math.inf],
    },
    fixed={**MAMBA.fixed, "decoder_pattern": ("mamba2",)},
    layout=_layout(_MAMBA2),
)  # fmt: skip
