"""Multi-head latent attention: all heads' keys and values come from one small vector per token."""

from typing import Any

import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Bool, Float
from transformer_jax.config.choices.positions import ROTARY
from transformer_jax.nn.cache import KeysValues, Lanes, Slots
from transformer_jax.nn.dropout import Dropout
from transformer_jax.nn.linear import Project
from transformer_jax.nn.mixers.attention import Attention, keys_values
from transformer_jax.nn.mixers.heads import heads_first
from transformer_jax.nn.norm import RMSNorm
from transformer_jax.nn.relative_positions import scheme_of
from transformer_jax.nn.roles import INWARD, KEY, MAP, OUTWARD, QUERY, Role
from transformer_jax.nn.view import View


class LatentAttention(Attention):
    """Attention whose cache is one latent vector per token (MLA: DeepSeek-AI 2024,
    arXiv:2405.04434, section 2.1).

    A token's latent c = RMSNorm(W x), of `config.latent_size`, is mapped to the keys and values of
    all heads. Rotary positions would come between a query and that map, so the channels that they
    rotate, the first of each head, are a key of their own, mapped from x and shared by all heads.
    Queries may come from a latent, too.

    Decoding stores only c and the rotated key. Since q (U c) = (U' q) c, queries are mapped to the
    latent's size instead of keys to the heads', and what they gather is mapped to values:
    multi-query attention with one wide head.
    """

    gates = False

    def setup(self) -> None:
        c = self.config
        self.relative_positions = scheme_of("layer", c)
        self.dropout = Dropout(c.attention_dropout_rate)
        self.turned = c.rotated_channels if c.relative_positions in ROTARY else 0
        asked = c.d_model
        asked_axis: str | None = "embed"
        self.query_latent = self.query_latent_norm = self.turned_key = None
        if c.query_latent_size is not None:
            asked, asked_axis = c.query_latent_size, None
            self.query_latent = self._inward(asked)
            self.query_latent_norm = RMSNorm(c.norm_epsilon, (None,))
        self.latent = self._inward(c.latent_size)
        self.latent_norm = RMSNorm(c.norm_epsilon, (None,))
        if self.turned:
            self.turned_key = self._inward(self.turned, "head_dim")
        self.query = self._to_heads(asked, asked_axis, c.key_size, QUERY, "query" in c.biases)
        self.key = self._to_heads(c.latent_size, None, c.key_size - self.turned, KEY)
        self.value = self._to_heads(c.latent_size, None, c.value_size, INWARD)
        heads = (c.num_heads, c.value_size), (c.d_model,), ("heads", "head_dim", "embed")
        self.output = Project(*heads, self.dtype, "output" in c.biases, OUTWARD)

    def empty(self, lanes: Lanes) -> KeysValues:
        """See Mixer: the rotated key and the latent, in place of keys; values are the latent."""
        batch, _, slots = lanes.seen.shape
        size = self.turned + self.config.latent_size
        return KeysValues.empty(batch, slots, 1, size, 0, self.dtype)

    def extend(
        self, x: Float[Array, "B Q D"], cache: Any, slots: Slots, active: Bool[Array, "B"]
    ) -> tuple[Float[Array, "B Q D"], Float[Array, "B N Q C"] | None, Any]:
        """See Mixer."""
        view = self._view(slots.view)
        q, turned, latent = self._parts(x, view)
        stored = jnp.concatenate([turned, latent[:, :, None]], axis=3)
        cache = cache.write(slots.number, keys_values(stored, stored[..., :0]))
        if view.visible is None:  # a prompt: maps to heads once, where queries are as many as keys
            memory = self._memory(turned, latent)
            return *self._gather(q, memory, view.on_itself(), False), cache
        return *self._gather_latents(q, cache, view), cache

    def _gather_latents(
        self, q: Float[Array, "B N Q H"], cache: KeysValues, view: View
    ) -> tuple[Float[Array, "B Q D"], Float[Array, "B N Q C"]]:
        """Return what queries gather from the cache, and the weights."""
        turned, rest = q[..., : self.turned], q[..., self.turned :]
        q = jnp.concatenate([turned, _product("BNTH,LNH->BNTL", rest, self.key)], axis=-1)
        values = cache.keys[:, :, self.turned :].swapaxes(2, 3)
        mixed, weights = self._mixed(q, KeysValues(cache.keys, values), view, False)
        return self._joined(_product("BNTL,LNH->BNTH", mixed, self.value)), weights

    def _queries_keys_values(self, x: Array, view: View) -> tuple[Array, KeysValues]:
        q, turned, latent = self._parts(x, view)
        return q, self._memory(turned, latent)

    def _parts(
        self, x: Float[Array, "B T D"], view: View
    ) -> tuple[Float[Array, "B N T H"], Float[Array, "B T 1 R"], Float[Array, "B T L"]]:
        """Return queries, the key that is rotated, and the latent."""
        asked = x
        if self.query_latent is not None and self.query_latent_norm is not None:
            asked = self.query_latent_norm(self.query_latent(x))
        q = self.query(asked)
        turned = x[..., :0] if self.turned_key is None else self.turned_key(x)
        turned = turned[:, :, None]
        if view.rotate is not None:
            q, turned = view.rotate(q), view.rotate(turned)
        return heads_first(q), turned, self.latent_norm(self.latent(x))

    def _memory(self, turned: Float[Array, "B T 1 R"], latent: Float[Array, "B T L"]) -> KeysValues:
        """Return the keys and values of all heads."""
        k, v = self.key(latent), self.value(latent)
        turned = jnp.broadcast_to(turned, (*k.shape[:3], self.turned))
        return keys_values(jnp.concatenate([turned, k], axis=-1), v)

    def _inward(self, size: int, axis: str | None = None) -> Project:
        return Project((self.config.d_model,), (size,), ("embed", axis), self.dtype, False, MAP)

    def _to_heads(
        self, size: int, axis: str | None, head: int, role: Role, use_bias: bool = False
    ) -> Project:
        shape = (size,), (self.config.num_heads, head), (axis, "heads", "head_dim")
        return Project(*shape, self.dtype, use_bias, role)


def _product(subscripts: str, x: Array, heads: Project) -> Array:
    """Return the product of x and a map's kernel [L N H], accumulated at least in float32."""
    wide = jnp.promote_types(x.dtype, jnp.float32)
    kernel = heads.kernel.astype(x.dtype)
    return jnp.einsum(subscripts, x, kernel, preferred_element_type=wide).astype(x.dtype)


WORDS = {"latent": LatentAttention}
