"""Several models as one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Bool, Float, Int, at_least_float32
from transformer_jax.data.batch import Batch
from transformer_jax.models.model import Stepper


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

    def start(self, batch: Batch, width: int, length: int) -> tuple:
        """See Stepper."""
        return tuple(stepper.start(batch, width, length) for stepper in self.steppers)

    def step(
        self, state: tuple, tokens: Int[Array, "B W T"], positions: Int[Array, "B T"],
        active: Bool[Array, "B"],
    ):  # fmt: skip
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
