"""How initial values, learning rates and the logits change with the size of a model: muP (Yang et
al. 2022, arXiv:2203.03466) and CompleteP (Dey et al. 2025, arXiv:2505.01618).

With n times the width of the base and m times its depth, for steps of a size for each number as
Adam's (table 8 of the former, and table 1 of the latter with alpha = 1):

                          initial values     learning rate   elsewhere
    embeddings, positions as the base's      as it is
    maps inside           1 / sqrt(n)        1 / n
    heads, untied tables  1 / n              1 / n
    tied tables           as embeddings      as embeddings   logits / n
    norms, biases         as the base's      as it is
    residual parts                                           what they add / m  (CompleteP)
    gradients                                                n m times, in place of epsilon / (n m)

Scores need no factor, as the size of heads stays. Weight decay is not divided by n: it is the share
of a parameter that is lost in an update. What is relative to the base is so whatever the modules'
own initial values are; at the base's size all factors are 1.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax

from transformer_jax.config import ModelConfig
from transformer_jax.nn.roles import Role, is_box, name_of, role_of

# Logical axes that grow with the width; those of keys and values do if they are the heads'.
_GROWING = "embed", "heads", "mlp"


class Widths(NamedTuple):
    """What an optimizer is to know of a model's size.

    rates: the factor of the learning rate of each parameter, by name.
    gradients: that of all gradients, which moves `epsilon` relative to them.
    """

    rates: Mapping[str, float]
    gradients: float


def widths_in(config: ModelConfig, params: Any) -> Widths | None:
    """Return what an optimizer is to know, given parameters in boxes; None: nothing."""
    if config.widths == config.depths == 1:
        return None
    leaves = jax.tree_util.tree_leaves_with_path(params, is_leaf=is_box)
    rates = {name_of(path): _of(config, name_of(path), leaf).rate for path, leaf in leaves}
    return Widths(rates, config.widths * config.depths)


def resized(config: ModelConfig, params: Any) -> Any:
    """Return the initial values of parameters in boxes, as the parametrization has them."""
    if config.widths == config.depths == 1:
        return params

    def start(path: tuple[Any, ...], leaf: Any) -> Any:
        factor = _of(config, name_of(path), leaf).start
        return leaf if factor == 1 else leaf.replace(value=factor * leaf.value)

    return jax.tree_util.tree_map_with_path(start, params, is_leaf=is_box)


def logits_factor(config: ModelConfig) -> float:
    """Return the factor of the logits of a tied table, beside those that the config sets."""
    n = config.widths
    if config.tied_embeddings == "none":
        return 1.0
    own = config.embedding_scale + config.logits_scale  # each a factor of n^-1/2 already
    return n ** (own / 2 - 1)


class _Factors(NamedTuple):
    """Of initial values, beside those of the module or the initializer, and of the rate."""

    start: float = 1.0
    rate: float = 1.0


def _of(config: ModelConfig, name: str, leaf: Any) -> _Factors:
    n, role = config.widths, role_of(name, leaf)
    if role.kind == "table" and role.part == "embedding":
        # Looked up, its rows may be sqrt(d_model) times as large.
        power = -0.5 if config.embedding_scale else 0.0
        return _Factors(n**power / _usual(config, role, leaf), n**power)
    if role.kind == "table" and role.part in ("logits", "head"):
        return _Factors(1 / n / _usual(config, role, leaf), 1 / n)
    if role.kind == "table" and role.part in ("positions", "kinds"):
        return _Factors(1 / _usual(config, role, leaf), 1.0)
    if not role.is_map:
        return _Factors()
    usual = _usual(config, role, leaf)
    if not _grows(config, _axes(role, leaf)[0]):
        return _Factors(1 / usual, 1.0)
    out = math.prod(nn.unbox(leaf).shape[1:])
    last = role.part == "head" and out != config.d_model
    return _Factors(n ** (-1.0 if last else -0.5) / usual, 1 / n)


def _usual(config: ModelConfig, role: Role, leaf: Any) -> float:
    """Return how many times the base's deviation the usual initial values have here."""
    n, m, shape = config.widths, config.depths, nn.unbox(leaf).shape
    if config.initializer.startswith("gpt2") and role.part != "own":
        return m**-0.5 if role.part == "outward" else 1.0
    if not role.is_map:
        alike = config.initializer == "t5" and role.part in ("embedding", "kinds")
        return 1.0 if alike else n**-0.5
    axes = _axes(role, leaf)
    if config.initializer == "t5" and role.part != "own":
        return n**-0.5 if _grows(config, axes[0]) else 1.0
    here, base = 0.0, 0.0  # Xavier's: of the sum of both sides
    for side in axes:
        size = math.prod(shape[axis] for axis, _ in side)
        here, base = here + size, base + size / (n if _grows(config, side) else 1)
    return (base / here) ** 0.5


_Side = list[tuple[int, str | None]]  # axes and their names


def _axes(role: Role, leaf: Any) -> tuple[_Side, _Side]:
    """Return the axes of a map's inputs and of its outputs."""
    axes = list(enumerate(leaf.names))[int(role.kind == "maps") :]
    between = len(axes) - 1 if role.part == "outward" else 1
    return axes[:between], axes[between:]


def _grows(config: ModelConfig, side: _Side) -> bool:
    growing = (*_GROWING, *("kv_heads",) * (config.kv_heads == config.num_heads))
    return any(name in growing for _, name in side)
