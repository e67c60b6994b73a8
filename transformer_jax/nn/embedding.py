"""The piece table: embedding, and the pre-softmax product with the same matrix."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Float, Int
from transformer_jax.nn.initializers import named


class Head(NamedTuple):
    """The last linear map: hidden states to logits, with a matrix that an embedding may share."""

    table: Float[Array, "V D"]
    bias: Float[Array, "V"] | None = None

    def logits(self, x: Float[Array, "B T D"]) -> Float[Array, "B T V"]:
        """Return x times the transposed table plus the bias, at least in float32."""
        logits = jax.lax.dot_general(
            x, self.table.astype(x.dtype), (((2,), (1,)), ((), ())),
            preferred_element_type=jnp.promote_types(x.dtype, jnp.float32),
        )  # fmt: skip
        return logits if self.bias is None else logits + self.bias.reshape(1, 1, -1)


class Embed(nn.Module):
    """A table [V D] from N(0, 1/D), as in tensor2tensor; looked up times sqrt(D) (paper 3.4)."""

    vocab_size: int
    d_model: int
    dtype: jnp.dtype

    def setup(self) -> None:
        init = named(nn.initializers.normal(self.d_model**-0.5), "vocab", "embed")
        self.table = self.param("table", init, (self.vocab_size, self.d_model))

    def __call__(self, ids: Int[Array, "B T"]) -> Float[Array, "B T D"]:
        x = self.table[ids].astype(self.dtype) * jnp.asarray(self.d_model**0.5, self.dtype)
        return nn.with_logical_constraint(x, ("batch", "length", "act_embed"))
