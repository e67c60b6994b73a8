"""Attention masks: which query sees which key, by segments and ranks."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import jax.numpy as jnp
from flax import struct

from transformer_jax.base.arrays import Array, Bool, Int

Order = Literal["all", "causal", "ranked"]


@struct.dataclass
class View:
    """Queries at [B T], keys at [B S]. A query sees the keys of its own segment; padding is 0.

    Depending on `order`, it sees all of these; those at its own position or before ("causal"); or
    those of its own rank or below ("ranked"): all-to-all, causal, prefix and permuted masks are
    four choices of ranks. `window` keeps those less than that many positions away, and `dilation`
    every n-th of them, counted from the query's own; keys at positions below `everywhere` are seen
    from any distance.

    In decoding, keys are cache slots shared by all hypotheses of a sentence; `visible` then says
    which query may see which slot, in place of the segments.
    """

    q_pos: Int[Array, "B T"]
    k_pos: Int[Array, "B S"]
    q_seg: Int[Array, "B T"]
    k_seg: Int[Array, "B S"]
    q_rank: Int[Array, "B T"] | None = None  # with order "ranked"
    k_rank: Int[Array, "B S"] | None = None
    visible: Bool[Array, "B T S"] | None = None
    # What a relative scheme's bias reads, so that a kernel with a gradient of its own knows it.
    tables: tuple[Array, ...] = ()
    order: Order = struct.field(pytree_node=False, default="all")
    window: int | None = struct.field(pytree_node=False, default=None)
    dilation: int = struct.field(pytree_node=False, default=1)
    everywhere: int = struct.field(pytree_node=False, default=0)
    # Positions before the vectors of `config.grid` in each row, such as a class token's.
    before: int = struct.field(pytree_node=False, default=0)
    # Rows hold one segment each, from their start, so that lengths can replace masks.
    single: bool = struct.field(pytree_node=False, default=False)
    # Whether keys ahead of a query are seen anywhere in its stack; if so, half of the distance
    # buckets are for them.
    bidirectional: bool = struct.field(pytree_node=False, default=True)
    # A relative scheme's rotation of queries and keys [B T N H] at the queries' positions; the term
    # that it adds to scores, a function of a view with its tables, queries [B N T H], keys
    # [B K H S] and the scale of their products, so that nothing is computed in vain; and the term
    # that it adds to the values that weights [B N T S] gather in a view, which may cover only some
    # of them.
    rotate: Callable[[Array], Array] | None = struct.field(pytree_node=False, default=None)
    bias: Callable[["View", Array, Array, float], Array] | None = struct.field(
        pytree_node=False, default=None
    )
    values: Callable[["View", Array], Array] | None = struct.field(pytree_node=False, default=None)

    def mask(self) -> Bool[Array, "B 1 T S"]:
        """Return the mask, True where a query may attend."""
        if self.visible is None:
            seen = (self.q_seg[:, :, None] == self.k_seg[:, None, :]) & (self.k_seg > 0)[:, None, :]
        else:
            seen = self.visible
        if self.order == "causal":
            seen = seen & (self.k_pos[:, None, :] <= self.q_pos[:, :, None])
        elif self.order == "ranked":
            assert self.q_rank is not None
            assert self.k_rank is not None
            seen = seen & (self.k_rank[:, None, :] <= self.q_rank[:, :, None])
        if self.window is not None:
            near = jnp.abs(self.distance()) < self.window
            seen = seen & (near | (self.k_pos < self.everywhere)[:, None, :])
        if self.dilation > 1:
            seen = seen & (self.distance() % self.dilation == 0)
        return seen[:, None]

    def distance(self) -> Int[Array, "#B T S"]:
        """Return how many positions each key is before each query; once for all rows if each holds
        one segment from its start, so that they are alike.
        """
        if self.single:
            length, keys = self.q_pos.shape[1], self.k_pos.shape[1]
            return (jnp.arange(length)[:, None] - jnp.arange(keys)[None])[None]
        return self.q_pos[:, :, None] - self.k_pos[:, None, :]

    def within(self, window: int | None, dilation: int = 1) -> "View":
        """Return the view restricted to keys less than `window` positions away, or some of them."""
        return replace(self, window=window, dilation=dilation)

    def on_itself(self) -> "View":
        """Return the view of the same queries on keys at their own positions."""
        return replace(self, k_pos=self.q_pos, k_seg=self.q_seg, k_rank=self.q_rank)

    def on_slots(self, visible: Bool[Array, "B T C"], k_pos: Int[Array, "B C"]) -> "View":
        """Return the view of the same queries on other slots."""
        ones = jnp.ones_like(k_pos)
        return replace(self, visible=visible, k_pos=k_pos, k_seg=ones, single=False)


def self_view(
    pos: Int[Array, "B T"],
    seg: Int[Array, "B T"],
    order: Order,
    rank: Int[Array, "B T"] | None = None,
    single: bool = False,
) -> View:
    """Return the view of a sequence on itself."""
    ranks = (rank, rank) if order == "ranked" else (None, None)
    ahead = order != "causal"
    return View(pos, pos, seg, seg, *ranks, order=order, bidirectional=ahead, single=single)


def cross_view(
    q_pos: Int[Array, "B T"], q_seg: Int[Array, "B T"],
    k_pos: Int[Array, "B S"], k_seg: Int[Array, "B S"],
    single: bool = False,
) -> View:  # fmt: skip
    """Return the view of one sequence on another."""
    return View(q_pos, k_pos, q_seg, k_seg, single=single)


def slot_view(
    visible: Bool[Array, "B T C"], q_pos: Int[Array, "B T"], k_pos: Int[Array, "B C"], order: Order
) -> View:
    """Return the view of new tokens on cache slots: causal, whatever the order of the stack."""
    ones, ahead = jnp.ones_like, order != "causal"
    return View(
        q_pos, k_pos, ones(q_pos), ones(k_pos),
        visible=visible, order="causal", bidirectional=ahead,
    )  # fmt: skip


def two_stream_view(
    pos: Int[Array, "B T"], seg: Int[Array, "B T"], rank: Int[Array, "B T"]
) -> View:
    """Return the view of a sequence followed by a query for each of its positions, 2 T in all.

    The sequence sees ranks up to its own, the queries those below it (Yang et al. 2019). The second
    half of the keys is padding to all. Ranks are doubled, so that a query's lies between two.
    """
    pos, own = _twice(pos, pos), 2 * rank
    segments, keys = _twice(seg, seg), _twice(seg, jnp.zeros_like(seg))
    ranks = _twice(own, own - 1), _twice(own, own)
    return View(pos, pos, segments, keys, *ranks, order="ranked")


def _twice(first: Int[Array, "B T"], second: Int[Array, "B T"]) -> Int[Array, "B S"]:
    return jnp.concatenate([first, second], axis=1)
