"""The methods through which every search sees every model."""

from typing import Any, Protocol, runtime_checkable

from transformer_jax.arrays import Array, Float, Int


@runtime_checkable
class Stepper(Protocol):
    """A model, as far as a search is concerned. The state is any pytree."""

    def start(self, src_ids: Int[Array, "B S"], width: int, length: int) -> Any:
        """Return the state for `width` hypotheses a sentence of up to `length` tokens."""

    def step(
        self, state: Any, tokens: Int[Array, "B W T"], positions: Int[Array, "B T"]
    ) -> tuple[Float[Array, "B W T V"], Any, Any]:
        """Return the logits after each token, attention weights, and the new state."""

    def reorder(self, state: Any, parents: Int[Array, "B W"]) -> Any:
        """Return the state in which hypothesis w continues hypothesis parents[w]."""

    def grow(self, state: Any, length: int) -> Any:
        """Return the state with room for `length` tokens in all."""


def rooms(src_length: int, length: int) -> list[int]:
    """Return the room for tokens to search with, one after another, up to `length`.

    Every step reads the whole cache, filled or not, and most outputs are about as long as their
    source; so a search starts with room for that, and makes more only if it has to.
    """
    first = -(-(src_length + src_length // 4 + 2) // 8) * 8
    return [first, length] if first < length else [length]
