"""What a layer knows of any mixer."""

from typing import Any, Protocol, runtime_checkable

from transformer_jax.arrays import Array, Bool, Float, Int
from transformer_jax.nn.cache import Lanes, Slots
from transformer_jax.nn.view import View


@runtime_checkable
class Cache(Protocol):
    """What a mixer keeps of the past, per sentence and, where it must, per hypothesis: a pytree."""

    def grow(self, before: Lanes, after: Lanes) -> "Cache":
        """Return the same with room for the slots that the lanes have now."""

    def reorder(self, parents: Int[Array, "B W"]) -> "Cache":
        """Let hypothesis w continue hypothesis parents[w], unless the lanes say so already."""

    def rewind(self, position: Int[Array, "B"]) -> "Cache":
        """Forget what was written from a position on, unless the lanes say so already."""

    def keep(self, tokens: int) -> "Cache":
        """Return the same with room for what it takes to forget so many of the tokens to come."""

    # Of one sentence with one hypothesis, which reads a prompt part by part:

    def part(self, first: Any, size: int) -> Any:
        """Return what it keeps of so many tokens from a position on, the last that it read."""

    def with_part(self, first: Any, size: int, part: Any) -> "Cache":
        """Return the same as if it had read these tokens, of which it kept that part."""

    def as_prompt(self, lanes: Lanes, reach: int) -> "Cache":
        """Return the cache of lanes that have what it read as their prompt; see `keep`."""


@runtime_checkable
class Mixer(Protocol):
    """Mixes values along a sequence: attention of any kind, or a recurrence.

    Weights are attention [B N T S], or None where a mixer has none. One whose memory has nothing in
    the slots of lanes may say so by an attribute, `in_slots = False`.
    """

    def mix(
        self, x: Float[Array, "B T D"], view: View, train: bool
    ) -> tuple[Float[Array, "B T D"], Array | None]:
        """Return what whole sequences make of themselves, and the weights."""

    def empty(self, lanes: Lanes) -> Cache:
        """Return the memory of nothing."""

    def extend(
        self, x: Float[Array, "B Q D"], cache: Any, slots: Slots, active: Bool[Array, "B"]
    ) -> tuple[Float[Array, "B Q D"], Array | None, Cache]:
        """Return what new tokens make of themselves and the past, the weights, the new memory.

        The memory of a sentence that is not active does not change.
        """
