"""Multi-head attention (paper 3.2.2): project to heads, mix, join."""

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.arrays import Array, Float
from transformer_jax.choices import pick
from transformer_jax.config import ModelConfig
from transformer_jax.nn.attention import dense, fused
from transformer_jax.nn.cache import KeysValues
from transformer_jax.nn.dropout import Dropout
from transformer_jax.nn.linear import Project, project_together
from transformer_jax.nn.view import View

MECHANISMS = {"dense": dense.mix, "fused": fused.mix}


class Attention(nn.Module):
    """Projections to heads, a mechanism between them, and the projection back."""

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        inward, outward = ("embed", "heads", "head_dim"), ("heads", "head_dim", "embed")
        to_keys = ((c.d_model,), (c.num_heads, c.key_size), inward, self.dtype)
        to_values = ((c.d_model,), (c.num_heads, c.value_size), inward, self.dtype)
        self.query, self.key, self.value = Project(*to_keys), Project(*to_keys), Project(*to_values)
        self.output = Project((c.num_heads, c.value_size), (c.d_model,), outward, self.dtype)
        self.dropout = Dropout(c.attention_dropout_rate)

    def keys_values(self, x: Float[Array, "B S D"]) -> KeysValues:
        """Return the keys and values of x."""
        return _keys_values(*project_together(x, [self.key, self.value]))

    def queries(self, x: Float[Array, "B T D"]) -> Float[Array, "B N T H"]:
        """Return the queries of x."""
        return _heads_first(self.query(x))

    def queries_keys_values(
        self, x: Float[Array, "B T D"]
    ) -> tuple[Float[Array, "B N T H"], KeysValues]:
        """Return all three, for self-attention, in one product."""
        q, k, v = project_together(x, [self.query, self.key, self.value])
        return _heads_first(q), _keys_values(k, v)

    def __call__(
        self, q: Float[Array, "B N T H"], memory: KeysValues, view: View, train: bool
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B N T S"]]:
        """Return what the queries gather from keys and values, and the weights."""
        mix = pick(MECHANISMS, self.config.attention, "config.model.attention")
        mixed, weights = mix(q, *memory, view, lambda w: self.dropout(w, train))
        return self.output(mixed.swapaxes(1, 2)), weights


def _keys_values(k: Float[Array, "B S N H"], v: Float[Array, "B S N Hv"]) -> KeysValues:
    return KeysValues(_heads_first(k).swapaxes(2, 3), _heads_first(v))


def _heads_first(x: Float[Array, "B T N H"]) -> Float[Array, "B N T H"]:
    x = nn.with_logical_constraint(x, ("batch", "length", "act_heads", "head_dim"))
    return x.swapaxes(1, 2)
