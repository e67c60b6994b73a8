"""Layers over a representation of pairs, and of aligned sequences beside it: the Evoformer's parts
(AlphaFold 2: Jumper et al. 2021, https://doi.org/10.1038/s41586-021-03819-2, supplement 1.6).

Pairs z are [B T T Z], sequences m [B R T D]; masks say which positions and pairs exist.
"""

from collections.abc import Sequence

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Bool, Float
from transformer_jax.config import ModelConfig
from transformer_jax.config.registry import pick
from transformer_jax.nn.dropout import keep
from transformer_jax.nn.linear import Project
from transformer_jax.nn.norm import make_norm
from transformer_jax.nn.roles import INWARD, KEY, OWN_MAP, QUERY, Role

_ZEROS, _ONES = nn.initializers.zeros, nn.initializers.ones


class PairModule(nn.Module):
    """A layer that makes its maps by name."""

    config: ModelConfig
    dtype: jnp.dtype

    @nn.nowrap
    def new_map(
        self, shape: Sequence[int], out: Sequence[int], role: Role, bias: bool = True,
        zero: bool = False, ones: bool = False,
    ) -> Project:  # fmt: skip
        """Return a map whose kernel starts at zero, if asked, and its bias at one."""
        names = [None] * (len(shape) + len(out))
        return Project(
            shape, out, names, self.dtype, use_bias=bias, role=role,
            start=_ZEROS if zero else None, bias_start=_ONES if ones else _ZEROS,
        )  # fmt: skip

    @nn.nowrap
    def new_gate(self, width: int, out: Sequence[int]) -> Project:
        """Return the map of a gate, which starts open: at zero, with a bias of one."""
        return self.new_map((width,), out, OWN_MAP, zero=True, ones=True)


class GatedAttention(PairModule):
    """Attention over the last axis but one, with a bias for each head and pair, gated."""

    width: int
    heads: int

    def setup(self) -> None:
        shape = (self.heads, self.width // self.heads)
        self.query = self.new_map((self.width,), shape, QUERY, bias=False)
        self.key = self.new_map((self.width,), shape, KEY, bias=False)
        self.value = self.new_map((self.width,), shape, INWARD, bias=False)
        self.gate = self.new_gate(self.width, shape)
        self.output = self.new_map(shape, (self.width,), OWN_MAP, zero=True)

    def __call__(
        self, x: Float[Array, "B R T D"], bias: Float[Array, "B N T T"], seen: Bool[Array, "B R T"]
    ) -> Float[Array, "B R T D"]:
        """Return what each position gathers from those of its row that are seen."""
        q, k, v = self.query(x), self.key(x), self.value(x)
        wide = jnp.promote_types(q.dtype, jnp.float32)
        scores = jnp.einsum("BRQHC,BRKHC->BRHQK", q, k, preferred_element_type=wide)
        scores = scores * (self.width // self.heads) ** -0.5 + bias[:, None].astype(wide)
        scores = jnp.where(seen[:, :, None, None, :], scores, jnp.finfo(wide).min)
        weights = jax.nn.softmax(scores).astype(q.dtype)
        mixed = jnp.einsum("BRHQK,BRKHC->BRQHC", weights, v)
        return self.output(mixed * jax.nn.sigmoid(self.gate(x)))


class RowAttention(PairModule):
    """Attention within each sequence, with a bias from the pairs (algorithm 7)."""

    def setup(self) -> None:
        c = self.config
        self.norm, self.pair_norm = make_norm(c), make_norm(c)
        self.bias = self.new_map((c.pair_width,), (c.num_heads,), OWN_MAP, bias=False)
        self.attention = GatedAttention(c, self.dtype, c.d_model, c.num_heads)

    def __call__(
        self, m: Float[Array, "B R T D"], z: Float[Array, "B T T Z"], mask: Bool[Array, "B T"]
    ) -> Float[Array, "B R T D"]:
        bias = jnp.moveaxis(self.bias(self.pair_norm(z)), -1, 1)
        seen = jnp.broadcast_to(mask[:, None], m.shape[:3])
        return self.attention(self.norm(m), bias, seen)


class Transition(PairModule):
    """Norm, a map to four times the width, ReLU, and a map back (algorithm 9)."""

    @property
    def width(self) -> int:
        """Channels of what it reads."""
        return self.config.d_model

    def setup(self) -> None:
        self.norm = make_norm(self.config)
        self.up = self.new_map((self.width,), (4 * self.width,), INWARD)
        self.down = self.new_map((4 * self.width,), (self.width,), OWN_MAP, zero=True)

    def __call__(self, x: Float[Array, "... D"]) -> Float[Array, "... D"]:
        return self.down(jax.nn.relu(self.up(self.norm(x))))


class PairTransition(Transition):
    """The same for each pair (algorithm 15)."""

    @property
    def width(self) -> int:
        """See Transition."""
        return self.config.pair_width

    def __call__(
        self, z: Float[Array, "B T T Z"], mask: Bool[Array, "B T T"] | None = None
    ) -> Float[Array, "B T T Z"]:
        return super().__call__(z)


class OuterProductMean(PairModule):
    """What positions have in common over the sequences: the mean of the outer products of two maps
    of each, mapped to a pair (algorithm 10).
    """

    def setup(self) -> None:
        c = self.config
        self.norm = make_norm(c)
        self.left = self.new_map((c.d_model,), (c.outer_width,), INWARD)
        self.right = self.new_map((c.d_model,), (c.outer_width,), INWARD)
        shape = (c.outer_width, c.outer_width)
        self.output = self.new_map(shape, (c.pair_width,), OWN_MAP, zero=True)

    def __call__(
        self, m: Float[Array, "B R T D"], mask: Bool[Array, "B R T"]
    ) -> Float[Array, "B T T Z"]:
        x = self.norm(m)
        held = mask[..., None].astype(self.dtype)
        left, right = self.left(x) * held, self.right(x) * held
        product = jnp.einsum("BRIC,BRJD->BIJCD", left, right)
        count = jnp.einsum("BRI,BRJ->BIJ", held[..., 0], held[..., 0])
        return self.output(product) / (count + 1e-3)[..., None]


class TriangleMultiplication(PairModule):
    """What the other two sides of triangles say of the third: the edges from both of its ends to
    each third position (algorithm 11).
    """

    ends = "BIKZ,BJKZ->BIJZ"

    def setup(self) -> None:
        width = self.config.pair_width
        self.norm, self.product_norm = make_norm(self.config), make_norm(self.config)
        self.left = self.new_map((width,), (width,), INWARD)
        self.right = self.new_map((width,), (width,), INWARD)
        self.left_gate = self.new_gate(width, (width,))
        self.right_gate = self.new_gate(width, (width,))
        self.gate = self.new_gate(width, (width,))
        self.output = self.new_map((width,), (width,), OWN_MAP, zero=True)

    def __call__(
        self, z: Float[Array, "B T T Z"], mask: Bool[Array, "B T T"]
    ) -> Float[Array, "B T T Z"]:
        x, held = self.norm(z), mask[..., None].astype(self.dtype)
        left = held * jax.nn.sigmoid(self.left_gate(x)) * self.left(x)
        right = held * jax.nn.sigmoid(self.right_gate(x)) * self.right(x)
        wide = jnp.promote_types(left.dtype, jnp.float32)
        product = jnp.einsum(self.ends, left, right, preferred_element_type=wide)
        mapped = self.output(self.product_norm(product.astype(left.dtype)))
        return mapped * jax.nn.sigmoid(self.gate(x))


class IncomingMultiplication(TriangleMultiplication):
    """The same of the edges from each third position to both ends (algorithm 12)."""

    ends = "BKIZ,BKJZ->BIJZ"


class TriangleAttention(PairModule):
    """Attention of a pair to those that start at the same position, with a bias from the pair that
    closes the triangle (algorithm 13).
    """

    def setup(self) -> None:
        c = self.config
        self.norm = make_norm(c)
        self.bias = self.new_map((c.pair_width,), (c.pair_heads,), OWN_MAP, bias=False)
        self.attention = GatedAttention(c, self.dtype, c.pair_width, c.pair_heads)

    def __call__(
        self, z: Float[Array, "B T T Z"], mask: Bool[Array, "B T T"]
    ) -> Float[Array, "B T T Z"]:
        x = self.norm(z)
        return self.attention(x, jnp.moveaxis(self.bias(x), -1, 1), mask)


class EndingAttention(TriangleAttention):
    """The same to those that end at the same position (algorithm 14)."""

    def __call__(
        self, z: Float[Array, "B T T Z"], mask: Bool[Array, "B T T"]
    ) -> Float[Array, "B T T Z"]:
        return super().__call__(z.swapaxes(1, 2), mask.swapaxes(1, 2)).swapaxes(1, 2)


PARTS: dict[str, type[PairModule]] = {
    "outgoing": TriangleMultiplication,
    "incoming": IncomingMultiplication,
    "starting": TriangleAttention,
    "ending": EndingAttention,
    "transition": PairTransition,
}


class EvoformerBlock(nn.Module):
    """One block: the sequences are read under the pairs, the pairs are told what the sequences have
    in common, and are then refined by `model.pair_parts`; all of it residual (algorithm 6, without
    attention between sequences). In training, what a row of pairs gains is dropped together.
    """

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        self.row_attention = RowAttention(c, self.dtype)
        self.transition = Transition(c, self.dtype)
        self.outer_product = OuterProductMean(c, self.dtype)
        parts = (pick(PARTS, kind, "config.model.pair_parts") for kind in c.pair_parts)
        self.pairs = [part(c, self.dtype) for part in parts]
        self.dropout = RowDropout(c.dropout_rate)

    def __call__(
        self, m: Float[Array, "B R T D"], z: Float[Array, "B T T Z"], mask: Bool[Array, "B T"],
        train: bool,
    ) -> tuple[Float[Array, "B R T D"], Float[Array, "B T T Z"]]:  # fmt: skip
        m = m + self.dropout(self.row_attention(m, z, mask), train)
        m = m + self.transition(m)
        z = z + self.outer_product(m, jnp.broadcast_to(mask[:, None], m.shape[:3]))
        both = mask[:, :, None] & mask[:, None]
        for part in self.pairs:
            z = z + self.dropout(part(z, both), train)
        return m, z


class RowDropout(nn.Module):
    """Dropout with one mask [B 1 T D] for all rows of x."""

    rate: float

    @nn.compact
    def __call__(self, x: Float[Array, "B R T D"], train: bool) -> Float[Array, "B R T D"]:
        if not train or self.rate == 0.0:
            return x
        words = jax.random.key_data(self.make_rng("dropout"))
        kept = keep(words, (x.shape[0], 1, *x.shape[2:]), self.rate)
        return jnp.where(kept, x / (1 - self.rate), jnp.zeros_like(x))
