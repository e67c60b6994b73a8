"""The memory of a mixer whose past is a state of constant size: each hypothesis has its own."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from transformer_jax.arrays import Array, Bool, Int, Size
from transformer_jax.nn.cache import Lanes


@struct.dataclass
class States:
    """The states that the last step went through, the one before it first: a Cache.

    So a search may take back tokens of its last step. With R states, a step was of R - 1 tokens.
    """

    trail: Any  # [B W R ...]
    before: Int[Array, "B"]  # tokens that were written before the last step
    now: Int[Array, "B"]  # how many of that step count

    @classmethod
    def of(cls, state: Any, width: Size) -> "States":
        """Return the memory of W hypotheses that all begin with a state [B ...]."""

        def repeated(x: Array) -> Array:
            return jnp.broadcast_to(x[:, None, None], (x.shape[0], width, 2, *x.shape[1:]))

        trail = jax.tree.map(repeated, state)
        zeros = jnp.zeros(jax.tree.leaves(state)[0].shape[0], jnp.int32)
        return cls(trail, zeros, zeros)

    def current(self) -> Any:
        """Return the state [B W ...] behind all that was written."""

        def picked(x: Array) -> Array:
            place = self.now.reshape(-1, *(1,) * (x.ndim - 1))
            return jnp.take_along_axis(x, place, axis=2)[:, :, 0]

        return jax.tree.map(picked, self.trail)

    def follow(self, new: Any, active: Bool[Array, "B"]) -> "States":
        """Return the memory behind T more tokens, which led to the states `new` [B W T ...].

        Of sentences that are not active it stays as it is; what they may take back, too, if T is
        what it was in the step before.
        """

        def chosen(current: Array, after: Array, old: Array) -> Array:
            trail = jnp.concatenate([current[:, :, None], after.astype(current.dtype)], axis=2)
            if old.shape != trail.shape:
                old = jnp.broadcast_to(current[:, :, None], trail.shape)
            return jnp.where(active.reshape(-1, *(1,) * (trail.ndim - 1)), trail, old)

        steps = jax.tree.leaves(new)[0].shape[2]
        same = steps + 1 == jax.tree.leaves(self.trail)[0].shape[2]
        written = self.before + self.now
        before, now = (self.before, self.now) if same else (written, 0 * written)
        trail = jax.tree.map(chosen, self.current(), new, self.trail)
        return States(trail, jnp.where(active, written, before), jnp.where(active, steps, now))

    def grow(self, before: Lanes, after: Lanes) -> "States":
        """See Cache: a state has no slots."""
        return self

    def reorder(self, parents: Int[Array, "B W"]) -> "States":
        """See Cache."""

        def gathered(x: Array) -> Array:
            return jnp.take_along_axis(x, parents.reshape(*parents.shape, *(1,) * (x.ndim - 2)), 1)

        return States(jax.tree.map(gathered, self.trail), self.before, self.now)

    def rewind(self, position: Int[Array, "B"]) -> "States":
        """See Cache; no further than to before the last step."""
        steps = jax.tree.leaves(self.trail)[0].shape[2] - 1
        return States(self.trail, self.before, jnp.clip(position - self.before, 0, steps))
