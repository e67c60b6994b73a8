"""The interface of models to training, scoring and search."""

from collections.abc import Hashable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from transformer_jax.base.arrays import Array, Bool, Float, Int
from transformer_jax.config import ModelConfig
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.nn.embedding import Head, Shortlist


class Output(NamedTuple):
    """One prediction of a model: hidden states, and the map to logits, which the loss applies."""

    hidden: Float[Array, "B T D"]
    head: Head | Shortlist

    def logits(self) -> Float[Array, "B T V"]:
        """Return the logits, at least in float32."""
        return self.head.logits(self.hidden)


class Pointed(Output):
    """An Output with logits in place of hidden states: over the positions of the source, [B T S],
    the input of CTC, [B S V], or moves, [B T C], without a head.
    """

    def logits(self) -> Float[Array, "B T S"]:
        """Return the logits, at least in float32; those of other segments are very low."""
        return self.hidden


@runtime_checkable
class Stepper(Protocol):
    """A model as a search sees it.

    The state is any pytree of arrays whose first axis counts sentences, so that its holder can
    replace some sentences by others.
    """

    def context(self, side: Side) -> Batch:
        """Return the input of `start`, from the side that is read before generation."""

    def start(
        self, batch: Batch, width: int, length: int, reach: int = 1,
        shortlist: Int[Array | np.ndarray, "B K"] | None = None,
    ) -> Any:  # fmt: skip
        """Return the state for `width` hypotheses per sentence, of up to `length` tokens each.

        `batch.src`, if any, is the encoder's input; `batch.tgt`, if any, is a prompt shared by all
        hypotheses of a sentence. `rewind` reaches back `reach` tokens. With a shortlist for each
        sentence, steps return logits of its pieces only, in its order.
        """

    def step(
        self, state: Any, tokens: Int[Array, "B W T"], positions: Int[Array, "B T"],
        active: Bool[Array, "B"],
    ) -> tuple[Float[Array, "B W T V"], Any, Any]:  # fmt: skip
        """Return the logits after each token, cross-attention by layer or None, the new state.

        Positions count from the end of the prompt. Tokens at positions beyond the capacity are
        dropped, and their logits are meaningless; the state of an inactive sentence does not
        change.
        """

    def reorder(self, state: Any, parents: Int[Array, "B W"]) -> Any:
        """Return the state in which hypothesis w continues hypothesis parents[w]."""

    def rewind(self, state: Any, position: Int[Array, "B"]) -> Any:
        """Return the state without the tokens from a position onwards, within the last step or the
        last `reach` tokens, as given to `start`.
        """

    def grow(self, state: Any, src_length: int, length: int) -> Any:
        """Return the state with room for sources of `src_length` and `length` tokens in all."""


class Keys(NamedTuple):
    """The random keys of a training step."""

    dropout: Array  # new at each step
    features: Array  # for random features: new every `model.redraw_every` steps


@runtime_checkable
class Model(Hashable, Protocol):
    """A model without parameters, which are passed in. Equal models share programs."""

    config: ModelConfig

    def example(self) -> Batch:
        """Return a batch of minimal size, from which initialisation takes shapes."""

    def init(self, rngs: Any, *args: Any, **kwargs: Any) -> Any:
        """Return fresh variables, {"params": ...}, from a key, a batch and train=False."""

    def outputs(self, params: Any, batch: Batch, keys: Keys | None) -> dict[str, Output]:
        """Return predictions by the names of `batch.targets`; with keys, in training mode."""

    def stepper(self, params: Any) -> Stepper | None:
        """Return the model as a search sees it, or None if it generates nothing."""
