"""FLOP, memory and parameter counts from a traced program, without compiling or running it.

A model is described once, by its code. Formulas that derive sizes from the config again break with
the next new layer, so nothing here knows what a model is.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.extend.core import (
    ClosedJaxpr,
    Jaxpr,
    JaxprEqn,
    Literal,
    Primitive,
    jaxprs_in_params,
    primitives,
)
from jax.interpreters.partial_eval import dce_jaxpr


class Operations(NamedTuple):
    """Floating-point operations of a program's matrix products and convolutions."""

    products: int  # multiplications and additions, summed over all devices
    missing: tuple[str, ...] = ()  # what the number omits or cannot know, one sentence each


def parameters(tree: Any) -> int:
    """Return the number of elements in a tree of arrays or of their shapes."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


def program(function: Callable[..., Any], *arguments: Any) -> Jaxpr:
    """Trace a function of arrays, which may be given as shapes only."""
    return needed(jax.make_jaxpr(function)(*arguments))


def needed(traced: ClosedJaxpr) -> Jaxpr:
    """Return a program without dead code, which any compiler would remove too."""
    return dce_jaxpr(traced.jaxpr, [True] * len(traced.jaxpr.outvars))[0]


def operations(program: Jaxpr) -> Operations:
    """Count the operations of a program as it is executed.

    The body of a loop counts once per iteration, recomputation for the backward pass once per
    recomputation, and a conditional as its most expensive branch. A loop whose number of iterations
    is known only at run time counts as one iteration, and an external kernel as zero; `missing`
    names both.
    """
    missing: dict[str, None] = {}
    return Operations(_count(program, missing), tuple(missing))


def memory(program: Jaxpr) -> int:
    """Return the peak number of bytes of live arrays, in the order the program is written.

    Each argument may be overwritten after its last use, as those of a train step are. This is an
    estimate: a compiler reorders, and fused intermediates are never stored; a device of a mesh
    holds only its shard.
    """
    return _peak(program, set(program.invars))


def _count(jaxpr: Jaxpr, missing: dict[str, None]) -> int:
    return sum(_count_one(equation, missing) for equation in jaxpr.eqns)


def _count_one(equation: JaxprEqn, missing: dict[str, None]) -> int:
    name, params = equation.primitive.name, equation.params
    if name in _PRODUCTS:
        return _PRODUCTS[name](equation)
    parts = [_count(inner, missing) for inner in jaxprs_in_params(params)]
    if not parts:
        if name not in _NO_PRODUCTS:
            missing[f"the operations of {name!r} are not known and count as zero"] = None
        return 0
    if name == "cond":
        return max(parts)
    if name == "while" and any(parts):
        missing["a loop of unknown length counts as one iteration"] = None
    elif name not in _TIMES and name not in _ONCE and any(parts):
        missing[f"the body of {name!r} counts as if it ran once"] = None
    return _TIMES.get(name, lambda _: 1)(params) * sum(parts)


def _dot_general(equation: JaxprEqn) -> int:
    (contracted, _), _ = equation.params["dimension_numbers"]
    left, result = _shape(equation.invars[0]), _shape(equation.outvars[0])
    return 2 * math.prod(left[axis] for axis in contracted) * math.prod(result)


def _convolution(equation: JaxprEqn) -> int:
    """Each output reads one kernel window of its own group of input features."""
    kernel = _shape(equation.invars[1])
    out_features = kernel[equation.params["dimension_numbers"].rhs_spec[0]]
    return 2 * math.prod(kernel) // out_features * math.prod(_shape(equation.outvars[0]))


_PRODUCTS = {"dot_general": _dot_general, "conv_general_dilated": _convolution}
# How often the inner program of an equation runs; that of `shard_map` is the program of one device.
_TIMES: dict[str, Callable[[dict[str, Any]], int]] = {
    "scan": lambda params: params["length"],
    "pallas_call": lambda params: math.prod(params["grid_mapping"].grid),
    "shard_map": lambda params: math.prod(
        params["mesh"].shape[axis] for axis in params["newly_manual_axes"]
    ),
}
_ONCE = {
    "jit", "closed_call", "core_call", "remat2", "checkpoint", "custom_jvp_call",
    "custom_vjp_call", "custom_partitioning", "while",
}  # fmt: skip
# JAX's own primitives without products, and some that it does not list.
_FACTORISATIONS = {
    "cholesky", "eig", "eigh", "fft", "hessenberg", "householder_product", "lu", "qr", "schur",
    "svd", "triangular_solve", "tridiagonal", "tridiagonal_solve", "custom_linear_solve",
}  # fmt: skip
_NO_PRODUCTS = {p.name for p in vars(primitives).values() if isinstance(p, Primitive)}
_NO_PRODUCTS -= _FACTORISATIONS
_NO_PRODUCTS |= {
    "masked_load", "masked_swap", "optimization_barrier", "program_id", "pvary", "random_unwrap",
    "random_wrap", "reshard", "split", "stack", "unstack",
}  # fmt: skip


def _peak(jaxpr: Jaxpr, owned: set[Any]) -> int:
    """Return the peak of live bytes, over intermediates and the arguments that are `owned`.

    The inputs of an equation are alive while it computes its outputs.
    """
    last: dict[Any, int] = {}  # index of the last equation that reads an array
    for place, equation in enumerate(jaxpr.eqns):
        last |= dict.fromkeys(_arrays(equation.invars), place)
    last |= dict.fromkeys(_arrays(jaxpr.outvars), len(jaxpr.eqns))
    alive = most = sum(map(_bytes, owned))
    for place, equation in enumerate(jaxpr.eqns):
        new = [array for array in equation.outvars if array in last]
        made = sum(map(_bytes, new))
        inner = max((_peak(part, set()) for part in jaxprs_in_params(equation.params)), default=0)
        if equation.primitive.name == "scan":
            inner += made  # the results of all iterations, beside those of the current one
        most = max(most, alive + max(inner, made))
        owned = owned | set(new)
        dead = {array for array in _arrays(equation.invars) if last[array] == place} & owned
        alive += made - sum(map(_bytes, dead))
        owned = owned - dead
    return most


def _arrays(atoms: Any) -> list[Any]:
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def _shape(array: Any) -> tuple[int, ...]:
    return array.aval.shape


def _bytes(array: Any) -> int:
    dtype = getattr(array.aval, "dtype", None)
    if dtype is None or jax.dtypes.issubdtype(dtype, jax.dtypes.extended):
        return 0  # tokens and PRNG keys
    return math.prod(_shape(array)) * dtype.itemsize
