"""States of an agent, with the time and the return still to come at each step."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from transformer_jax.base.disk import user_path
from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, SourceConfig
from transformer_jax.config.choices.codecs import CODECS
from transformer_jax.data.batches.batch import Read
from transformer_jax.data.codecs.codec import Kind, VectorCodec, hashed
from transformer_jax.data.random import Draw
from transformer_jax.data.sources.trajectories import History, Steps, returns_of

TIME, RETURN, STATE = 0, 1, 2  # columns of what a model reads; from STATE on, the state


class States(VectorCodec):
    """A trajectory [steps 1 + C] of rewards and states becomes a vector for each step: its number,
    the sum of the rewards from it on over the largest of training, and the state. States of numbers
    are standardised; one of a finite number is read as a vector with a 1 in its place.
    """

    file = "states{}.json"
    noun = CODECS["states"].noun
    endings = (".json",)
    stored = np.dtype(np.float32)

    def __init__(self, model: bytes) -> None:
        self.model = model
        fields = _read(model)
        self.count: int | None = fields["count"]  # of discrete states
        self.mean, self.deviation = (np.array(fields[x]) for x in ("mean", "deviation"))
        self.return_scale = float(fields["return_scale"])
        self.returns: tuple[float, float] = tuple(fields["returns"])  # the lowest and the highest
        self.channels = STATE + len(self.mean)
        self.size = STATE + (self.count or len(self.mean))

    @property
    def digest(self) -> str:
        """A hash of the model's bytes."""
        return hashed(self.model)

    def encode(
        self, values: Sequence[np.ndarray], bos: bool = False, eos: bool = True
    ) -> list[np.ndarray]:
        """Return the stored vectors of each trajectory, float32 [steps C].

        Raises:
          UserError: if a state is of another kind or size than those of training, or unknown.
        """
        return [self._encoded(steps, number) for number, steps in enumerate(values, 1)]

    def _encoded(self, steps: np.ndarray, number: int) -> np.ndarray:
        rewards, states = np.asarray(steps[:, 0]), np.asarray(steps[:, 1:])
        self.check(states, getattr(steps, "discrete", False), f"trajectory {number}")
        ahead = np.cumsum(rewards[::-1])[::-1]
        return self.vectors(np.arange(len(steps)), ahead, states)

    def vectors(self, times: np.ndarray, returns: np.ndarray, states: np.ndarray) -> np.ndarray:
        """Return the stored vectors of steps, float32 [steps C], from states [steps C']."""
        scaled = (states - self.mean) / self.deviation
        columns = times[:, None], returns[:, None] / self.return_scale, scaled
        return np.concatenate(columns, 1).astype(np.float32)

    def check(self, states: np.ndarray, discrete: bool, name: str) -> None:
        """Check that states [steps C'] are such as those of training; `name` is for messages.

        Raises:
          UserError: if they are not.
        """
        if discrete != (self.count is not None) or states.shape[1] != len(self.mean):
            ours, theirs = (
                "whole numbers" if one else f"vectors of {count} numbers"
                for one, count in ((self.count, len(self.mean)), (discrete, states.shape[1]))
            )
            raise UserError(f"{name}: its states are {theirs}, and those of training {ours}")
        if self.count is not None and states.max(initial=0) >= self.count:
            step = int(states[:, 0].argmax())
            raise UserError(
                f"{name}: the state of step {step} is {int(states[step, 0])}; those of training "
                f"are 0 to {self.count - 1}"
            )

    def open(self, path: str) -> History:
        """See VectorCodec: a history in JSON, to act after."""
        try:
            return self.opened(user_path(path).read_bytes(), path)
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror})") from None

    def opened(self, content: bytes, name: str) -> History:
        """See VectorCodec."""
        try:
            given = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{name}: is not JSON ({error})") from None
        return History.of(given, name)

    def is_one(self, given: Any) -> bool:
        """See VectorCodec: a file, or a history."""
        return super().is_one(given) or isinstance(given, dict | History)

    def prepared(self, given: Any, name: str, config: DataConfig) -> History:
        """See VectorCodec."""
        given = super().prepared(given, name, config)
        return given if isinstance(given, History) else History.of(given, name)

    def reader(self, config: DataConfig | None = None) -> Read:
        """See VectorCodec: a discrete state becomes a vector with a 1 in its place."""

        def read(
            vectors: np.ndarray, lengths: np.ndarray, numbers: np.ndarray, draw: Draw
        ) -> np.ndarray:
            if self.count is None:
                return vectors
            one = np.arange(self.count) == vectors[:, STATE:]
            return np.concatenate([vectors[:, :STATE], one.astype(np.float32)], 1)

        return read


def _read(model: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(model)
        mean, deviation = (np.array(fields[x], np.float64) for x in ("mean", "deviation"))
        numbers = [*mean, *deviation, fields["return_scale"], *fields["returns"]]
        whole = fields["count"] is None or (fields["count"] > 0 and len(mean) == 1)
        if (
            mean.ndim == 1 and mean.shape == deviation.shape and mean.size and whole
            and np.isfinite(numbers).all() and (deviation > 0).all() and len(fields["returns"]) == 2
            and fields["return_scale"] > 0
        ):  # fmt: skip
            return fields
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    raise ValueError("not the scale of states")


def train(source: SourceConfig, values: Sequence[Steps]) -> States:
    """Return the codec with the scale of all training steps; `source` is ignored. A number that is
    the same in all of them is read as 0.

    Raises:
      UserError: if trajectories differ in kind or size of their states.
    """
    first = values[0]
    for number, steps in enumerate(values, 1):
        if steps.discrete != first.discrete or steps.shape[1] != first.shape[1]:
            kinds = [
                "whole numbers" if x.discrete else f"vectors of {x.shape[1] - 1}"
                for x in (steps, first)
            ]
            raise UserError(
                f"config.data.train: the states of trajectory {number} are {kinds[0]}, those of "
                f"the first {kinds[1]}; all must be of one kind"
            )
    states = np.concatenate([np.asarray(steps[:, 1:]) for steps in values])
    ahead = [np.abs(np.cumsum(np.asarray(x[::-1, 0]))).max() for x in values]
    returns = returns_of(values)
    fields = {
        "count": int(states.max()) + 1 if first.discrete else None,
        "mean": [0.0] if first.discrete else states.mean(0).tolist(),
        "deviation": [1.0] if first.discrete else _deviation(states).tolist(),
        "return_scale": float(max(ahead)) or 1.0,
        "returns": [float(returns.min()), float(returns.max())],
    }
    return States(json.dumps(fields).encode())


def _deviation(states: np.ndarray) -> np.ndarray:
    """Return the standard deviation of each number, 1 where it is constant."""
    deviation = states.std(0)
    constant = (states == states[0]).all(0) | (deviation == 0)  # rounding may leave a deviation
    return np.where(constant, 1.0, deviation)


WORDS = {"states": Kind(States, train, "the scale of states", vectors=True)}
