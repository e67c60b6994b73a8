"""Position-wise feed-forward layers (paper 3.3)."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Float
from transformer_jax.choices import pick
from transformer_jax.nn.dropout import Dropout
from transformer_jax.nn.linear import Project, project_together


class Activation(NamedTuple):
    """A function, of what `up` makes; or, gated, of what `gate` makes, which multiplies it."""

    function: Callable[[Array], Array]
    gated: bool = False


ACTIVATIONS = {
    "relu": Activation(jax.nn.relu),
    # By the error function, not its approximation by tanh, which is jax.nn's default.
    "gelu": Activation(lambda x: jax.nn.gelu(x, approximate=False)),
    "relu_squared": Activation(lambda x: jnp.square(jax.nn.relu(x))),  # So et al. 2021
    # Shazeer 2020, arXiv:2002.05202. At equal parameters d_ff is two thirds of an ungated one's.
    "swiglu": Activation(jax.nn.silu, gated=True),
}


class FeedForward(nn.Module):
    """activation(x W1 + b1) W2 + b2, or (activation(x V + c) * (x W1 + b1)) W2 + b2."""

    d_model: int
    d_ff: int
    activation: str
    dropout_rate: float
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"], train: bool) -> Float[Array, "B T D"]:
        inward = (self.d_model,), (self.d_ff,), ("embed", "mlp"), self.dtype
        up = Project(*inward, name="up")
        down = Project((self.d_ff,), (self.d_model,), ("mlp", "embed"), self.dtype, name="down")
        activation = pick(ACTIVATIONS, self.activation, "config.model.activation")
        if activation.gated:
            gate, linear = project_together(x, [Project(*inward, name="gate"), up])
            hidden = activation.function(gate) * linear
        else:
            hidden = activation.function(up(x))
        hidden = nn.with_logical_constraint(hidden, ("batch", "length", "act_mlp"))
        return down(Dropout(self.dropout_rate)(hidden, train))
