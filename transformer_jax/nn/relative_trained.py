"""Relative positions with parameters: T5, Toeplitz, Shaw et al., Transformer-XL."""

import math
from dataclasses import replace
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float, Int, at_least_float32
from transformer_jax.nn.initializers import named, parameter, xavier_uniform
from transformer_jax.nn.relative_fixed import NoRelativePositions
from transformer_jax.nn.roles import OWN_MAP, OWN_TABLE, PLAIN
from transformer_jax.nn.view import View


class Toeplitz(NoRelativePositions):
    """A trained number for each head and distance, added to scores: b_h[clip(j - i, -k, k)]."""

    @nn.compact
    def __call__(self, view: View) -> View:
        """See NoRelativePositions."""
        rows = at_least_float32(self.rows(view.bidirectional))

        def bias(
            view: View, q: Float[Array, "B N T H"], k: Float[Array, "B K H S"], scale: float
        ) -> Float[Array, "#B N T S"]:
            (rows,) = view.tables
            return jnp.moveaxis(rows[_clipped(view, len(rows) // 2)], -1, 1)

        return replace(view, bias=bias, tables=(rows,))

    def rows(self, bidirectional: bool) -> Float[Array, "R N"]:
        """Return the bias at each distance j - i, in ascending order."""
        return self.table(2 * self.config.relative_clip + 1)

    def table(self, count: int) -> Float[Array, "R N"]:
        """Return trained rows, initialised from N(0, 1/D) like T5's."""
        init = named(
            nn.initializers.normal(self.config.d_model**-0.5), "length", "heads", role=OWN_TABLE
        )
        return parameter(self, "table", init, (count, self.config.num_heads))


class T5(Toeplitz):
    """T5's bias (Raffel et al. 2020, arXiv:1910.10683): distances in a bucket share a number.

    Buckets distinguish keys before a query from those after it wherever a query of the stack may
    look ahead: in an encoder, and with ranks, that is also with a prefix, as in Mesh TensorFlow,
    T5's own code. In a causal decoder all buckets are for earlier keys.
    """

    def rows(self, bidirectional: bool) -> Float[Array, "R N"]:
        """See Toeplitz."""
        count, reach = self.config.relative_buckets, self.config.relative_max_distance
        return self.table(count)[t5_buckets(count, reach, bidirectional)]


def t5_buckets(count: int, reach: int, bidirectional: bool) -> np.ndarray:
    """Return the bucket of each distance j - i from -reach to reach, [2 reach + 1].

    In each direction, the first half of the buckets hold one distance each; the others widen
    logarithmically with distance, and the last one holds `reach` and everything beyond.
    """
    away = np.arange(-reach, reach + 1)
    ahead = (away > 0) * bidirectional
    if bidirectional:
        count //= 2
        away = np.abs(away)
    else:
        away = np.maximum(-away, 0)
    exact = count // 2
    steps = np.log(np.maximum(away, exact) / exact) / math.log(reach / exact)
    wide = np.minimum(exact + np.int64(steps * (count - exact)), count - 1)
    return np.where(away < exact, away, wide) + count * ahead


class Shaw(NoRelativePositions):
    """Trained vectors for distances, added to keys (Shaw et al. 2018, arXiv:1803.02155).

    e_ij = q_i (k_j + a[clip(j - i, -k, k)]) / sqrt(d), where all heads share the table
    a [2k + 1, H], as in tensor2tensor.
    """

    shared: ClassVar[bool] = False

    @nn.compact
    def __call__(self, view: View) -> View:
        """See NoRelativePositions."""
        keys = self.table("keys", self.config.key_size)

        def bias(
            view: View, q: Float[Array, "B N T H"], k: Float[Array, "B K H S"], scale: float
        ) -> Float[Array, "B N T S"]:
            (keys,) = view.tables
            index = _clipped(view, len(keys) // 2)[:, None]
            each = _product("BNTH,RH->BNTR", q, keys.astype(q.dtype))
            return jnp.take_along_axis(each, index, axis=-1) * scale

        return replace(view, bias=bias, tables=(keys,))

    def table(self, name: str, size: int) -> Float[Array, "R H"]:
        """Return a trained vector for each distance."""
        init = named(xavier_uniform(1), "length", "head_dim", role=PLAIN)
        return parameter(self, name, init, (2 * self.config.relative_clip + 1, size))


class ShawValues(Shaw):
    """Trained vectors for distances, one set added to keys and one to values, as in the paper."""

    @nn.compact
    def __call__(self, view: View) -> View:
        """See NoRelativePositions."""
        table = self.table("values", self.config.value_size)

        def values(view: View, weights: Float[Array, "B N T S"]) -> Float[Array, "B N T Hv"]:
            index = _clipped(view, len(table) // 2)
            here = jax.nn.one_hot(index, len(table), axis=2, dtype=weights.dtype)
            each = _product("BNTS,BTRS->BNTR", weights, here).astype(weights.dtype)
            return _product("BNTR,RH->BNTH", each, table.astype(weights.dtype))

        return replace(super().__call__(view), values=values)


class XLNet(NoRelativePositions):
    """Transformer-XL's form (Dai et al. 2019, arXiv:1901.02860), with per-layer biases as in XLNet
    (arXiv:1906.08237), and without XLNet's segment term.

    (q_i + u) k_j + (q_i + w) W R_{i-j}, all over sqrt(d), where R are sinusoids: all sines, then
    all cosines. Sines and cosines of i - j follow from products of those of i and j, which makes
    the second term a product too, of vectors as long as d_model: exact at any position, and
    num_heads times as expensive as that of queries and keys.
    """

    shared: ClassVar[bool] = False

    @nn.compact
    def __call__(self, view: View) -> View:
        """See NoRelativePositions."""
        c = self.config
        heads, names = (c.num_heads, c.key_size), ("heads", "head_dim")
        small = named(nn.initializers.normal(0.02), *names, role=PLAIN)
        u, w = (parameter(self, name, small, heads) for name in ("content_bias", "position_bias"))
        wide = named(xavier_uniform(1), "embed", *names, role=OWN_MAP)
        kernel = parameter(self, "kernel", wide, (c.d_model, *heads))

        def bias(
            view: View, q: Float[Array, "B N T H"], k: Float[Array, "B K H S"], scale: float
        ) -> Float[Array, "B N T S"]:
            u, w, kernel = view.tables
            q_sin, q_cos = (x[:, None] for x in _waves(view.q_pos, c.d_model))
            k_waves = jnp.concatenate(_waves(view.k_pos, c.d_model), -1)
            asked = q + w.astype(q.dtype)[None, :, None]
            sine, cosine = jnp.split(
                _product("BNTH,DNH->BNTD", asked, kernel.astype(q.dtype)), 2, -1
            )
            turned = jnp.concatenate(
                [cosine * q_sin - sine * q_cos, sine * q_sin + cosine * q_cos], -1
            )
            place = _product("BNTD,BSD->BNTS", turned.astype(q.dtype), k_waves.astype(q.dtype))
            grouped = u.astype(k.dtype).reshape(k.shape[1], -1, k.shape[2])
            content = _product("KGH,BKHS->BKGS", grouped, k)
            return (place + content.reshape(len(k), c.num_heads, 1, -1)) * scale

        return replace(view, bias=bias, tables=(u, w, kernel))


def _clipped(view: View, reach: int) -> Int[Array, "#B T S"]:
    """Return the row of the distance j - i, one of 2 reach + 1."""
    return jnp.clip(-view.distance(), -reach, reach) + reach


def _waves(positions: Int[Array, "B T"], width: int) -> tuple[Array, Array]:
    """Return sines and cosines, [B T width/2] each, at the paper's frequencies (3.5)."""
    frequencies = 10_000.0 ** (-np.arange(0, width, 2) / width)
    angles = at_least_float32(positions[:, :, None] * jnp.asarray(frequencies)[None, None])
    return jnp.sin(angles), jnp.cos(angles)


def _product(axes: str, a: Array, b: Array) -> Array:
    wide = jnp.promote_types(a.dtype, jnp.float32)
    return jnp.einsum(axes, a, b, preferred_element_type=wide)
