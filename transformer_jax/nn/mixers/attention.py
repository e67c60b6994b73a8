"""Multi-head attention (paper 3.2.2): project to heads, mix, join."""

from collections.abc import Callable

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.arrays import Array, Bool, Float
from transformer_jax.choices import pick
from transformer_jax.config import ModelConfig
from transformer_jax.nn.cache import KeysValues, Lanes, Slots
from transformer_jax.nn.dropout import Dropout
from transformer_jax.nn.linear import Project, project_together
from transformer_jax.nn.mixers import dense, fused
from transformer_jax.nn.norm import RMSNorm
from transformer_jax.nn.relative_positions import scheme_of
from transformer_jax.nn.view import View

KERNELS = {"dense": dense.mix, "fused": fused.mix}
# What scores are multiplied by, from the size of a head.
SCORE_SCALES: dict[str, Callable[[int], float]] = {
    "inverse_sqrt": lambda size: size**-0.5,
    "none": lambda size: 1.0,
}
# The norm of queries or keys, from an epsilon and the name of the axis of their heads.
QUERY_KEY_NORMS: dict[str, Callable[[float, str], nn.Module | None]] = {
    "none": lambda epsilon, heads: None,
    "per_head": lambda epsilon, heads: RMSNorm(epsilon, ("head_dim",)),
    "all_heads": lambda epsilon, heads: RMSNorm(epsilon, (heads, "head_dim")),
}


class Attention(nn.Module):
    """Projections to heads, a kernel between them, and the projection back: a Mixer.

    It also serves as cross-attention: `recall` on what `remember` made of another sequence.
    """

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        # One axis name where all heads are alike, so that q, k and v are one product.
        kv = "heads" if c.kv_heads == c.num_heads else "kv_heads"
        to_queries = (c.d_model,), (c.num_heads, c.key_size), ("embed", "heads", "head_dim")
        to_keys = (c.d_model,), (c.kv_heads, c.key_size), ("embed", kv, "head_dim")
        to_values = (c.d_model,), (c.kv_heads, c.value_size), ("embed", kv, "head_dim")
        outward = (c.num_heads, c.value_size), (c.d_model,), ("heads", "head_dim", "embed")
        self.query = Project(*to_queries, self.dtype, "query" in c.biases)
        self.key = Project(*to_keys, self.dtype, "key" in c.biases)
        self.value = Project(*to_values, self.dtype, "value" in c.biases)
        self.output = Project(*outward, self.dtype, "output" in c.biases)
        norm = pick(QUERY_KEY_NORMS, c.query_key_norm, "config.model.query_key_norm")
        self.query_norm = norm(c.norm_epsilon, "heads")
        self.key_norm = norm(c.norm_epsilon, kv)
        self.relative_positions = scheme_of("layer", c)
        self.dropout = Dropout(c.attention_dropout_rate)

    def mix(
        self, x: Float[Array, "B T D"], view: View, train: bool
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B N T S"]]:
        """See Mixer."""
        view = self._view(view)
        q, past = self._queries_keys_values(x, view)
        return self._gather(q, past, view, train)

    def empty(self, lanes: Lanes) -> KeysValues:
        """See Mixer."""
        c, (batch, _, slots) = self.config, lanes.seen.shape
        return KeysValues(
            jnp.zeros((batch, c.kv_heads, c.key_size, slots), self.dtype),
            jnp.zeros((batch, c.kv_heads, slots, c.value_size), self.dtype),
        )

    def extend(
        self, x: Float[Array, "B Q D"], cache: KeysValues, slots: Slots, active: Bool[Array, "B"]
    ) -> tuple[Float[Array, "B Q D"], Float[Array, "B N Q C"], KeysValues]:
        """See Mixer."""
        view = self._view(slots.view)
        q, new = self._queries_keys_values(x, view)
        cache = cache.write(slots.number, new)  # nowhere, for sentences that are not active
        mixed, weights = self._gather(q, cache, view, False)
        return mixed, weights, cache

    def remember(self, x: Float[Array, "B S D"]) -> KeysValues:
        """Return the keys and values of another sequence, for cross-attention."""
        k, v = project_together(x, [self.key, self.value])
        return _keys_values(_normal(self.key_norm, k), v)

    def recall(
        self, x: Float[Array, "B T D"], memory: KeysValues, view: View, train: bool
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B N T S"]]:
        """Return what x gathers from a memory, and the weights; no distance is known."""
        q = _normal(self.query_norm, self.query(x))
        return self._gather(_heads_first(q), memory, view, train)

    def _view(self, view: View) -> View:
        return self.relative_positions.look(view)

    def _queries_keys_values(self, x: Array, view: View) -> tuple[Array, KeysValues]:
        q, k, v = project_together(x, [self.query, self.key, self.value])
        q, k = _normal(self.query_norm, q), _normal(self.key_norm, k)
        if view.rotate is not None:
            q, k = view.rotate(q), view.rotate(k)
        return _heads_first(q), _keys_values(k, v)

    def _gather(
        self, q: Float[Array, "B N T H"], memory: KeysValues, view: View, train: bool
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B N T S"]]:
        c = self.config
        mix = pick(KERNELS, c.attention, "config.model.attention")
        scale = pick(SCORE_SCALES, c.score_scale, "config.model.score_scale")(c.key_size)
        scale /= c.attention_temperature
        mixed, weights = mix(q, *memory, view, lambda w: self.dropout(w, train), scale)
        return self.output(mixed.swapaxes(1, 2)), weights


class LocalAttention(Attention):
    """Attention on positions less than `config.window` away (Beltagy et al. 2020)."""

    def _view(self, view: View) -> View:
        return super()._view(view.within(self.config.window))


MIXERS = {"full": Attention, "local": LocalAttention}


def _normal(norm: nn.Module | None, x: Float[Array, "B T N H"]) -> Float[Array, "B T N H"]:
    return x if norm is None else norm(x)


def _keys_values(k: Float[Array, "B S K H"], v: Float[Array, "B S K Hv"]) -> KeysValues:
    return KeysValues(_heads_first(k).swapaxes(2, 3), _heads_first(v))


def _heads_first(x: Float[Array, "B T N H"]) -> Float[Array, "B N T H"]:
    x = nn.with_logical_constraint(x, ("batch", "length", "act_heads", "head_dim"))
    return x.swapaxes(1, 2)
