"""Axis letters and array types, those of `jax.nn.dot_product_attention`.

    B batch      T query length   S key length      C cache slots
    D d_model    N heads          H head size       F d_ff
    V vocabulary L layers         W beam width

They appear in type annotations and einsum strings, and nowhere else. The annotations are checked
while the tests run (jaxtyping with beartype) and cost nothing otherwise.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt

__all__ = ["Array", "Bool", "Float", "Int", "UInt", "at_least_float32"]


def at_least_float32(x: Array) -> Array:
    """Cast to float32, or leave a wider type alone, so that whole models also run in float64."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))
