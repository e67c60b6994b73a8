"""Muon: matrices are updated with their orthogonalised momentum.

Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/; update sizes as in Liu et al. 2025,
arXiv:2502.16982.
"""

import functools
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from transformer_jax.base.arrays import Array, Float, on_cpu
from transformer_jax.nn.roles import Role, Roles, name_of

ITERATIONS = 4
# Of the polynomials a x + b x^3 + c x^5, one after another.
POLYNOMIALS: dict[str, tuple[tuple[float, float, float], ...]] = {
    # Jordan's, the same each time: steep at 0, and within 0.7 to 1.2 beyond.
    "jordan": ((3.4445, -4.7750, 2.0315),) * ITERATIONS,
    # Each the best after those before it, from singular values of 0.001 (Amsel et al. 2025,
    # arXiv:2505.16932, algorithm 1), of x / 1.01, so that rounding does not lead beyond 1.
    "polar_express": tuple(
        (a / 1.01, b / 1.01**3, c / 1.01**5)
        for a, b, c in (
            (8.28721201814563, -23.595886519098837, 17.300387312530933),
            (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
            (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
            (3.3184196573706015, -2.488488024314874, 0.51004894012372),
            (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
        )
    ),
}
_CPU_MATRICES = 8  # at a time: small ones stay in a CPU's cache
_ENTRIES = 1 << 26  # of all matrices at a time elsewhere: a GPU takes longer to start small kernels
_EPSILON = 1e-30  # leaves a zero matrix unchanged


def muon(
    momentum: float, rms: float, roles: Roles, orthogonalization: str = "jordan"
) -> optax.GradientTransformation:
    """Return an optimizer for matrices; kernels with more axes are viewed as matrices by `matrix`,
    and those that hold several maps are one for each.

    Args:
      momentum: decay of the sum of past gradients (with Nesterov's lookahead).
      rms: root mean square of the entries of an update.
      roles: the roles of all parameters.
      orthogonalization: by which of `POLYNOMIALS`.
    """
    form = functools.partial(orthogonal, polynomials=POLYNOMIALS[orthogonalization])
    return optax.chain(
        optax.trace(momentum, nesterov=True),
        optax.stateless(lambda updates, _: _all_orthogonal(updates, rms, roles, form)),
    )


def orthogonal(
    x: Float[Array, "M N"],
    polynomials: Sequence[tuple[float, float, float]] = POLYNOMIALS["jordan"],
) -> Float[Array, "M N"]:
    """Return approximately U V^T of a matrix U S V^T: singular values are about 1. M is at most N.

    An iterated odd polynomial of the matrix changes only its singular values (Newton-Schulz). They
    must not be above 1 at first: the matrix is divided by its Schatten 4-norm, the fourth root of
    the sum of their fourth powers. That is nearer to the largest one than the usual Frobenius norm,
    and saves the fifth iteration.
    """
    square = x @ x.T
    scale = jax.lax.rsqrt(jnp.linalg.norm(square) + _EPSILON)
    x, square = x * scale, square * scale**2
    for a, b, c in polynomials:
        x = a * x + (b * square + c * square @ square) @ x
        square = x @ x.T
    return x


def matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return rows and columns of a kernel: split between axes so that it is nearest a square.

    Maps to and from heads thus are matrices of d_model and heads times head size.
    """
    cut = cut_of(shape)
    return math.prod(shape[:cut]), math.prod(shape[cut:])


def cut_of(shape: tuple[int, ...]) -> int:
    """Return how many axes of a kernel are rows, by `matrix`."""

    def lengths(cut: int) -> float:
        sides = math.prod(shape[:cut]), math.prod(shape[cut:])
        return max(sides) / min(sides)

    return min(range(1, len(shape)), key=lengths)


def _all_orthogonal(updates: Any, rms: float, roles: Roles, form: Callable[[Array], Array]) -> Any:
    named, structure = jax.tree_util.tree_flatten_with_path(updates)
    leaves = [leaf for _, leaf in named]
    stacks = [_matrices(roles[name_of(path)], leaf) for path, leaf in named]
    alike = defaultdict(list)
    for i, stack in enumerate(stacks):
        alike[tuple(sorted(stack.shape[1:]))].append(i)
    for (_, long), places in alike.items():
        lying = [_lying(matrix) for i in places for matrix in stacks[i]]
        matrices_of = iter(_each_orthogonal(lying, form) * rms * math.sqrt(long))
        for i in places:
            rows, columns = stacks[i].shape[1:]
            mine = [
                x if rows <= columns else x.T for x in itertools.islice(matrices_of, len(stacks[i]))
            ]
            leaves[i] = jnp.stack(mine).reshape(leaves[i].shape)
    return jax.tree.unflatten(structure, leaves)


def _matrices(role: Role, leaf: Array) -> Array:
    """Return a kernel as one matrix, or those of several maps, along the first axis."""
    shape = leaf.shape[1:] if role.kind == "maps" else leaf.shape
    return leaf.reshape(-1, *matrix(shape))


def _each_orthogonal(matrices: list[Array], form: Callable[[Array], Array]) -> Array:
    """Return the matrices orthogonalised; each device of a mesh computes its share."""
    most = _CPU_MATRICES if on_cpu() else max(_ENTRIES // matrices[0].size, 1)
    count = math.ceil(len(matrices) / most)
    together = math.ceil(len(matrices) / count)
    missing = [jnp.zeros_like(matrices[0])] * (count * together - len(matrices))
    stack = jnp.stack([*matrices, *missing])
    groups = stack.reshape(count, together, *stack.shape[1:])
    groups = nn.with_logical_constraint(groups, (None, "matrices", None, None))
    orthogonalised = jax.lax.map(jax.vmap(form), groups)
    return orthogonalised.reshape(stack.shape)[: len(matrices)]


def _lying(matrix: Array) -> Array:
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
