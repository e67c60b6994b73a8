"""Parameters: their initialisation, the names of their axes, by which they are sharded, and their
roles.
"""

import functools
import math
from collections.abc import Sequence
from typing import Any

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.nn.roles import Box, Role


def parameter(module: nn.Module, name: str, init: Any, shape: Sequence[int]) -> Any:
    """Return `module.param(name, init, shape)`.

    Flax compares the shape of an existing parameter with that of `init`, which it traces again at
    every call: a third of the time of tracing a model. Here it is compared with `shape`.

    Raises:
      ScopeParamShapeError: if the module's parameter has a different shape.
    """
    if not module.has_variable("params", name):
        return module.param(name, init, tuple(shape))
    value = nn.meta.unbox(module.get_variable("params", name))
    if value.shape != tuple(shape):
        place = "/".join(module.path)
        raise flax.errors.ScopeParamShapeError(name, place, value.shape, tuple(shape))
    return jnp.asarray(value)  # a caller's may be NumPy's


def named(init: Any, *names: str | None, role: Role | None = None) -> Any:
    """Return the initialiser with logical axis names and a role attached to its output.

    An axis that no mesh divides needs no name, but None. A part of one's own need not state a role:
    see `nn/roles.py`.
    """
    return lambda *args, **kwargs: Box(init(*args, **kwargs), names, role=role)


def xavier_uniform(in_axes: int) -> Any:
    """Return U(-a, a), a = sqrt(6 / (fan_in + fan_out)); the first `in_axes` axes are the input.

    Glorot and Bengio 2010; the paper does not specify it, this is tensor2tensor's choice.
    """
    return functools.partial(_xavier_uniform, in_axes)


def _xavier_uniform(
    in_axes: int, key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32
) -> jax.Array:
    limit = math.sqrt(6 / (math.prod(shape[:in_axes]) + math.prod(shape[in_axes:])))
    return jax.random.uniform(key, shape, dtype, -limit, limit)


def uniform(low: float, high: float) -> Any:
    """Return the initialiser that draws uniformly between two numbers."""

    def start(key: jax.Array, shape: Sequence[int], dtype: Any = jnp.float32) -> jax.Array:
        return jax.random.uniform(key, tuple(shape), dtype, low, high)

    return start


def log_of(init: Any) -> Any:
    """Return the initialiser of logarithms of what another draws."""
    return lambda key, shape, dtype=jnp.float32: jnp.log(init(key, shape, dtype))


def before_softplus(init: Any) -> Any:
    """Return the initialiser of numbers of which softplus makes what another draws."""

    def start(key: jax.Array, shape: Sequence[int], dtype: Any = jnp.float32) -> jax.Array:
        drawn = init(key, shape, dtype)
        return drawn + jnp.log(-jnp.expm1(-drawn))

    return start


def time_steps(key: jax.Array, shape: Sequence[int], dtype: Any = jnp.float32) -> jax.Array:
    """Draw log-uniformly between .001 and .1: what state spaces start with."""
    return jnp.exp(uniform(math.log(0.001), math.log(0.1))(key, shape, dtype))


def each(init: Any) -> Any:
    """Return the initialiser of several arrays, along a first axis, from that of one."""

    def several(key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
        return jax.vmap(lambda key: init(key, shape[1:], dtype))(jax.random.split(key, shape[0]))

    return several
