"""The balance of experts: biases that are moved by a rule, not by a gradient."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float
from transformer_jax.nn.roles import Roles, name_of


def without_loads(gradients: Any, roles: Roles) -> Any:
    """Return the gradients, with zeros in place of the loads that routers report among them."""
    return _of_biases(roles, jnp.zeros_like, gradients, gradients)


def balanced(params: Any, changed: Any, gradients: Any, rate: float, roles: Roles) -> Any:
    """Return the changed parameters, but biases of experts as in `params`, raised by the rate where
    an expert's load is below the mean of its layer's, and lowered where it is above (Wang et al.
    2024, arXiv:2408.15664, algorithm 1).
    """

    def moved(bias: Float[Array, "X"], load: Float[Array, "X"]) -> Array:
        return bias + rate * jnp.sign(load.mean() - load)

    return _of_biases(roles, moved, changed, params, gradients)


def busiest(gradients: Any, roles: Roles) -> Float[Array, ""] | None:
    """Return how many times the mean load of its layer the busiest expert of all layers has; 0 if
    no layer has a load, as each is frozen or dropped; None without experts.
    """
    found = loads(gradients, roles) or {}
    each = [load.max() / jnp.maximum(load.mean(), 1e-9) for load in found.values()]
    return jnp.stack(each).max() if each else None


def loads(gradients: Any, roles: Roles) -> dict[str, Float[Array, "..."]] | None:
    """Return how many tokens chose each expert, by layer; None without experts."""
    named = [(name_of(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(gradients)]
    return {_layer(name): leaf for name, leaf in named if _is_bias(roles, name)} or None


def _layer(name: str) -> str:
    """Return the name of the layer in which a router is."""
    return "/".join(name.split("/")[:-2])


def _of_biases(roles: Roles, apply: Callable[..., Array], tree: Any, *others: Any) -> Any:
    """Return the tree, with the result of a function for each bias of experts in it."""

    def at(path: tuple[Any, ...], leaf: Any, *more: Any) -> Any:
        return apply(*more) if _is_bias(roles, name_of(path)) else leaf

    return jax.tree_util.tree_map_with_path(at, tree, *others)


def _is_bias(roles: Roles, name: str) -> bool:
    return roles[name].kind == "moved"
