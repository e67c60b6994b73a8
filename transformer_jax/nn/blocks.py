"""Products of many positions, each with the matrix of an expert that it has chosen, in blocks.

No position is dropped, however many choose the same expert, and all shapes are static: positions
are gathered into blocks of equal size, each for one expert, of which there are always enough.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, Int, Size, on_cpu
from transformer_jax.nn.linear import written

# Blocks per expert, if all are chosen equally often: the more, the less work is in vain, but the
# more matrices are copied, which costs a CPU more than an accelerator.
_EACH, _CPU_EACH = 8, 4
_SLOTS = 16  # of a block, where the number of choices is not known


class Blocks(NamedTuple):
    """Where choices are computed. A choice is a position's of an expert; a slot is a place in a
    block, and slots beyond an expert's choices are empty.
    """

    slot: Int[Array, "C"]  # of each choice
    choice: Int[Array, "S"]  # in each slot; an empty one has the number of choices
    expert: Int[Array, "M"]  # of each block


def shape_of(choices: Size, num_experts: int) -> tuple[Size, int]:
    """Return the number of blocks and the slots of each."""
    fixed = isinstance(choices, int)
    each = _CPU_EACH if on_cpu() else _EACH
    size = max(choices // (each * num_experts), 1) if fixed else _SLOTS
    size += size > 1 and size % 2
    # Each expert's last block may lack up to size - 1 choices.
    count = (choices + num_experts * (size - 1)) // size
    return min(count, choices) if fixed else count, size


def in_blocks(chosen: Int[Array, "C"], num_experts: int) -> Blocks:
    """Return blocks for these choices; an expert's are in their order."""
    choices = chosen.shape[0]
    count, size = shape_of(choices, num_experts)
    made = jax.nn.one_hot(chosen, num_experts, dtype=jnp.int32)
    before = jnp.take_along_axis(jnp.cumsum(made, 0) - made, chosen[:, None], 1)[:, 0]
    last = jnp.cumsum(-(-made.sum(0) // size))  # block of each expert, exclusive
    first = jnp.concatenate([jnp.zeros(1, last.dtype), last[:-1]])
    slot = first[chosen] * size + before
    empty = jnp.full((count * size,), choices, slot.dtype)
    choice = empty.at[slot].set(jnp.arange(choices, dtype=slot.dtype), unique_indices=True)
    expert = jnp.searchsorted(last, jnp.arange(count), side="right")
    return Blocks(slot, choice, jnp.minimum(expert, num_experts - 1))


@jax.custom_vjp
def moved(
    rows: Float[Array, "R D"], there: Int[Array, "Q"], back: Int[Array, "R"]
) -> Float[Array, "Q D"]:
    """Return rows[there], and zeros where `there` is beyond the last row. `back` is its inverse,
    by which the gradient is gathered too, rather than added up in no particular order.
    """
    return rows.at[there].get(mode="fill", fill_value=0)


moved.defvjp(
    lambda rows, there, back: (moved(rows, there, back), (there, back)),
    lambda places, gradient: (moved(gradient, *reversed(places)), None, None),
)


@jax.custom_vjp
def multiplied(
    x: Float[Array, "M Q I"], kernels: Float[Array, "X I O"], expert: Int[Array, "M"]
) -> Float[Array, "M Q O"]:
    """Return the product of each block and the matrix of its expert, in the dtype of x or wider."""
    own = kernels.astype(x.dtype)[expert]
    return _dot("mqi,mio->mqo", x, own, written(x.dtype))


def _backward(operands, gradient):
    x, kernels, expert = operands
    gradient = gradient.astype(x.dtype)
    own = kernels.astype(x.dtype)[expert]
    dx = _dot("mqo,mio->mqi", gradient, own, written(x.dtype)).astype(x.dtype)
    # A CPU takes half as long to add up products of bfloat16 over two axes as over one.
    halves = 2 if x.shape[1] % 2 == 0 else 1
    x, gradient = (a.reshape(len(a), halves, -1, a.shape[2]) for a in (x, gradient))
    each = _dot("mhqi,mhqo->mio", x, gradient, jnp.promote_types(x.dtype, jnp.float32))
    return dx, _summed(each, expert, len(kernels)).astype(kernels.dtype), None


multiplied.defvjp(lambda *given: (multiplied(*given), given), _backward)


def _summed(each: Float[Array, "M I O"], expert: Int[Array, "M"], count: int) -> Array:
    """Return the sum over each expert's blocks: as a product, in a fixed order on any device."""
    of = jax.nn.one_hot(expert, count, dtype=each.dtype)
    return jnp.einsum("mx,mio->xio", of, each, precision="highest")


def _dot(axes: str, a: Array, b: Array, dtype: jnp.dtype) -> Array:
    return jnp.einsum(axes, a, b, preferred_element_type=dtype)
