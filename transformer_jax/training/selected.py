"""Parameters by the patterns that a config has for their names: frozen, or at another rate."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax

from transformer_jax.config import Experiment, ModelConfig, OptimizerConfig
from transformer_jax.errors import UserError
from transformer_jax.models import lora

Frozen = Callable[[Any], Any]  # parameters -> a tree of bools, True where one stays as it is


def names(params: Any) -> Any:
    """Return the tree of names, "encoder/layer_0/feed_forward/up/kernel"."""

    def name(path: tuple[Any, ...], _: Any) -> str:
        return "/".join(key.key for key in path if isinstance(key, jax.tree_util.DictKey))

    return jax.tree_util.tree_map_with_path(name, params)


def matches(patterns: Sequence[str], name: str) -> bool:
    """Say whether one of the patterns is that of the whole name."""
    return any(re.fullmatch(pattern, name) for pattern in patterns)


def frozen_of(optimizer: OptimizerConfig, model: ModelConfig) -> Frozen | None:
    """Return which parameters stay as they begin; None: all are trained.

    With low-rank adaptation all that is adapted stays.
    """
    patterns, adapts = optimizer.frozen, model.lora_rank is not None
    if not patterns and not adapts:
        return None

    def stays(name: str) -> bool:
        adapted = adapts and name.rpartition("/")[2] not in (lora.A, lora.B)
        return adapted or matches(patterns, name)

    return lambda params: jax.tree.map(stays, names(params))


def rate_factors(config: OptimizerConfig, params: Any) -> Any:
    """Return the tree of factors of the learning rate."""
    every = names(params)
    layers = [_layer(name) for name in jax.tree.leaves(every)]
    top = max((layer for layer in layers if layer is not None), default=-1) + 1

    def factor(name: str) -> float:
        found = 1.0
        for pattern, value in config.factors:
            found *= value if matches((pattern,), name) else 1.0
        below = name.split("/")[0].endswith(("embedding", "positions", "kinds", "input_norm"))
        layer = -1 if below else _layer(name)
        return found * config.layer_decay ** (0 if layer is None else top - layer)

    return jax.tree.map(factor, every)


def _layer(name: str) -> int | None:
    """Return the number of the layer of its stack that a parameter is part of."""
    found = re.search(r"(?:^|/)layer_(\d+)/", name)
    return None if found is None else int(found[1])


def check(experiment: Experiment, params: Any) -> None:
    """Check the patterns against the parameters that there are.

    Raises:
      UserError: if a pattern is of none, or nothing is left to train.
    """
    every, optimizer = jax.tree.leaves(names(params)), experiment.optimizer
    named = [("frozen", pattern) for pattern in optimizer.frozen]
    named += [("rate_factors", pattern) for pattern, _ in optimizer.factors]
    for field, pattern in named:
        if not any(matches((pattern,), name) for name in every):
            raise UserError(
                f"config.optimizer.{field}: {pattern!r} matches no parameter; names are like "
                f"{every[0]}, and a pattern must match the whole of one"
            )
    frozen = frozen_of(optimizer, experiment.model)
    if frozen is not None and all(jax.tree.leaves(frozen(params))):
        raise UserError(f"config.optimizer.frozen={optimizer.frozen}: leaves nothing to train")
