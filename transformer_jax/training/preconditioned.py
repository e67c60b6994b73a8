"""Shampoo and SOAP: gradients of matrices, scaled along the directions in which they vary.

Both keep a mean of G G^T and of G^T G, of the gradients G of each kernel. Shampoo (Gupta et al.
2018, arXiv:1802.09568) scales by powers of them, SOAP (Vyas et al. 2024, arXiv:2409.11321) by Adam
in their eigenvectors.
"""

import functools
import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from transformer_jax.base.arrays import Array, Bool, Float, Int
from transformer_jax.nn.roles import Role, Roles, is_box, name_of
from transformer_jax.training.muon import cut_of, matrix

_LARGEST = 8192  # rows or columns; a longer side stays as it is, as its matrix would be too large
_RIDGE = 1e-6  # times the largest eigenvalue, beside which smaller ones are noise in float32
_SMALLEST = 1e-30

# A side's matrices, or None for one that is too long.
Sides = tuple[Any, Any]


class Preconditioned(NamedTuple):
    """The state of a kernel: moments as in Adam, and of each side, the mean product of gradients
    and what is computed from it: its inverse fourth root, or its eigenvectors.
    """

    mean: Any
    square: Any
    products: Sides
    sides: Sides


class PreconditionedState(NamedTuple):
    """The states of all kernels."""

    steps: Int[Array, ""]
    kernels: Any


class Moved(NamedTuple):
    """The update of a kernel, and its state after it."""

    update: Any
    state: Any


class Numbers(NamedTuple):
    """See the fields of the same names in the manual."""

    b1: float
    b2: float
    epsilon: float
    every: int


Update = Callable[[Array, Preconditioned, Any, Numbers], tuple[Array, Preconditioned]]


def shampoo(numbers: Numbers, roles: Roles) -> optax.GradientTransformation:
    """Return Shampoo for matrices, without a learning rate. The direction is L^(-1/4) M R^(-1/4),
    of the mean gradient M, and the norm of each update is that of Adam's (grafting: Anil et al.
    2020, arXiv:2002.09018).
    """
    return _of_matrices(_shampoo, numbers, roles)


def soap(numbers: Numbers, roles: Roles) -> optax.GradientTransformation:
    """Return SOAP for matrices, without a learning rate. The first update is zero, and finds the
    eigenvectors; later they follow by one step of a power iteration at a time.
    """
    return _of_matrices(_soap, numbers, roles)


def _of_matrices(update: Update, numbers: Numbers, roles: Roles) -> optax.GradientTransformation:
    """Return an optimizer of kernels, each viewed as a matrix by `muon.matrix`; those that hold
    several maps are one for each.
    """

    def init(params: Any) -> PreconditionedState:
        kernels = jax.tree_util.tree_map_with_path(
            lambda path, leaf: _begin(roles[name_of(path)], leaf), params, is_leaf=is_box
        )
        return PreconditionedState(jnp.zeros((), jnp.int32), kernels)

    def of_one(role: Role, gradient: Array, state: Preconditioned, steps: Array):
        def one(g: Array, mean: Array, square: Array, products: Sides, sides: Sides):
            rows, columns = matrix(g.shape)
            first, second = (x.reshape(rows, columns) for x in (mean, square))
            flat = Preconditioned(first, second, products, sides)
            moved, new = update(g.reshape(rows, columns), flat, steps, numbers)
            kept = new._replace(mean=new.mean.reshape(g.shape), square=new.square.reshape(g.shape))
            return moved.reshape(g.shape), kept

        return (jax.vmap(one) if role.kind == "maps" else one)(gradient, *state)

    def step(updates: Any, state: PreconditionedState, params: Any = None):
        steps = optax.safe_increment(state.steps)
        pairs = jax.tree_util.tree_map_with_path(
            lambda path, leaf, old: Moved(*of_one(roles[name_of(path)], leaf, old, steps)),
            updates, state.kernels,
        )  # fmt: skip
        moved, kernels = (
            jax.tree.map(operator.itemgetter(part), pairs, is_leaf=lambda x: isinstance(x, Moved))
            for part in range(2)
        )
        return moved, PreconditionedState(steps, kernels)

    return optax.GradientTransformation(init, step)


def _begin(role: Role, leaf: Any) -> Any:
    """Return the state of a kernel before the first step, in boxes if it is in one."""
    if not jax.tree.leaves(leaf):  # masked, as it is another optimizer's
        return leaf
    value, several = nn.unbox(leaf), int(role.kind == "maps")
    cut = several + cut_of(value.shape[several:])
    products = []
    for size, first in zip(matrix(value.shape[several:]), (several, cut), strict=True):
        zeros = jnp.zeros((*value.shape[:several], size, size), value.dtype)
        if is_box(leaf):  # its rows lie where those of the kernel do
            names = (*leaf.names[:several], leaf.names[first], None)
            zeros = leaf.replace(value=zeros, names=names)
        products.append(None if size > _LARGEST else zeros)
    blank = jax.tree.map(jnp.zeros_like, leaf)
    left, right = products
    return Preconditioned(blank, blank, (left, right), (left, right))


def _shampoo(
    g: Float[Array, "M N"], state: Preconditioned, steps: Int[Array, ""], numbers: Numbers
) -> tuple[Float[Array, "M N"], Preconditioned]:
    b1, b2, epsilon, every = numbers
    mean, square = _moved(b1, state.mean, g), _moved(b2, state.square, jnp.square(g))
    products = _products(b2, state.products, g)
    right_mean, right_square = (
        x / (1 - decay ** steps.astype(float)) for x, decay in ((mean, b1), (square, b2))
    )
    roots = _again((steps - 1) % every == 0, lambda: _each(_root, products), state.sides)
    direction = _between(roots, right_mean, transposed=False)
    like = right_mean / (jnp.sqrt(right_square) + epsilon)
    size = jnp.linalg.norm(like) / jnp.maximum(jnp.linalg.norm(direction), _SMALLEST)
    update = (size * direction).astype(g.dtype)
    return update, Preconditioned(mean, square, products, roots)


def _soap(
    g: Float[Array, "M N"], state: Preconditioned, steps: Int[Array, ""], numbers: Numbers
) -> tuple[Float[Array, "M N"], Preconditioned]:
    b1, b2, epsilon, every = numbers
    first, done = steps == 1, (steps - 1).astype(float)
    products = _products(b2, state.products, g)
    inside = functools.partial(_between, state.sides)
    mean = jnp.where(first, 0, _moved(b1, state.mean, g))
    square = jnp.where(first, 0, _moved(b2, state.square, jnp.square(inside(g, transposed=True))))
    right_mean, right_square = (
        x / jnp.maximum(1 - decay**done, _SMALLEST) for x, decay in ((mean, b1), (square, b2))
    )
    scaled = inside(right_mean, transposed=True) / (jnp.sqrt(right_square) + epsilon)
    update = jnp.where(first, 0, inside(scaled, transposed=False)).astype(g.dtype)
    sides = _again(first, lambda: _each(_eigenvectors, products), state.sides)
    turned = _again(
        ~first & ((steps - 1) % every == 0),
        lambda: _turned(products, sides, square),
        (sides, square),
    )
    return update, Preconditioned(mean, turned[1], products, turned[0])


def _moved(decay: float, mean: Array, new: Array) -> Array:
    return decay * mean + (1 - decay) * new


def _products(decay: float, old: Sides, g: Array) -> Sides:
    """Return the mean products of gradients, of both sides."""
    new = (g @ g.T, g.T @ g)
    left, right = (
        None if mean is None else _moved(decay, mean, product)
        for mean, product in zip(old, new, strict=True)
    )
    return left, right


def _between(sides: Sides, x: Array, transposed: bool) -> Array:
    """Return L x R, of the sides there are, or with both transposed. SOAP's Q_L^T x Q_R leads into
    the eigenvectors, and Q_L x Q_R^T back; Shampoo's roots are symmetric.
    """
    left, right = sides
    if left is not None:
        x = (left.T if transposed else left) @ x
    if right is not None:
        x = x @ (right if transposed else right.T)
    return x


def _each(function: Callable[[Array], Array], products: Sides) -> Sides:
    left, right = (None if product is None else function(product) for product in products)
    return left, right


def _again(due: Bool[Array, ""], compute: Callable[[], Any], old: Any) -> Any:
    """Return what is computed if it is due, else the old."""
    return jax.lax.cond(due, compute, lambda: old)


def _root(product: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """Return the inverse fourth root of a symmetric matrix without negative eigenvalues."""
    values, vectors = jnp.linalg.eigh(product)
    values = jnp.maximum(values, _RIDGE * values[-1])
    return (vectors * jnp.maximum(values, _SMALLEST)[None] ** -0.25) @ vectors.T


def _eigenvectors(product: Float[Array, "M M"]) -> Float[Array, "M M"]:
    """Return the eigenvectors of a symmetric matrix, as columns, the largest eigenvalue's first."""
    return jnp.linalg.eigh(product)[1][:, ::-1]


def _turned(products: Sides, sides: Sides, square: Array) -> tuple[Sides, Array]:
    """Return approximate eigenvectors after another step of a power iteration, in the order of
    their eigenvalues, and squares in that order.
    """
    turned: list[Any] = []
    for axis, (product, side) in enumerate(zip(products, sides, strict=True)):
        if product is None:
            turned.append(None)
            continue
        order = jnp.argsort(-jnp.einsum("ij,ik,kj->j", side, product, side))
        square = jnp.take(square, order, axis)
        turned.append(jnp.linalg.qr(product @ side[:, order])[0])
    left, right = turned
    return (left, right), square
