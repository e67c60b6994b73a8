"""Initial values of parameters, by `config.initializer` and, for DeepNorm, by `config.residual`.

Modules initialise them with tensor2tensor's values ("xavier"). Here others replace these, by the
role of each parameter: a map need not know the depth of its stack.
"""

import itertools
import math
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax

from transformer_jax.base.arrays import Array
from transformer_jax.base.errors import UserError
from transformer_jax.config import ModelConfig
from transformer_jax.config.choices.mixers import MIXERS
from transformer_jax.config.registry import pick
from transformer_jax.nn.residual import deep_norm
from transformer_jax.nn.roles import Role, is_box, name_of, role_of

CROSS_LAYERS = ("input_layer", "output_layer")  # a Perceiver's
TIME_LAYERS = "time_encoder"  # of a factorised encoder


class Parameter(NamedTuple):
    """A kernel or a table: its role, the stack that it is in, and its current values."""

    role: Role
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
    part, shape = parameter.role.part, parameter.values.shape
    if part == "positions":
        return None
    if part in ("embedding", "kinds"):
        return 1.0
    if part in ("logits", "head"):
        return config.d_model**-0.5
    fan_in = math.prod(shape[:-1]) if part == "outward" else shape[0]
    undivided = part == "query" and config.score_scale == "none"
    return (fan_in * (config.key_size if undivided else 1)) ** -0.5


def gpt2(config: ModelConfig, parameter: Parameter) -> float | None:
    """Return 0.02, and for maps that end residual parts 0.02 / sqrt(parts of the stack).

    Radford et al. 2019, section 2.3: this keeps the stream's variance from growing with depth.
    """
    if not parameter.stack or parameter.role.part != "outward":
        return 0.02
    return 0.02 * _parts(config, parameter.stack) ** -0.5


def gpt2_zero(config: ModelConfig, parameter: Parameter) -> float | None:
    """Return 0.02, and 0 for maps that end residual parts: a stack starts as the identity, as in
    modded-nanogpt (https://github.com/KellerJordan/modded-nanogpt).
    """
    return 0.0 if parameter.stack and parameter.role.part == "outward" else 0.02


def _parts(config: ModelConfig, stack: str) -> int:
    """Return how many residual parts a stack has; a Perceiver's cross layers are stacks of one."""
    if stack in CROSS_LAYERS:
        return 2
    if stack == TIME_LAYERS:
        return 2 * config.num_time_layers
    layers = getattr(config, f"num_{stack}_layers")
    mixers = itertools.cycle(getattr(config, f"{stack}_pattern"))
    both = zip(mixers, itertools.cycle(config.feed_forward_pattern))
    own = 3 if _cross(config, stack) else 2
    return sum(
        _parts_of(mixer) or own - (feed_forward == "none")
        for mixer, feed_forward in itertools.islice(both, layers)
    )


def _parts_of(kind: str) -> int | None:
    return MIXERS[kind].parts if kind in MIXERS else None


INITIALIZERS: dict[str, Callable[[ModelConfig, Parameter], float | None]] = {
    "xavier": xavier,
    "t5": t5,
    "gpt2": gpt2,
    "gpt2_zero": gpt2_zero,
}


def restarted(config: ModelConfig, params: Any, key: jax.Array) -> Any:
    """Return fresh parameters with the config's initial values; biases and norms unchanged.

    Raises:
      UserError: if `initializer` does not define the initial value of some parameter.
    """
    deviation = pick(INITIALIZERS, config.initializer, "config.model.initializer")
    if deviation is xavier and config.residual != "deep_norm":
        return params

    def start(name: str, role: Role, values: Array) -> Array:
        _check_known(config, role, name)
        top = name.partition("/")[0]
        stack = top if top in ("encoder", "decoder", TIME_LAYERS, *CROSS_LAYERS) else ""
        parameter = Parameter(role, stack, values[0] if role.kind == "maps" else values)
        std = deviation(config, parameter)
        if std is None:
            return values * _gain(config, parameter)
        mine = jax.random.fold_in(key, zlib.crc32(name.encode()))
        return std * jax.random.normal(mine, values.shape, values.dtype)

    def at(path: tuple[Any, ...], leaf: Any) -> Any:
        name = name_of(path)
        role = role_of(name, leaf)
        if role.part == "own":
            return leaf
        values = start(name, role, nn.unbox(leaf))
        return leaf.replace(value=values) if is_box(leaf) else values

    return jax.tree_util.tree_map_with_path(at, params, is_leaf=is_box)


def _gain(config: ModelConfig, parameter: Parameter) -> float:
    """Return DeepNorm's beta for the parameters that it scales down, else 1."""
    smaller = parameter.stack and parameter.role.part in ("inward", "outward")
    if config.residual != "deep_norm" or not smaller:
        return 1.0
    return deep_norm(config, _cross(config, parameter.stack)).beta


def _cross(config: ModelConfig, stack: str) -> bool:
    return config.architecture == "encoder_decoder" and stack == "decoder"


def _check_known(config: ModelConfig, role: Role, name: str) -> None:
    if role.part == "other":
        raise UserError(
            f"config.model.initializer={config.initializer!r}, residual={config.residual!r}: "
            f"neither defines initial values of {name}; choose 'xavier' and another "
            "residual"
        )
