"""The balance of experts: biases that are moved by a rule, not by a gradient."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Float
from transformer_jax.nn.experts import LOAD_BIAS


def without_loads(gradients: Any) -> Any:
    """Return the gradients, with zeros in place of the loads that routers report among them."""
    return _of_biases(jnp.zeros_like, gradients, gradients)


def balanced(params: Any, changed: Any, gradients: Any, rate: float) -> Any:
    """Return the changed parameters, but biases of experts as in `params`, raised by the rate where
    an expert's load is below the mean of its layer's, and lowered where it is above (Wang et al.
    2024, arXiv:2408.15664, algorithm 1).
    """

    def moved(bias: Float[Array, "X"], load: Float[Array, "X"]) -> Array:
        return bias + rate * jnp.sign(load.mean() - load)

    return _of_biases(moved, changed, params, gradients)


def busiest(gradients: Any) -> Float[Array, ""] | None:
    """Return how many times the mean load of its layer the busiest expert of all layers has; 0 if
    no layer has a load, as each is frozen or dropped; None without experts.
    """
    named = jax.tree_util.tree_leaves_with_path(gradients)
    loads = [leaf for path, leaf in named if _is_bias(path)]
    each = [load.max() / jnp.maximum(load.mean(), 1e-9) for load in loads]
    return jnp.stack(each).max() if each else None


def loads(gradients: Any) -> dict[str, Float[Array, "..."]] | None:
    """Return how many tokens chose each expert, by layer; None without experts."""
    named = jax.tree_util.tree_leaves_with_path(gradients)
    found = {_layer(path): leaf for path, leaf in named if _is_bias(path)}
    return found or None


def _layer(path: tuple[Any, ...]) -> str:
    """Return the name of the layer in which a router is."""
    return "/".join(str(part.key) for part in path[:-2])


def _of_biases(apply: Callable[..., Array], tree: Any, *others: Any) -> Any:
    """Return the tree, with the result of a function for each bias of experts in it."""

    def at(path: tuple[Any, ...], leaf: Any, *more: Any) -> Any:
        return apply(*more) if _is_bias(path) else leaf

    return jax.tree_util.tree_map_with_path(at, tree, *others)


def _is_bias(path: tuple[Any, ...]) -> bool:
    return getattr(path[-1], "key", None) == LOAD_BIAS
