"""Position-wise feed-forward layers (paper 3.3)."""

import functools
from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Bool, Float, on_cpu
from transformer_jax.base.shares import laid_out
from transformer_jax.config.registry import pick
from transformer_jax.nn.dropout import Dropout
from transformer_jax.nn.linear import Project, project_together
from transformer_jax.nn.roles import INWARD, OUTWARD


@jax.custom_vjp
def relu(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """max(x, 0), whose gradient is computed from its output: the input need not be stored, and a
    product can write the output itself.
    """
    return jax.nn.relu(x)


def _relu_forward(x):
    y = relu(x)
    return y, y


def _relu_backward(y, gradient):
    y = jax.lax.optimization_barrier(y)  # or XLA would compare, and so store, x
    return (jnp.where(y > 0, gradient, 0),)


relu.defvjp(_relu_forward, _relu_backward)


def _recomputed(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return an elementwise function whose backward pass computes again, from its input, what JAX
    would store beside that: on an accelerator, which memory limits.
    """

    @jax.custom_vjp
    def again(x: Array) -> Array:
        return function(x)

    def backward(x: Array, gradient: Array) -> tuple[Array]:
        x = jax.lax.optimization_barrier(x)  # or XLA would store what both passes compute
        return jax.vjp(function, x)[1](gradient)

    again.defvjp(lambda x: (function(x), x), backward)
    return lambda x: function(x) if on_cpu() else again(x)


class Activation(NamedTuple):
    """A function of the output of `up`; or, gated, of that of `gate`, which multiplies `up`'s."""

    function: Callable[[Array], Array]
    gated: bool = False


# With the error function, not its tanh approximation, which is jax.nn's default.
_gelu = _recomputed(functools.partial(jax.nn.gelu, approximate=False))
_gelu_tanh, _silu = _recomputed(jax.nn.gelu), _recomputed(jax.nn.silu)
ACTIVATIONS = {
    "relu": Activation(relu),
    "gelu": Activation(_gelu),  # arXiv:1606.08415
    "gelu_tanh": Activation(_gelu_tanh),
    # So et al. 2021, arXiv:2109.08668
    "relu_squared": Activation(lambda x: jnp.square(jax.nn.relu(x))),
    "silu": Activation(_silu),  # also in arXiv:1606.08415; so named in 1702.03118
    "mish": Activation(_recomputed(jax.nn.mish)),  # Misra 2019, arXiv:1908.08681
    # Shazeer 2020, arXiv:2002.05202. With equal parameters, d_ff is two thirds of an ungated one's.
    "swiglu": Activation(_silu, gated=True),
    "reglu": Activation(jax.nn.relu, gated=True),
    "geglu": Activation(_gelu, gated=True),
    "geglu_tanh": Activation(_gelu_tanh, gated=True),
}


class FeedForward(nn.Module):
    """activation(x W1 + b1) W2 + b2, or (activation(x V + c) * (x W1 + b1)) W2 + b2, with or
    without biases.
    """

    d_model: int
    d_ff: int
    activation: str
    dropout_rate: float
    dtype: jnp.dtype
    use_bias: bool = True
    chunks: int = 1  # of positions, processed one after another

    @nn.compact
    def __call__(
        self, x: Float[Array, "B T D"], train: bool, real: Bool[Array, "B T"] | None = None
    ) -> Float[Array, "B T D"]:
        """Return the output. Which positions are `real`, and not padding, makes no difference."""
        same = self.dtype, self.use_bias
        inward = (self.d_model,), (self.d_ff,), ("embed", "mlp"), *same
        up = Project(*inward, INWARD, name="up")
        down = Project((self.d_ff,), (self.d_model,), ("mlp", "embed"), *same, OUTWARD, name="down")
        activation = pick(ACTIVATIONS, self.activation, "config.model.activation")
        gate = Project(*inward, INWARD, name="gate") if activation.gated else None
        dropout = Dropout(self.dropout_rate)

        def applied(x: Float[Array, "B C D"]) -> Float[Array, "B C D"]:
            if gate is None:
                hidden = activation.function(up(x))
            else:
                gates, linear = project_together(x, [gate, up])
                hidden = activation.function(gates) * linear
            hidden = laid_out(hidden, "batch", "act_length", "act_mlp")
            return down(dropout(hidden, train))

        if self.chunks == 1 or x.shape[1] <= self.chunks:  # as in a decoding step
            return applied(x)
        first = applied(x[:, :1])  # so that all parameters exist and are read
        if self.is_initializing():
            return jnp.broadcast_to(first, x.shape)
        return _in_chunks(applied, x, self.chunks)


def _in_chunks(
    apply: Callable[[Array], Array], x: Float[Array, "B T D"], count: int
) -> Float[Array, "B T D"]:
    """Apply a function to positions in at most `count` chunks; the backward pass recomputes it
    (Kitaev et al. 2020, arXiv:2001.04451, section 3).
    """
    batch, length, width = x.shape
    size = -(-length // count)
    count = -(-length // size)
    x = jnp.pad(x, ((0, 0), (0, size * count - length), (0, 0)))
    parts = x.reshape(batch, count, size, width).swapaxes(0, 1)
    y = jax.lax.map(jax.checkpoint(apply), parts).swapaxes(0, 1)
    return y.reshape(batch, -1, width)[:, :length]
