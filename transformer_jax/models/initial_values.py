"""Initial values of parameters, by `config.initializer` and, for DeepNorm, by `config.residual`.

Modules initialise them with tensor2tensor's values ("xavier"). Here others replace these, by
parameter name: checkpoints fix names anyway, and a map need not know the depth of its stack.
"""

import itertools
import math
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from transformer_jax.arrays import Array
from transformer_jax.choices import pick
from transformer_jax.config import ModelConfig
from transformer_jax.config.choices.mixers import MIXERS
from transformer_jax.errors import UserError
from transformer_jax.nn.residual import deep_norm

INWARD = ("query", "key", "value", "up", "gate", "router")  # kernels [in, out...]
OUTWARD = ("output", "down")  # kernels [in..., out] that end a residual part
EMBEDDINGS = ("embedding", "src_embedding", "tgt_embedding", "mask_emb")  # XLNet's is a vector
POSITIONS = ("positions", "src_positions", "tgt_positions", "query_positions")
HEADS = (  # of an encoder
    "dense", "pooler", "class_head", "next_sentence_head", "tags_head", "value_head", "span_head",
    "ctc_head", "move_head", "step", "crossing",
)  # fmt: skip
KNOWN = (*INWARD, *OUTWARD, *EMBEDDINGS, *POSITIONS, *HEADS, "kinds")
CROSS_LAYERS = ("input_layer", "output_layer")  # a Perceiver's


class Parameter(NamedTuple):
    """A kernel or a table: its module, the stack that it is in, and its current values."""

    module: str
    stack: str
    values: Array


def xavier(config: ModelConfig, parameter: Parameter) -> float | None:
    """Keep the modules' own values: Xavier-uniform kernels, tables from N(0, 1/d_model)."""
    return None


def t5(config: ModelConfig, parameter: Parameter) -> float | None:
    """Return T5's standard deviations (Raffel et al. 2020, arXiv:1910.10683; its code).

    If scores are not divided by sqrt(d_k), as in T5, queries start smaller by that factor.
    Embeddings start from N(0, 1), a separate pre-softmax table from N(0, 1/d_model); T5 has no
    position tables.
    """
    module, shape = parameter.module, parameter.values.shape
    if module in POSITIONS:
        return None
    if module in (*EMBEDDINGS, "kinds"):
        return 1.0
    if not parameter.stack:  # the pre-softmax table
        return config.d_model**-0.5
    fan_in = math.prod(shape[:-1]) if module in OUTWARD else shape[0]
    undivided = module == "query" and config.score_scale == "none"
    return (fan_in * (config.key_size if undivided else 1)) ** -0.5


def gpt2(config: ModelConfig, parameter: Parameter) -> float | None:
    """Return 0.02, and for maps that end residual parts 0.02 / sqrt(parts of the stack).

    Radford et al. 2019, section 2.3: this keeps the stream's variance from growing with depth.
    """
    if not parameter.stack or parameter.module not in OUTWARD:
        return 0.02
    return 0.02 * _parts(config, parameter.stack) ** -0.5


def _parts(config: ModelConfig, stack: str) -> int:
    """Return how many residual parts a stack has; a Perceiver's cross layers are stacks of one."""
    if stack in CROSS_LAYERS:
        return 2
    layers = getattr(config, f"num_{stack}_layers")
    kinds = itertools.islice(itertools.cycle(getattr(config, f"{stack}_pattern")), layers)
    own = 3 if _cross(config, stack) else 2
    return sum(_parts_of(kind) or own for kind in kinds)


def _parts_of(kind: str) -> int | None:
    return MIXERS[kind].parts if kind in MIXERS else None


INITIALIZERS: dict[str, Callable[[ModelConfig, Parameter], float | None]] = {
    "xavier": xavier,
    "t5": t5,
    "gpt2": gpt2,
}


def restarted(config: ModelConfig, params: Any, key: jax.Array) -> Any:
    """Return fresh parameters with the config's initial values; biases and norms unchanged.

    Raises:
      UserError: if `initializer` does not define the initial value of some parameter.
    """
    deviation = pick(INITIALIZERS, config.initializer, "config.model.initializer")
    if deviation is xavier and config.residual != "deep_norm":
        return params

    def start(path: tuple[Any, ...], values: Array) -> Array:
        names = [entry.key for entry in path if isinstance(entry, jax.tree_util.DictKey)]
        # Relative positions, stems and connectors keep their own initialisation.
        own = not {"relative_positions", "stem", "connector"}.isdisjoint(names)
        if names[-1] not in ("kernel", "kernels", "table", "mask_emb") or own:
            return values
        stack = names[0] if names[0] in ("encoder", "decoder", *CROSS_LAYERS) else ""
        one = values[0] if names[-1] == "kernels" else values  # of each expert
        parameter = Parameter(names[-2:][0], stack, one)  # a vector is its own module
        _check_known(config, parameter.module, names)
        std = deviation(config, parameter)
        if std is None:
            return values * _gain(config, parameter)
        mine = jax.random.fold_in(key, zlib.crc32("/".join(names).encode()))
        return std * jax.random.normal(mine, values.shape, values.dtype)

    return jax.tree_util.tree_map_with_path(start, params)


def _gain(config: ModelConfig, parameter: Parameter) -> float:
    """Return DeepNorm's beta for the parameters that it scales down, else 1."""
    smaller = parameter.stack and parameter.module not in ("query", "key", "router")
    if config.residual != "deep_norm" or not smaller:
        return 1.0
    return deep_norm(config, _cross(config, parameter.stack)).beta


def _cross(config: ModelConfig, stack: str) -> bool:
    return config.architecture == "encoder_decoder" and stack == "decoder"


def _check_known(config: ModelConfig, module: str, names: list[str]) -> None:
    if module not in KNOWN:
        raise UserError(
            f"config.model.initializer={config.initializer!r}, residual={config.residual!r}: "
            f"neither defines initial values of {'/'.join(names)}; choose 'xavier' and another "
            "residual"
        )
