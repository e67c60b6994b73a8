"""Parameters selected by a config's name patterns: frozen, or with another learning rate."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import optax

from transformer_jax.base.errors import UserError
from transformer_jax.config import Experiment, ModelConfig, OptimizerConfig
from transformer_jax.models import lora
from transformer_jax.nn.roles import name_of

# Where parameters are: in a layer, before all layers, in all of them, or after them.
_LAYER = re.compile(r"(?:encoder|decoder)/layer_(\d+)/")
_BEFORE = re.compile(
    r"(?:(?:src_|tgt_)?(?:embedding|positions|input_norm)|kinds|mask_emb|stem|connector)(?:/|$)"
)
_SHARED = re.compile(r"(?:encoder|decoder)/relative_positions/")
_BEHIND = re.compile(
    r"(?:(?:encoder|decoder)/final_norm|output|output_layer|pooler|[a-z_]+_head|future_\d+)/"
)

Frozen = Callable[[Any], Any]  # parameters -> a tree of bools, True for frozen ones


def names(params: Any) -> Any:
    """Return the tree of names, "encoder/layer_0/feed_forward/up/kernel"."""
    return jax.tree_util.tree_map_with_path(lambda path, _: name_of(path), params)


def matches(patterns: Sequence[str], name: str) -> bool:
    """Return whether one of the patterns matches the whole name."""
    return any(re.fullmatch(pattern, name) for pattern in patterns)


def frozen_of(optimizer: OptimizerConfig, model: ModelConfig) -> Frozen | None:
    """Return which parameters are frozen; None: all are trained.

    With low-rank adaptation all are frozen except A, B and those in `unfrozen`.
    """
    adapts = model.lora_rank is not None
    if not optimizer.frozen and not adapts:
        return None
    added = rf".*/({lora.A}|{lora.B})"

    def stays(name: str) -> bool:
        trained = not adapts or matches((added, *optimizer.unfrozen), name)
        return not trained or matches(optimizer.frozen, name)

    return lambda params: jax.tree.map(stays, names(params))


def rate_factors(config: OptimizerConfig, params: Any) -> Any:
    """Return the tree of learning-rate factors; frozen parameters may be masked."""
    places = jax.tree.leaves_with_path(params, is_leaf=lambda x: isinstance(x, optax.MaskedNode))
    top = max((int(n) for path, _ in places for n in _LAYER.findall(name_of(path))), default=-1)

    def factor(name: str) -> float:
        product = 1.0
        for pattern, value in config.factors:
            product *= value if matches((pattern,), name) else 1.0
        return (
            product
            if config.layer_decay == 1
            else product * config.layer_decay ** _below(name, top)
        )

    return jax.tree.map(factor, names(params))


def _below(name: str, top: int) -> int:
    """Return how many layers a parameter is below what follows the last layer, number `top`."""
    layer = _LAYER.match(name)
    if layer:
        return top + 1 - int(layer[1])
    for pattern, depth in ((_BEFORE, top + 2), (_SHARED, top + 1), (_BEHIND, 0)):
        if pattern.match(name):
            return depth
    raise UserError(
        f"config.optimizer.layer_decay: the depth of {name} is not defined; set layer_decay to 1"
    )


def check(experiment: Experiment, params: Any) -> None:
    """Check the patterns against the model's parameters.

    Raises:
      UserError: if a pattern matches none, nothing is left to train, the model lacks a map that
        low-rank adaptation names, or `layer_decay` does not know where a parameter is.
    """
    every, optimizer = jax.tree.leaves(names(params)), experiment.optimizer
    named = [("frozen", pattern) for pattern in optimizer.frozen]
    named += [("unfrozen", pattern) for pattern in optimizer.unfrozen]
    named += [("rate_factors", pattern) for pattern, _ in optimizer.factors]
    for field, pattern in named:
        if not any(matches((pattern,), name) for name in every):
            raise UserError(
                f"config.optimizer.{field}: {pattern!r} matches no parameter; names are like "
                f"{every[0]}, and a pattern must match a whole name"
            )
    rate_factors(optimizer, params)
    maps = experiment.model.lora_maps if experiment.model.lora_rank is not None else ()
    for map_name in maps:
        if not any(matches((rf"(.*/)?(src_|tgt_)?{map_name}/{lora.A}",), name) for name in every):
            raise UserError(
                f"config.model.lora_maps={maps}: no layer of this model has a map {map_name!r}; "
                "remove it"
            )
    frozen = frozen_of(optimizer, experiment.model)
    if frozen is not None and all(jax.tree.leaves(frozen(params))):
        raise UserError(f"config.optimizer.frozen={optimizer.frozen}: leaves nothing to train")
