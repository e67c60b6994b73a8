"""A Stepper whose keys and values are in pages."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from flax import struct

from transformer_jax.base.arrays import Array, Bool, Float, Int
from transformer_jax.models.model import Stepper
from transformer_jax.models.network import DecodeState
from transformer_jax.nn.cache import Lanes


@struct.dataclass
class PagedState:
    """The pool of each layer, and the block tables of the rows."""

    pools: Any
    table: Int[Array, "B W T"]
    start: Int[Array, "B"]  # lengths of prompts
    memories: Any


class Paged:
    """A Stepper on pages, for models whose memory is only keys and values; one token at a time."""

    def __init__(self, stepper: Stepper) -> None:
        self._stepper = stepper

    def step(
        self, state: PagedState, tokens: Int[Array, "B W 1"], positions: Int[Array, "B 1"],
        active: Bool[Array, "B"],
    ) -> tuple[Float[Array, "B W 1 V"], None, PagedState]:  # fmt: skip
        """See Stepper."""
        width, count = tokens.shape[1], tokens.shape[0] * tokens.shape[1]
        table = state.table.reshape(count, -1)
        place = jnp.repeat(state.start + positions[:, 0], width)
        going = jnp.repeat(active, width)
        caches = [pages.gathered(table) for pages in state.pools]
        room = caches[0].keys.shape[3]
        seen = jnp.arange(room)[None] < place[:, None]
        lanes = Lanes(seen[:, None], jnp.zeros(count, jnp.int32), room)
        rows = DecodeState(state.memories, None, caches, lanes)
        given = tokens.reshape(count, 1, 1), place[:, None], going
        logits, _, after = self._stepper.step(rows, *given)
        pairs = zip(state.pools, after.caches, strict=True)
        pools = [pages.write(table, place, going, cache) for pages, cache in pairs]
        return logits.reshape(*tokens.shape, -1), None, replace(state, pools=pools)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stepper, name)
