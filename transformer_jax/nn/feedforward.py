"""Position-wise feed-forward layers (paper 3.3)."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Float
from transformer_jax.choices import pick
from transformer_jax.nn.dropout import Dropout
from transformer_jax.nn.linear import Project

ACTIVATIONS = {"relu": jax.nn.relu}


class FeedForward(nn.Module):
    """activation(x W1 + b1) W2 + b2."""

    d_model: int
    d_ff: int
    activation: str
    dropout_rate: float
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"], train: bool) -> Float[Array, "B T D"]:
        up = Project((self.d_model,), (self.d_ff,), ("embed", "mlp"), self.dtype, name="up")
        down = Project((self.d_ff,), (self.d_model,), ("mlp", "embed"), self.dtype, name="down")
        hidden = pick(ACTIVATIONS, self.activation, "config.model.activation")(up(x))
        hidden = nn.with_logical_constraint(hidden, ("batch", "length", "act_mlp"))
        return down(Dropout(self.dropout_rate)(hidden, train))
