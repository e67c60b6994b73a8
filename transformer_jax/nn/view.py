"""Who may look at whom: asked once, of positions and segments."""

import jax.numpy as jnp
from flax import struct

from transformer_jax.arrays import Array, Bool, Int


@struct.dataclass
class View:
    """Queries at [B T], keys at [B S]. A query sees the keys of its own segment; padding is 0.

    In decoding, keys are cache slots shared by all hypotheses of a sentence; `visible` then says
    which query may see which slot, and stands in for the segments.
    """

    q_pos: Int[Array, "B T"]
    k_pos: Int[Array, "B S"]
    q_seg: Int[Array, "B T"]
    k_seg: Int[Array, "B S"]
    visible: Bool[Array, "B T S"] | None = None
    causal: bool = struct.field(pytree_node=False, default=False)

    def mask(self) -> Bool[Array, "B 1 T S"]:
        """Return the mask, True where a query may look."""
        if self.visible is None:
            seen = (self.q_seg[:, :, None] == self.k_seg[:, None, :]) & (self.k_seg > 0)[:, None, :]
        else:
            seen = self.visible
        if self.causal:
            seen = seen & (self.k_pos[:, None, :] <= self.q_pos[:, :, None])
        return seen[:, None]


def self_view(pos: Int[Array, "B T"], seg: Int[Array, "B T"], causal: bool) -> View:
    """Return the view of a sequence on itself."""
    return View(pos, pos, seg, seg, causal=causal)


def cross_view(
    q_pos: Int[Array, "B T"], q_seg: Int[Array, "B T"],
    k_pos: Int[Array, "B S"], k_seg: Int[Array, "B S"],
) -> View:  # fmt: skip
    """Return the view of one sequence on another."""
    return View(q_pos, k_pos, q_seg, k_seg)


def slot_view(visible: Bool[Array, "B T C"], q_pos: Int[Array, "B T"], k_pos: Int[Array, "B C"]):
    """Return the causal view of new tokens on cache slots."""
    return View(q_pos, k_pos, jnp.ones_like(q_pos), jnp.ones_like(k_pos), visible, causal=True)
