"""The methods through which every search sees every model."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Bool, Float, Int, at_least_float32
from transformer_jax.data.batch import Batch


@runtime_checkable
class Stepper(Protocol):
    """A model, as far as a search is concerned.

    The state is any pytree of arrays whose first axis counts sentences, so that whoever holds one
    can take sentences out of it and put others in their place.
    """

    def start(self, src_ids: Int[Array, "B S"], width: int, length: int) -> Any:
        """Return the state for `width` hypotheses a sentence of up to `length` tokens."""

    def step(
        self,
        state: Any,
        tokens: Int[Array, "B W T"],
        positions: Int[Array, "B T"],
        active: Bool[Array, "B"],
    ) -> tuple[Float[Array, "B W T V"], list[Array] | None, Any]:
        """Return the logits after each token, cross-attention by layer, and the new state.

        The state of sentences that are not active stays as it is, and their logits mean nothing.
        Attention is None if the model has none.
        """

    def reorder(self, state: Any, parents: Int[Array, "B W"]) -> Any:
        """Return the state in which hypothesis w continues hypothesis parents[w]."""

    def rewind(self, state: Any, position: Int[Array, "B"]) -> Any:
        """Return the state without the tokens from a position on."""

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

    def log_probs(self, params: Any, batch: Batch) -> Float[Array, "B T V"]:
        """Return the log-probability of every piece after each piece of the targets."""


def has_attention(model: Model, params: Any) -> bool:
    """Whether the model's steps return attention; found out without computing anything."""
    return _attention.eval_shape(model, params) is not None


@functools.partial(jax.jit, static_argnums=0)
def _attention(model: Model, params: Any) -> Any:
    stepper = model.stepper(params)
    one = jnp.ones((1, 1), jnp.int32)
    return stepper.step(stepper.start(one, 1, 1), one[None], one - 1, jnp.ones(1, bool))[1]


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

    def step(
        self,
        state: tuple,
        tokens: Int[Array, "B W T"],
        positions: Int[Array, "B T"],
        active: Bool[Array, "B"],
    ):
        """See Stepper."""
        pairs = zip(self.steppers, state, strict=True)
        logits, attention, new = zip(
            *(stepper.step(mine, tokens, positions, active) for stepper, mine in pairs), strict=True
        )
        log_probs = jnp.stack([jax.nn.log_softmax(at_least_float32(x)) for x in logits])
        return self.mean(log_probs), attention[0], new

    def reorder(self, state: tuple, parents: Int[Array, "B W"]) -> tuple:
        """See Stepper."""
        pairs = zip(self.steppers, state, strict=True)
        return tuple(stepper.reorder(mine, parents) for stepper, mine in pairs)

    def rewind(self, state: tuple, position: Int[Array, "B"]) -> tuple:
        """See Stepper."""
        pairs = zip(self.steppers, state, strict=True)
        return tuple(stepper.rewind(mine, position) for stepper, mine in pairs)

    def grow(self, state: tuple, src_length: int, length: int) -> tuple:
        """See Stepper."""
        pairs = zip(self.steppers, state, strict=True)
        return tuple(stepper.grow(mine, src_length, length) for stepper, mine in pairs)
