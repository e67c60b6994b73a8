"""Parameters moved by a rule, not by a gradient: in place of one they get a report."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array
from transformer_jax.config import ModelConfig
from transformer_jax.nn.roles import Roles, name_of

Reports = dict[str, dict[str, Any]]  # arrays by gauge and by layer


def without_reports(gradients: Any, roles: Roles) -> Any:
    """Return the gradients, with zeros in place of the reports among them."""
    return _of_moved(roles, lambda rule, report: jnp.zeros_like(report), gradients, gradients)


def moved(params: Any, changed: Any, gradients: Any, config: ModelConfig, roles: Roles) -> Any:
    """Return the changed parameters, but those with a rule as it moves them from `params`."""

    def move(rule: Any, leaf: Array, report: Array) -> Array:
        return rule.move(leaf, report, config)

    return _of_moved(roles, move, changed, params, gradients)


def reports(gradients: Any, roles: Roles) -> Reports:
    """Return what layers report among the gradients."""
    of_rules: Reports = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradients):
        name = name_of(path)
        if rule := roles[name].rule:
            of_rules.setdefault(rule.gauge, {})[_layer(name)] = leaf
    return of_rules


def gauges(reported: Reports, roles: Roles) -> dict[str, Array]:
    """Return what these reports of layers measure together."""
    rules = {role.rule.gauge: role.rule for role in roles.values() if role.rule}
    return {gauge: rules[gauge].measure([*each.values()]) for gauge, each in reported.items()}


def _layer(name: str) -> str:
    """Return the name of the layer in which a part's parameter is."""
    return "/".join(name.split("/")[:-2])


def _of_moved(roles: Roles, apply: Callable[..., Array], tree: Any, *others: Any) -> Any:
    """Return the tree, with the result of a function of the rule for each parameter with one."""

    def at(path: tuple[Any, ...], leaf: Any, *more: Any) -> Any:
        rule = roles[name_of(path)].rule
        return leaf if rule is None else apply(rule, *more)

    return jax.tree_util.tree_map_with_path(at, tree, *others)
