"""Steppers for search: of one model or an ensemble, with or without attention or a draft."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from flax import struct

from transformer_jax.base.arrays import Array, Bool, Float, Int, at_least_float32
from transformer_jax.base.errors import UserError
from transformer_jax.data.batches.batch import Side
from transformer_jax.models.model import Model, Stepper

NO_LIMIT = 1 << 30  # positions of models without a limit


def has_attention(model: Model, params: Any) -> bool:
    """Return whether the model's steps return attention, without computing anything."""
    return _attention.eval_shape(model, params) is not None


@functools.partial(jax.jit, static_argnums=0)
def _attention(model: Model, params: Any) -> Any:
    stepper, one = stepper_of(model, params), jnp.ones((1, 1), jnp.int32)
    state = stepper.start(stepper.context(Side(one, one - 1, one)), 1, 1)
    return stepper.step(state, one[None], one - 1, jnp.ones(1, bool))[1]


def stepper_of(model: Model, params: Any) -> Stepper:
    """Return the model's Stepper.

    Raises:
      UserError: if the model writes no text.
    """
    stepper = model.stepper(params)
    if stepper is None:
        name = model.config.architecture
        raise UserError(f"config.model.architecture={name!r}: such a model writes no text")
    return stepper


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
    """An ensemble of models, each of which reads the source in its own way; attention is that of
    the first.
    """

    steppers: Sequence[Stepper]
    mean: Any  # of ENSEMBLES

    def context(self, side: Side) -> Any:
        """See Stepper."""
        return tuple(stepper.context(side) for stepper in self.steppers)

    def start(
        self, batch: Any, width: int, length: int, reach: int = 1, shortlist: Any = None
    ) -> tuple:
        """See Stepper."""
        sizes, pairs = (width, length, reach, shortlist), zip(self.steppers, batch, strict=True)
        return tuple(stepper.start(mine, *sizes) for stepper, mine in pairs)

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


@struct.dataclass
class DraftedState:
    """The states of the model and its draft."""

    model: Any
    draft: Any


@dataclass(frozen=True)
class Drafted:
    """A model and a smaller draft model, which the search steps by itself.

    Both rewind together; each reads the source or the prompt for itself, the draft at most the
    first `reads` positions of it.
    """

    model: Stepper
    draft: Stepper
    reads: int = NO_LIMIT

    def context(self, side: Side) -> Any:
        """See Stepper."""
        beginning = jax.tree.map(lambda x: x[:, : self.reads], side)
        return self.model.context(side), self.draft.context(beginning)

    def start(
        self, batch: Any, width: int, length: int, reach: int = 1, shortlist: Any = None
    ) -> DraftedState:
        """See Stepper."""
        one, other = batch
        sizes = width, length, reach, shortlist
        return DraftedState(self.model.start(one, *sizes), self.draft.start(other, *sizes))

    def step(
        self,
        state: DraftedState,
        tokens: Int[Array, "B W T"],
        positions: Int[Array, "B T"],
        active: Bool[Array, "B"],
    ):
        """See Stepper: a step of the model alone."""
        *outputs, model = self.model.step(state.model, tokens, positions, active)
        return *outputs, replace(state, model=model)

    def reorder(self, state: DraftedState, parents: Int[Array, "B W"]) -> DraftedState:
        """See Stepper."""
        model, draft = self.model, self.draft
        return DraftedState(
            model.reorder(state.model, parents), draft.reorder(state.draft, parents)
        )

    def rewind(self, state: DraftedState, position: Int[Array, "B"]) -> DraftedState:
        """See Stepper."""
        model, draft = self.model, self.draft
        return DraftedState(
            model.rewind(state.model, position), draft.rewind(state.draft, position)
        )

    def grow(self, state: DraftedState, src_length: int, length: int) -> DraftedState:
        """See Stepper."""
        return DraftedState(
            self.model.grow(state.model, src_length, length),
            self.draft.grow(state.draft, min(src_length, self.reads), length),
        )
