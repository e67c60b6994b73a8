"""The only matrix product with parameters, with named axes."""

import functools
import math
from collections.abc import Callable, Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from transformer_jax.base.arrays import Array, Float, on_cpu
from transformer_jax.base.shares import POSITIONS, parts_of
from transformer_jax.nn import float8
from transformer_jax.nn.initializers import named, parameter, xavier_uniform
from transformer_jax.nn.roles import PLAIN, Role

PRODUCT = "product"  # the name by which rematerialisation finds what it may save


class Project(nn.Module):
    """A linear map over the last axes of x.

    The kernel has shape `in_shape + out_shape`, and `names` are its logical axes, by which it is
    sharded. Kernels start Xavier-uniform over the whole map, biases at zero. The compute dtype
    applies here: operands are cast to it, and products are accumulated at least in float32. They
    are rounded to it as an accelerator writes them, or once a CPU has added the bias.
    """

    in_shape: Sequence[int]
    out_shape: Sequence[int]
    names: Sequence[str | None]
    dtype: jnp.dtype
    use_bias: bool = True
    role: Role | None = None  # of the kernel; a part of one's own may name the map instead
    start: Callable[..., Array] | None = None  # the kernel's initialiser; None: see above
    bias_start: Callable[..., Array] = nn.initializers.zeros

    def setup(self) -> None:
        count = len(self.in_shape)
        init = named(self.start or xavier_uniform(count), *self.names, role=self.role)
        self.kernel = parameter(self, "kernel", init, (*self.in_shape, *self.out_shape))
        bias = named(self.bias_start, *self.names[count:], role=PLAIN)
        self.bias = parameter(self, "bias", bias, self.out_shape) if self.use_bias else None

    def __call__(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.biased(_product(x.astype(self.dtype), self.kernel, len(self.in_shape)))

    def biased(self, product: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return the product of x and the kernel with the bias, if any, in the compute dtype."""
        if self.bias is None:
            return product.astype(self.dtype)
        return _add_bias(product, self.bias).astype(self.dtype)


def project_together(x: Float[Array, "..."], maps: Sequence[Project]) -> list[Float[Array, "..."]]:
    """Apply several maps to the same x; maps of the same shape become one larger, faster product.

    They are stacked on a new axis after the first output axis, which may be sharded and so is
    neither split nor merged with others. On an accelerator, where taking the results apart would
    cost more than it gains, only the backward pass does so.
    """
    first = maps[0]
    if any(tuple(m.out_shape) != tuple(first.out_shape) for m in maps):
        return [m(x) for m in maps]
    count = len(first.in_shape)
    kernels = tuple(m.kernel for m in maps)
    if float8.active():
        x = x.astype(first.dtype)
        return [m.biased(_product(x, m.kernel, count)) for m in maps]
    if not _as_matrices():
        products = _multiply_each(x.astype(first.dtype), kernels, count)
        named = [checkpoint_name(product, PRODUCT) for product in products]
        return [m.biased(product) for m, product in zip(maps, named, strict=True)]
    product = _product(x.astype(first.dtype), jnp.stack(kernels, axis=count + 1), count)
    if any(m.bias is not None for m in maps):  # added before splitting: its gradient is one sum
        zeros = jnp.zeros(first.out_shape)
        bias = jnp.stack([zeros if m.bias is None else m.bias for m in maps], axis=1)
        rows, out = x.shape[: x.ndim - count], bias.shape
        product = product.reshape(math.prod(rows), -1) + bias.reshape(1, -1).astype(product.dtype)
        product = product.reshape(*rows, *out)
    return list(_apart(product.astype(first.dtype), x.ndim - count + 1))


@jax.custom_vjp
def _add_bias(product, bias):
    # As vectors of all output axes: a GPU's product then adds the bias as it writes its result.
    flat = product.reshape(*product.shape[: product.ndim - bias.ndim], -1)
    bias = bias.reshape((1,) * (flat.ndim - 1) + (-1,)).astype(product.dtype)
    return (flat + bias).reshape(product.shape)


def _bias_backward(bias, gradient):
    # JAX's own gradient would round partial sums to the dtype of the product.
    wide = jnp.promote_types(gradient.dtype, jnp.float32)
    return gradient, gradient.sum(range(gradient.ndim - bias.ndim), wide).astype(bias.dtype)


_add_bias.defvjp(lambda product, bias: (_add_bias(product, bias), bias), _bias_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _apart(x, axis: int):
    parts = range(x.shape[axis])
    return tuple(jax.lax.index_in_dim(x, i, axis, keepdims=False) for i in parts)


# JAX's own gradient sums arrays that are zero except in one part: many times slower.
_apart.defvjp(
    lambda x, axis: (_apart(x, axis), None),
    lambda axis, _, gradients: (jnp.stack(gradients, axis),),
)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _multiply_each(x, kernels, in_axes: int):
    """Return the product of x and each kernel; the kernels have the same shape."""
    # Without the barriers, XLA would merge the products, and add the biases in another pass.
    pairs = [jax.lax.optimization_barrier((x, kernel)) for kernel in kernels]
    return tuple(_multiply(*pair, in_axes) for pair in pairs)


def _each_forward(x, kernels, in_axes: int):
    return _multiply_each(x, kernels, in_axes), (x, kernels)


def _each_backward(in_axes: int, operands, gradients):
    x, kernels = operands
    axis = in_axes + 1
    gradient = jnp.stack(gradients, x.ndim - in_axes + 1)
    dx, dkernel = _backward(in_axes, (x, jnp.stack(kernels, axis)), gradient)
    return dx, tuple(jax.lax.index_in_dim(dkernel, i, axis, False) for i in range(len(kernels)))


_multiply_each.defvjp(_each_forward, _each_backward)


def _as_matrices() -> bool:
    """Return whether rows and positions may become one axis: devices that share positions would
    have to gather them.
    """
    return on_cpu() and parts_of(POSITIONS) == 1


def _product(x, kernel, in_axes: int):
    """Return the product over the last axes of x and the first of the kernel."""
    if float8.active():
        product = float8.multiply(x, kernel, in_axes)
    elif x.dtype == jnp.bfloat16 or not _as_matrices():
        product = _multiply(x, kernel, in_axes)
    else:
        # As matrices: a CPU reads those transposed, whereas it copies arrays with more axes; but
        # not for bfloat16, whose products would take half as long again.
        rows, out = x.shape[: x.ndim - in_axes], kernel.shape[in_axes:]
        x = x.reshape(math.prod(rows), -1)
        product = _multiply(x, kernel.reshape(x.shape[1], -1), 1).reshape(*rows, *out)
    return checkpoint_name(product, PRODUCT)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _multiply(x, kernel, in_axes: int):
    axes = range(x.ndim - in_axes, x.ndim), range(in_axes)
    return _dot(x, kernel.astype(x.dtype), *axes, written(x.dtype))


def _forward(x, kernel, in_axes: int):
    return _multiply(x, kernel, in_axes), (x, kernel)


def _backward(in_axes: int, operands, gradient):
    # JAX's own gradient of the kernel is a product with its axes the wrong way round, transposed:
    # on a CPU that costs a copy and half the speed of the product.
    x, kernel = operands
    gradient = gradient.astype(x.dtype)  # it was already rounded to that after the product
    outer = x.ndim - in_axes
    out_axes = range(outer, gradient.ndim)
    axes = out_axes, range(in_axes, kernel.ndim)
    dx = _dot(gradient, kernel.astype(x.dtype), *axes, written(x.dtype))
    if on_cpu() and x.ndim == gradient.ndim == 2 and x.shape[1] > gradient.shape[1]:
        # A CPU computes matrices that are taller than wide at half the speed of others.
        dkernel = jax.lax.optimization_barrier(_dot(gradient, x, (0,), (0,))).T
    else:
        if on_cpu() and outer == 1:
            # A CPU with products of bfloat16 has none of a matrix, transposed, and an array of more
            # axes: XLA compiles such a product and cannot run it.
            x, gradient, outer = x[None], gradient[None], 2
        dkernel = _dot(x, gradient, range(outer), range(outer))
    return dx.astype(x.dtype), dkernel.astype(kernel.dtype)


_multiply.defvjp(_forward, _backward)


def written(dtype: jnp.dtype) -> jnp.dtype:
    """Return the dtype in which a product of operands of this dtype is written to memory. Any
    processor accumulates it in float32; an accelerator, limited by memory, rounds it there.
    """
    return jnp.promote_types(dtype, jnp.float32) if on_cpu() else dtype


def _dot(a, b, a_axes: Sequence[int], b_axes: Sequence[int], written: jnp.dtype | None = None):
    wide = jnp.promote_types(a.dtype, jnp.float32)
    axes = (tuple(a_axes), tuple(b_axes)), ((), ())
    return jax.lax.dot_general(a, b, axes, preferred_element_type=written or wide)
