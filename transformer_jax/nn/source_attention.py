"""Attention of a recurrent decoder to its source: one query at a time, one head."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, Int, at_least_float32
from transformer_jax.config import ModelConfig
from transformer_jax.nn.initializers import named, parameter, xavier_uniform
from transformer_jax.nn.linear import Project
from transformer_jax.nn.roles import INWARD, KEY, PLAIN


class Source(NamedTuple):
    """The source that queries attend to, with the parts that do not depend on the query."""

    values: Float[Array, "B S D"]
    keys: Float[Array, "B S D"]
    seg: Int[Array, "B S"]


# A query [B D], its position [B] and the source -> the context [B D] and the weights [B S].
Attend = Callable[[Array, Array, Source], tuple[Array, Array]]


class Dot(nn.Module):
    """Scores are products of the query and the source vectors (Luong et al. 2015,
    arXiv:1508.04025): "dot".
    """

    config: ModelConfig
    dtype: jnp.dtype

    def prepare(self, values: Float[Array, "B S D"], seg: Int[Array, "B S"]) -> Source:
        """Return the source in the form that queries read."""
        return Source(values, values, seg)

    def attend(self) -> Attend:
        """Return the attention of a query as a function that holds the parameters."""
        weights = self.weights()

        def attend(query: Array, position: Array, source: Source) -> tuple[Array, Array]:
            shares = weights(query, position, source)
            return jnp.einsum("BS,BSD->BD", shares.astype(self.dtype), source.values), shares

        return attend

    def weights(self) -> Callable[[Array, Array, Source], Array]:
        """Return (query, position, source) -> weights [B S]."""
        scores = self.scores()
        return lambda query, position, source: _softmax(scores(query, source), source.seg > 0)

    def scores(self) -> Callable[[Array, Source], Array]:
        """Return (query, source) -> scores [B S]."""
        return lambda query, source: _product(query, source.keys)


class General(Dot):
    """Scores are products with a linear map of the source vectors."""

    def setup(self) -> None:
        d = self.config.d_model
        self.key = Project((d,), (d,), ("embed", "state"), self.dtype, False, KEY)

    def prepare(self, values: Float[Array, "B S D"], seg: Int[Array, "B S"]) -> Source:
        """See Dot."""
        return Source(values, self.key(values), seg)


class Additive(General):
    """Scores are v tanh(W q + U h) (Bahdanau et al. 2015, arXiv:1409.0473): Luong's "concat"."""

    def setup(self) -> None:
        super().setup()
        d = self.config.d_model
        start = xavier_uniform(1)
        self.query = parameter(self, "query", named(start, "embed", "state", role=PLAIN), (d, d))
        normal = nn.initializers.normal(d**-0.5)
        self.score = parameter(self, "score", named(normal, "state", role=PLAIN), (d,))

    def scores(self) -> Callable[[Array, Source], Array]:
        """See Dot."""
        query, score, dtype = self.query, self.score, self.dtype

        def scores(asked: Array, source: Source) -> Array:
            mapped = asked.astype(dtype) @ query.astype(dtype)
            hidden = jnp.tanh(at_least_float32(mapped[:, None] + source.keys))
            return jnp.einsum("BSD,D->BS", hidden, score)

        return scores


class MultiHeadAdditive(General):
    """Additive scores in each of `config.num_heads` heads, with further maps of the values and of
    what all heads gather (Chen et al. 2018, arXiv:1804.09849). The returned weights are the mean
    over heads.
    """

    def setup(self) -> None:
        super().setup()
        d, heads = self.config.d_model, self.config.num_heads
        start = xavier_uniform(1)
        self.query = parameter(self, "query", named(start, "embed", "state", role=PLAIN), (d, d))
        normal = nn.initializers.normal((d // heads) ** -0.5)
        self.score = parameter(self, "score", named(normal, "state", role=PLAIN), (d,))
        self.value = Project((d,), (d,), ("embed", "state"), self.dtype, False, INWARD)
        self.outward = parameter(
            self, "outward", named(start, "state", "embed", role=PLAIN), (d, d)
        )

    def prepare(self, values: Float[Array, "B S D"], seg: Int[Array, "B S"]) -> Source:
        """See Dot."""
        return Source(self.value(values), self.key(values), seg)

    def attend(self) -> Attend:
        """See Dot."""
        query, score, outward, dtype = self.query, self.score, self.outward, self.dtype
        heads = self.config.num_heads

        def attend(asked: Array, position: Array, source: Source) -> tuple[Array, Array]:
            mapped = asked.astype(dtype) @ query.astype(dtype)
            hidden = jnp.tanh(at_least_float32(mapped[:, None] + source.keys)) * score[None, None]
            scores = hidden.reshape(*hidden.shape[:2], heads, -1).sum(-1)
            seen = (source.seg > 0)[:, None]
            weights = _softmax(scores.swapaxes(1, 2), seen)  # [B N S]
            values = source.values.reshape(*scores.shape, -1)
            mixed = jnp.einsum("BNS,BSNH->BNH", weights.astype(dtype), values)
            return mixed.reshape(mapped.shape) @ outward.astype(dtype), weights.mean(1)

        return attend


class LocalMonotonic(General):
    """Attention within `config.window` on either side of the target's own position (local-m)."""

    def weights(self) -> Callable[[Array, Array, Source], Array]:
        """See Dot."""
        scores, reach = self.scores(), self.config.window
        assert reach is not None

        def weights(query: Array, position: Array, source: Source) -> Array:
            places = jnp.arange(source.seg.shape[1])[None]
            near = jnp.abs(places - position[:, None]) <= reach
            return _softmax(scores(query, source), near & (source.seg > 0))

        return weights


class LocalPredictive(General):
    """Attention within a window around a position that the query predicts, decaying with distance
    (local-p).

    p = S sigmoid(v tanh(W q)), where S is the length of the source; weights are a softmax over
    positions at most D = `config.window` from p, times exp(-(s - p)^2 / (2 (D/2)^2)), and sum to
    less than 1.
    """

    def setup(self) -> None:
        super().setup()
        d = self.config.d_model
        start = xavier_uniform(1)
        self.place_map = parameter(
            self, "place_map", named(start, "embed", "state", role=PLAIN), (d, d)
        )
        normal = nn.initializers.normal(d**-0.5)
        self.place = parameter(self, "place", named(normal, "state", role=PLAIN), (d,))

    def weights(self) -> Callable[[Array, Array, Source], Array]:
        """See Dot."""
        scores, reach = self.scores(), self.config.window
        kernel, place = self.place_map, self.place
        assert reach is not None

        def weights(query: Array, position: Array, source: Source) -> Array:
            query = at_least_float32(query)
            length = (source.seg > 0).sum(1)
            share = jax.nn.sigmoid(jnp.tanh(query @ kernel) @ place)
            away = jnp.arange(source.seg.shape[1])[None] - (length * share)[:, None]
            near = (jnp.abs(away) <= reach) & (source.seg > 0)
            shares = _softmax(scores(query, source), near)
            return shares * jnp.exp(-((2 * away / reach) ** 2) / 2)

        return weights


SOURCE_ATTENTIONS = {
    "none": None,
    "dot": Dot,
    "general": General,
    "additive": Additive,
    "multi_head_additive": MultiHeadAdditive,
    "local_monotonic": LocalMonotonic,
    "local_predictive": LocalPredictive,
}


def _product(query: Float[Array, "B D"], keys: Float[Array, "B S D"]) -> Float[Array, "B S"]:
    wide = jnp.promote_types(keys.dtype, jnp.float32)
    return jnp.einsum("BD,BSD->BS", query.astype(keys.dtype), keys, preferred_element_type=wide)


def _softmax(scores: Array, seen: Array) -> Array:
    """Return weights that are 0 at all unseen positions, even if that is every one."""
    low = jnp.finfo(scores.dtype).min
    weights = jax.nn.softmax(jnp.where(seen, scores, low))
    return jnp.where(seen, weights, 0)
