"""What training, scoring and search know of any model."""

from collections.abc import Hashable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from transformer_jax.arrays import Array, Bool, Float, Int
from transformer_jax.config import ModelConfig
from transformer_jax.data.batch import Batch, Side
from transformer_jax.nn.embedding import Head, Shortlist


class Output(NamedTuple):
    """One thing that a model predicts: hidden states, and the map to logits, left to the loss."""

    hidden: Float[Array, "B T D"]
    head: Head | Shortlist

    def logits(self) -> Float[Array, "B T V"]:
        """Return the logits, at least in float32."""
        return self.head.logits(self.hidden)


class Pointed(Output):
    """What has logits for hidden states: a choice among the places of the source, [B T S], or what
    CTC reads, [B S V].
    """

    def logits(self) -> Float[Array, "B T S"]:
        """Return the logits, at least in float32; those of other segments are very low."""
        return self.hidden


@runtime_checkable
class Stepper(Protocol):
    """A model as a search sees it.

    The state is any pytree of arrays whose first axis counts sentences, so that whoever holds one
    can take sentences out of it and put others in their place.
    """

    def context(self, side: Side) -> Batch:
        """Return what `start` takes, of what is read before anything is written."""

    def start(
        self, batch: Batch, width: int, length: int, reach: int = 1,
        shortlist: Int[Array | np.ndarray, "B K"] | None = None,
    ) -> Any:  # fmt: skip
        """Return the state for `width` hypotheses a sentence of up to `length` tokens.

        `batch.src`, where there is one, is what the encoder reads; `batch.tgt`, where there is one,
        is a prompt that all hypotheses of a sentence share. `rewind` reaches over `reach` tokens.
        With a shortlist of each sentence, the logits of steps are of its pieces alone, in its
        order.
        """

    def step(
        self, state: Any, tokens: Int[Array, "B W T"], positions: Int[Array, "B T"],
        active: Bool[Array, "B"],
    ) -> tuple[Float[Array, "B W T V"], Any, Any]:  # fmt: skip
        """Return the logits after each token, cross-attention by layer or None, the new state.

        Positions count from the end of the prompt. What is written at one beyond the room is lost,
        and its logits mean nothing; the state of a sentence that is not active does not change.
        """

    def reorder(self, state: Any, parents: Int[Array, "B W"]) -> Any:
        """Return the state in which hypothesis w continues hypothesis parents[w]."""

    def rewind(self, state: Any, position: Int[Array, "B"]) -> Any:
        """Return the state without the tokens from a position on, of the last step or of the last
        `reach` ones that `start` was asked for.
        """

    def grow(self, state: Any, src_length: int, length: int) -> Any:
        """Return the state with room for sources of `src_length` and `length` tokens in all."""


class Keys(NamedTuple):
    """What is random in a training step."""

    dropout: Array  # another one each step
    features: Array  # of random features: another one each `model.redraw_every` steps


@runtime_checkable
class Model(Hashable, Protocol):
    """Parameters come in from outside; nothing here holds any. Equal models share programs."""

    config: ModelConfig

    def example(self) -> Batch:
        """Return a batch of the smallest size, from which initialisation takes shapes."""

    def init(self, rngs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return fresh variables, {"params": ...}, of a key, a batch and train=False."""

    def outputs(self, params: Any, batch: Batch, keys: Keys | None) -> dict[str, Output]:
        """Return what is predicted, by the names of `batch.targets`; with keys, as in training."""

    def stepper(self, params: Any) -> Stepper | None:
        """Return the model as a search sees it, or None if it writes nothing."""
