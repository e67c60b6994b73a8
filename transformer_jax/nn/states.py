"""The cache of a mixer whose past is a state of constant size, one for each hypothesis."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from transformer_jax.base.arrays import Array, Bool, Int, Size
from transformer_jax.nn.cache import Lanes


@struct.dataclass
class States:
    """The states after each of the last tokens, preceded by the one before them: a Cache.

    This lets a search discard tokens: R - 1 of them with R states, which are those of its last step
    unless it asked to keep more.
    """

    trail: Any  # [B W R ...]
    before: Int[Array, "B"]  # tokens that the first state has read
    now: Int[Array, "B"]  # the index of the current state

    @classmethod
    def of(cls, state: Any, width: Size) -> "States":
        """Return the cache of W hypotheses that all begin with a state [B ...]."""

        def repeated(x: Array) -> Array:
            return jnp.broadcast_to(x[:, None, None], (x.shape[0], width, 2, *x.shape[1:]))

        trail = jax.tree.map(repeated, state)
        zeros = jnp.zeros(jax.tree.leaves(state)[0].shape[0], jnp.int32)
        return cls(trail, zeros, zeros)

    def current(self) -> Any:
        """Return the state [B W ...] after all that was written."""

        def picked(x: Array) -> Array:
            place = self.now.reshape(-1, *(1,) * (x.ndim - 1))
            return jnp.take_along_axis(x, place, axis=2)[:, :, 0]

        return jax.tree.map(picked, self.trail)

    def follow(self, new: Any, active: Bool[Array, "B"]) -> "States":
        """Return the cache after T more tokens, which led to the states `new` [B W T ...].

        It keeps as many states as before, or those of the step if these are more. For inactive
        sentences it does not change; nor do the tokens that they can discard, unless it grows.
        """
        count, steps = self._count, jax.tree.leaves(new)[0].shape[2]
        earlier = max(count, steps + 1) - steps  # states to keep, the current one last
        place = jnp.maximum(self.now[:, None] - jnp.arange(earlier)[None, ::-1], 0)

        def chosen(old: Array, after: Array) -> Array:
            past = jnp.take_along_axis(
                old, place.reshape(-1, 1, earlier, *(1,) * (old.ndim - 3)), 2
            )
            trail = jnp.concatenate([past, after.astype(old.dtype)], axis=2)
            if old.shape != trail.shape:
                old = jnp.broadcast_to(past[:, :, -1:], trail.shape)
            return jnp.where(active.reshape(-1, *(1,) * (trail.ndim - 1)), trail, old)

        written = self.before + self.now
        same = count == steps + earlier
        before, now = (self.before, self.now) if same else (written, 0 * written)
        return States(
            jax.tree.map(chosen, self.trail, new),
            jnp.where(active, written + 1 - earlier, before),
            jnp.where(active, steps + earlier - 1, now),
        )

    def keep(self, tokens: int) -> "States":
        """See Cache; tokens written so far can no longer be discarded."""

        def widened(x: Array) -> Array:
            shape = (*x.shape[:2], tokens + 1, *x.shape[2:])
            return jnp.broadcast_to(x[:, :, None], shape)

        trail, written = jax.tree.map(widened, self.current()), self.before + self.now
        return States(trail, written, 0 * written)

    def part(self, first: Any, size: int) -> Any:
        """See Cache: the state after all that was read."""
        return self.current()

    def with_part(self, first: Any, size: int, part: Any) -> "States":
        """See Cache."""
        memory = States.of(jax.tree.map(lambda x: x[:, 0], part), 1).keep(self._count - 1)
        return States(memory.trail, memory.before + first + size, memory.now)

    def as_prompt(self, lanes: Lanes, reach: int) -> "States":
        """See Cache."""
        state = jax.tree.map(lambda x: x[:, 0], self.current())
        return States.of(state, lanes.seen.shape[1]).keep(reach)

    @property
    def _count(self) -> int:
        return jax.tree.leaves(self.trail)[0].shape[2]

    def grow(self, before: Lanes, after: Lanes) -> "States":
        """See Cache: a state has no slots."""
        return self

    def reorder(self, parents: Int[Array, "B W"]) -> "States":
        """See Cache."""

        def gathered(x: Array) -> Array:
            return jnp.take_along_axis(x, parents.reshape(*parents.shape, *(1,) * (x.ndim - 2)), 1)

        return States(jax.tree.map(gathered, self.trail), self.before, self.now)

    def rewind(self, position: Int[Array, "B"]) -> "States":
        """See Cache; at most to before the last step, or further if more states are kept."""
        now = jnp.clip(position - self.before, 0, self._count - 1)
        return States(self.trail, self.before, now)
