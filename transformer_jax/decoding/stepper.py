"""The methods through which every search sees every model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Float, Int, at_least_float32


@runtime_checkable
class Stepper(Protocol):
    """A model, as far as a search is concerned.

    The state is any pytree of arrays whose first axis counts sentences, so that whoever holds one
    can take sentences out of it and put others in their place.
    """

    def start(self, src_ids: Int[Array, "B S"], width: int, length: int) -> Any:
        """Return the state for `width` hypotheses a sentence of up to `length` tokens."""

    def step(
        self, state: Any, tokens: Int[Array, "B W T"], positions: Int[Array, "B T"]
    ) -> tuple[Float[Array, "B W T V"], Any, Any]:
        """Return the logits after each token, attention weights, and the new state.

        What is written at a position beyond the room is lost, and its logits mean nothing.
        """

    def reorder(self, state: Any, parents: Int[Array, "B W"]) -> Any:
        """Return the state in which hypothesis w continues hypothesis parents[w]."""

    def grow(self, state: Any, src_length: int, length: int) -> Any:
        """Return the state with room for sources of `src_length` and `length` tokens in all."""


@runtime_checkable
class Model(Protocol):
    """What a Translator needs of a model. Equal ones share compiled programs, so it is hashable."""

    @property
    def position_limit(self) -> int | None:
        """Most positions of a side; None: any number."""

    def stepper(self, params: Any) -> Stepper:
        """Return what a search sees of the model."""


def mean_of_probabilities(log_probs: Float[Array, "K B W T V"]) -> Float[Array, "B W T V"]:
    """Return the logarithm of the mean probability."""
    return jax.nn.logsumexp(log_probs, axis=0) - jnp.log(len(log_probs))


def mean_of_log_probabilities(log_probs: Float[Array, "K B W T V"]) -> Float[Array, "B W T V"]:
    """Return the mean log-probability; the search normalises it."""
    return log_probs.mean(0)


ENSEMBLES = {
    "probabilities": mean_of_probabilities,
    "log_probabilities": mean_of_log_probabilities,
}


@dataclass(frozen=True)
class Ensemble:
    """Several models as one; attention is that of the first."""

    steppers: Sequence[Stepper]
    mean: Any  # of ENSEMBLES

    def start(self, src_ids: Int[Array, "B S"], width: int, length: int) -> tuple:
        """See Stepper."""
        return tuple(stepper.start(src_ids, width, length) for stepper in self.steppers)

    def step(self, state: tuple, tokens: Int[Array, "B W T"], positions: Int[Array, "B T"]):
        """See Stepper."""
        pairs = zip(self.steppers, state, strict=True)
        logits, attention, new = zip(
            *(stepper.step(mine, tokens, positions) for stepper, mine in pairs), strict=True
        )
        log_probs = jnp.stack([jax.nn.log_softmax(at_least_float32(x)) for x in logits])
        return self.mean(log_probs), attention[0], new

    def reorder(self, state: tuple, parents: Int[Array, "B W"]) -> tuple:
        """See Stepper."""
        pairs = zip(self.steppers, state, strict=True)
        return tuple(stepper.reorder(mine, parents) for stepper, mine in pairs)

    def grow(self, state: tuple, src_length: int, length: int) -> tuple:
        """See Stepper."""
        pairs = zip(self.steppers, state, strict=True)
        return tuple(stepper.grow(mine, src_length, length) for stepper, mine in pairs)
