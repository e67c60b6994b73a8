"""The interface of mixers and their caches."""

from typing import Any, Protocol, runtime_checkable

from transformer_jax.base.arrays import Array, Bool, Float, Int
from transformer_jax.nn.cache import Lanes, Slots
from transformer_jax.nn.view import View


@runtime_checkable
class Cache(Protocol):
    """A mixer's memory of the past, per sentence and, if needed, per hypothesis: a pytree."""

    def grow(self, before: Lanes, after: Lanes) -> "Cache":
        """Return the cache with room for the slots that the lanes now have."""

    def reorder(self, parents: Int[Array, "B W"]) -> "Cache":
        """Let hypothesis w continue hypothesis parents[w], unless the lanes record that already."""

    def rewind(self, position: Int[Array, "B"]) -> "Cache":
        """Discard tokens from a position onwards, unless the lanes record that already."""

    def keep(self, tokens: int) -> "Cache":
        """Return the cache with the room needed to discard that many future tokens."""

    # For one sentence with one hypothesis, which reads a prompt part by part:

    def part(self, first: Any, size: int) -> Any:
        """Return what it keeps of the last `size` tokens that it read, from position `first` on."""

    def with_part(self, first: Any, size: int, part: Any) -> "Cache":
        """Return the cache as if it had read these tokens, of which it kept that part."""

    def as_prompt(self, lanes: Lanes, reach: int) -> "Cache":
        """Return the cache of lanes whose prompt is what it read; for `reach`, see `keep`."""


@runtime_checkable
class Mixer(Protocol):
    """Mixes values along a sequence: attention of any kind, or a recurrence.

    Weights are attention weights [B N T S], or None if a mixer has none. A mixer that stores
    nothing in the slots of lanes may say so with an attribute, `in_slots = False`.
    """

    def mix(
        self, x: Float[Array, "B T D"], view: View, train: bool
    ) -> tuple[Float[Array, "B T D"], Array | None]:
        """Return the output for whole sequences, and the weights."""

    def empty(self, lanes: Lanes) -> Cache:
        """Return an empty cache."""

    def extend(
        self, x: Float[Array, "B Q D"], cache: Any, slots: Slots, active: Bool[Array, "B"]
    ) -> tuple[Float[Array, "B Q D"], Array | None, Cache]:
        """Return the output for new tokens given the past, the weights, and the new cache.

        The cache of an inactive sentence does not change.
        """
