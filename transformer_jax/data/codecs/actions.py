"""Continuous actions of an agent: vectors of numbers from -1 to 1."""

import json
from collections.abc import Sequence

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import SourceConfig
from transformer_jax.config.choices.codecs import CODECS
from transformer_jax.data.codecs.codec import Kind, VectorCodec, hashed

_DISCRETE = (
    "are one of a finite number each; choose tgt.codec='labels' and model.actions='discrete'"
)


class Actions(VectorCodec):
    """The actions of a trajectory, [steps A], are stored and read as they are."""

    file = "actions{}.json"
    noun = CODECS["actions"].noun
    stored = np.dtype(np.float32)

    def __init__(self, model: bytes) -> None:
        self.model = model
        self.size = self.channels = _read(model)

    @property
    def digest(self) -> str:
        """A hash of the model's bytes."""
        return hashed(self.model)

    def encode(
        self, values: Sequence[np.ndarray], bos: bool = False, eos: bool = True
    ) -> list[np.ndarray]:
        """Return each trajectory's actions, float32 [steps A].

        Raises:
          UserError: if they are of another kind or size than those of training.
        """
        for number, actions in enumerate(values, 1):
            if isinstance(actions, str):
                raise UserError(f"trajectory {number}: its actions {_DISCRETE}")
            if actions.shape[1] != self.channels:
                raise UserError(
                    f"trajectory {number}: its actions have {actions.shape[1]} numbers, and those "
                    f"of training {self.channels}"
                )
        return [actions.astype(np.float32) for actions in values]


def _read(model: bytes) -> int:
    try:
        size = json.loads(model)["size"]
        if isinstance(size, int) and size > 0:
            return size
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise ValueError("not the size of actions")


def train(source: SourceConfig, values: Sequence[np.ndarray]) -> Actions:
    """Return the codec of actions of this size; `source` is ignored.

    Raises:
      UserError: if they are discrete.
    """
    if isinstance(values[0], str):
        raise UserError(f"config.data.train: actions {_DISCRETE}")
    return Actions(json.dumps({"size": values[0].shape[1]}).encode())


WORDS = {"actions": Kind(Actions, train, "the size of actions", vectors=True)}
