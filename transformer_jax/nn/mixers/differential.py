"""Differential attention: what two softmaxes have in common cancels out."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, at_least_float32
from transformer_jax.nn.cache import KeysValues
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.mixers.attention import Attention
from transformer_jax.nn.roles import PLAIN
from transformer_jax.nn.view import View

_START = 0.8  # of lambda


class Differential(Attention):
    """(softmax(q1 k1) - lambda softmax(q2 k2)) v for each pair of heads, i and i + N / 2, whose
    values are joined (Ye et al. 2024, arXiv:2410.05258). lambda = exp(a . b) - exp(c . d) + 0.8,
    with four trained vectors of the size of a head. Then an RMS norm of each pair without a scale,
    and a factor of 0.2. The paper starts lower in lower layers, and finds 0.8 for all as good.
    """

    def setup(self) -> None:
        super().setup()
        init = named(nn.initializers.normal(0.1), "head_dim", role=PLAIN)
        names = ("first_query", "first_key", "second_query", "second_key")
        size = (self.config.key_size,)
        self.vectors = [parameter(self, f"lambda_{name}", init, size) for name in names]

    def _heads(
        self, q: Float[Array, "B N T H"], memory: KeysValues, view: View, train: bool
    ) -> tuple[Float[Array, "B N T Hv"], Float[Array, "B N T S"] | None]:
        pairs = jnp.concatenate(jnp.split(memory.values, 2, axis=1), axis=-1)
        values = jnp.concatenate([pairs, pairs], axis=1)
        mixed, weights = self._mixed(q, KeysValues(memory.keys, values), view, train, True)
        one, other = jnp.split(at_least_float32(mixed), 2, axis=1)
        apart = one - self._share() * other
        square = jnp.square(apart).mean(-1, keepdims=True)
        normal = (1 - _START) * apart * jax.lax.rsqrt(square + self.config.norm_epsilon)
        batch, heads, length, _ = q.shape
        joined = normal.swapaxes(1, 2).reshape(batch, length, heads, -1)
        return joined.swapaxes(1, 2).astype(mixed.dtype), weights

    def _share(self) -> Float[Array, ""]:
        """Return lambda."""
        a, b, c, d = map(at_least_float32, self.vectors)
        return jnp.exp(a @ b) - jnp.exp(c @ d) + _START


WORDS = {"differential": Differential}
