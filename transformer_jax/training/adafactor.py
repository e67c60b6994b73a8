"""Adafactor (Shazeer and Stern 2018, arXiv:1804.04235): second moments of a matrix from those of
its rows and its columns.
"""

import math
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from transformer_jax.base.arrays import Array, Int
from transformer_jax.nn.roles import Role, Roles, is_box, name_of
from transformer_jax.training.muon import cut_of

_DECAY = 0.8  # the weight of a new square is steps^-0.8
_SMALLEST_SQUARE = 1e-30  # is added to squares
_SMALLEST_SIZE = 1e-3  # of a parameter, so that one that starts at 0 can move
_LARGEST = 1.0  # root mean square of an update, in units of the parameter's


class Factored(NamedTuple):
    """Mean squares of the gradient of a matrix, over its columns and over its rows."""

    rows: Any
    columns: Any


class AdafactorState(NamedTuple):
    """Mean squares of gradients: `Factored` of matrices, and whole ones of other parameters."""

    steps: Int[Array, ""]
    squares: Any


def adafactor(roles: Roles) -> optax.GradientTransformation:
    """Return Adafactor without a learning rate and without momentum, relative to the size of the
    parameters: their root mean square, at least 1e-3.

    Maps and tables are factored, whatever their size; those that hold several maps are one for
    each. Kernels with more axes are viewed as matrices by `muon.matrix`.
    """

    def init(params: Any) -> AdafactorState:
        squares = jax.tree_util.tree_map_with_path(
            lambda path, leaf: _zeros(roles[name_of(path)], leaf), params, is_leaf=is_box
        )
        return AdafactorState(jnp.zeros((), jnp.int32), squares)

    def update(updates: Any, state: AdafactorState, params: Any) -> tuple[Any, AdafactorState]:
        steps = optax.safe_increment(state.steps)
        weight = steps.astype(float) ** -_DECAY
        squares = jax.tree_util.tree_map_with_path(
            lambda path, leaf, old: _mean_squares(roles[name_of(path)], leaf, old, weight),
            updates, state.squares,
        )  # fmt: skip
        moved = jax.tree_util.tree_map_with_path(
            lambda path, leaf, new, param: _update(roles[name_of(path)], leaf, new, param),
            updates, squares, params,
        )  # fmt: skip
        return moved, AdafactorState(steps, squares)

    return optax.GradientTransformation(init, update)


def _axes(role: Role, shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Return the axes of rows and those of columns; None for what is no matrix."""
    first = int(role.kind == "maps")
    if not (role.is_map or role.kind == "table") or len(shape) - first < 2:
        return None
    between = first + cut_of(shape[first:])
    return tuple(range(first, between)), tuple(range(between, len(shape)))


def _zeros(role: Role, leaf: Any) -> Any:
    """Return the squares before the first step, in boxes if the parameter is in one."""
    if not jax.tree.leaves(leaf):  # masked, as it is another optimizer's
        return leaf
    axes = _axes(role, nn.unbox(leaf).shape)
    if axes is None:
        return jax.tree.map(jnp.zeros_like, leaf)
    return Factored(*(_without(leaf, other) for other in reversed(axes)))


def _without(leaf: Any, axes: tuple[int, ...]) -> Any:
    """Return zeros like a parameter, without some axes."""
    value = nn.unbox(leaf)
    kept = [axis for axis in range(value.ndim) if axis not in axes]
    zeros = jnp.zeros([value.shape[axis] for axis in kept], value.dtype)
    if not is_box(leaf):
        return zeros
    return leaf.replace(value=zeros, names=tuple(leaf.names[axis] for axis in kept))


def _mean_squares(role: Role, gradient: Array, old: Any, weight: Array) -> Any:
    square = jnp.square(gradient) + _SMALLEST_SQUARE

    def moved(mean: Array, new: Array) -> Array:
        return ((1 - weight) * mean + weight * new).astype(mean.dtype)

    axes = _axes(role, gradient.shape)
    if axes is None:
        return moved(old, square)
    rows, columns = axes
    return Factored(moved(old.rows, square.mean(columns)), moved(old.columns, square.mean(rows)))


def _update(role: Role, gradient: Array, squares: Any, param: Array) -> Array:
    """Return the update of a parameter: its gradient over the root of the squares, clipped."""
    axes = _axes(role, gradient.shape)
    if axes is None:
        update = gradient * jax.lax.rsqrt(squares)
    else:
        rows, columns = axes
        of_rows = jnp.expand_dims(squares.rows, columns)
        of_columns = jnp.expand_dims(squares.columns, rows)
        share = of_rows / of_rows.mean(rows, keepdims=True)
        update = gradient * jax.lax.rsqrt(share) * jax.lax.rsqrt(of_columns)
    each = tuple(range(int(role.kind == "maps"), gradient.ndim))
    update = update / jnp.maximum(1, _size(update, each) / _LARGEST)
    return update * jnp.maximum(_SMALLEST_SIZE, _size(param, each))


def _size(x: Array, axes: tuple[int, ...]) -> Array:
    """Return the root mean square over these axes, which are kept."""
    return jnp.sqrt(jnp.square(x).mean(axes, keepdims=True)) if math.prod(x.shape) else x
