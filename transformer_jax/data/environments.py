"""Environments in which an agent acts: what it sees, and what it is rewarded for.

They have the two methods of Gymnasium's (https://gymnasium.farama.org/api/env), so that its own fit
as they are, and so do those of `data.environment=FILE.py:NAME`.
"""

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, parts


@runtime_checkable
class Environment(Protocol):
    """One place to act in. It may also have:

    best(observation)  the highest return that can be had from the beginning of an episode.
    behaviour(observation, generator)  the action of the agent that generates data; without it, all
      of `action_space` are equally likely.

    A discrete action is a whole number; a continuous one, a vector of numbers from -1 to 1.
    """

    def reset(self, *, seed: int) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, and return the first observation and anything else."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Return the next observation, the reward, whether the episode has ended by itself, whether
        it was cut off, and anything else. If "is_success" is there, episodes succeed or not.
        """


class ShortestPaths:
    """Find the way to the last node of a random directed graph, at a reward of -1 for each step
    (Chen et al. 2021, arXiv:2106.01345, section 3). The observation is the node, the action the
    next one; where no edge leads there, the agent stays. It is over at the goal.
    """

    nodes, probability, most = 20, 0.1, 10

    def __init__(self, seed: int) -> None:
        generator = np.random.default_rng([seed, 0x6E0DE5])
        while True:  # until the goal can be reached from all nodes
            self.edges = generator.random((self.nodes, self.nodes)) < self.probability
            np.fill_diagonal(self.edges, False)
            self.distances = _distances(self.edges, self.goal)
            if (self.distances >= 0).all():
                break
        self.node, self.steps = self.goal, 0

    @property
    def goal(self) -> int:
        """The node to reach."""
        return self.nodes - 1

    def reset(self, *, seed: int) -> tuple[int, dict[str, Any]]:
        """See Environment: at any node but the goal."""
        self.node, self.steps = int(np.random.default_rng(seed).integers(self.goal)), 0
        return self.node, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """See Environment."""
        if self.edges[self.node, action]:
            self.node = int(action)
        self.steps += 1
        arrived, late = self.node == self.goal, self.steps >= self.most
        return self.node, -1.0, arrived, late and not arrived, {"is_success": arrived}

    def behaviour(self, observation: int, generator: np.random.Generator) -> int:
        """See Environment: a random walk."""
        return int(generator.choice(np.flatnonzero(self.edges[observation])))

    def best(self, observation: int) -> float:
        """See Environment: minus the length of the shortest path."""
        return -float(self.distances[observation])


def _distances(edges: np.ndarray, goal: int) -> np.ndarray:
    """Return the length of the shortest path from each node, by breadth-first search; -1: none."""
    distances = np.full(len(edges), -1)
    distances[goal] = 0
    queue = deque([goal])
    while queue:
        node = queue.popleft()
        for before in np.flatnonzero(edges[:, node] & (distances < 0)).tolist():
            distances[before] = distances[node] + 1
            queue.append(before)
    return distances


class Wrapped:
    """An environment with something of ours around it."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def reset(self, *, seed: int) -> tuple[Any, dict[str, Any]]:
        """See Environment."""
        return self._inner.reset(seed=seed)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """See Environment."""
        return self._inner.step(action)


class Varied(Wrapped):
    """An environment with vectors as observations and a finite number of actions, explored by an
    agent that draws a linear map of observations for each episode, and does what has the largest
    value: episodes then differ much more in their returns than those of random actions.
    """

    _map: np.ndarray | None = None

    def reset(self, *, seed: int) -> tuple[Any, dict[str, Any]]:
        """See Environment."""
        self._map = None
        return super().reset(seed=seed)

    def behaviour(self, observation: np.ndarray, generator: np.random.Generator) -> int:
        """See Environment."""
        space = self._inner.action_space
        if self._map is None:
            self._map = generator.normal(size=(space.n, len(observation)))
        return int(space.start + (self._map @ observation).argmax())


class Rescaled(Wrapped):
    """An environment whose actions are vectors, with these brought from -1 to 1 to its bounds."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        low, high = inner.action_space.low, inner.action_space.high
        self._middle, self._half = (high + low) / 2, (high - low) / 2

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """See Environment."""
        return self._inner.step(self._middle + self._half * np.asarray(action, self._half.dtype))

    def behaviour(self, observation: Any, generator: np.random.Generator) -> np.ndarray:
        """See Environment: any action within the bounds."""
        return generator.uniform(-1, 1, self._half.shape)


def _of_gymnasium(config: DataConfig) -> Environment:
    try:
        import gymnasium
    except ImportError:
        raise UserError(
            "config.data.environment='gymnasium': is in the extra `gymnasium`; install it, as in "
            "pip install gymnasium"
        ) from None
    if not config.name:
        raise UserError(
            "config.data.name='': names no environment; set it to one of Gymnasium's, as in "
            "CartPole-v1"
        )
    try:
        made: Any = gymnasium.make(config.name)
    except (gymnasium.error.Error, ImportError) as error:
        raise UserError(f"config.data.name={config.name!r}: {error}") from None
    if hasattr(made.action_space, "n"):
        return Varied(made) if len(made.observation_space.shape or ()) == 1 else made
    if getattr(made.action_space, "shape", None) and np.isfinite(made.action_space.high).all():
        return Rescaled(made)
    raise UserError(
        f"config.data.name={config.name!r}: its actions are {made.action_space}; choose an "
        "environment with a finite number of them, or with vectors between bounds"
    )


ENVIRONMENTS: dict[str, Callable[[DataConfig], Environment] | None] = {
    "none": None,
    "shortest_paths": lambda config: ShortestPaths(config.environment_seed),
    "gymnasium": _of_gymnasium,
}


def opened(config: DataConfig) -> Environment:
    """Return a new environment.

    Raises:
      UserError: if the config names none, or it cannot be made.
    """
    field = "config.data.environment"
    if config.environment == "none":
        raise UserError(
            f"{field}='none': there is nothing to act in; choose one, such as 'shortest_paths'"
        )
    make = ENVIRONMENTS.get(config.environment)
    if make is not None:
        return make(config)
    made: Any = parts.resolve(config.environment, field)()
    if not isinstance(made, Environment):
        raise UserError(
            f"{field}={config.environment!r}: returns {made!r:.60}, which lacks `reset` or `step`; "
            "give it both, as Gymnasium's environments have"
        )
    return made


def random_action(
    environment: Environment, observation: Any, generator: np.random.Generator
) -> Any:
    """Return the action of the agent that generates data.

    Raises:
      UserError: if the environment says neither how it behaves nor how many actions there are.
    """
    behaviour = getattr(environment, "behaviour", None)
    with contextlib.suppress(AttributeError):  # a wrapper of Gymnasium's may look for it further in
        if behaviour is not None:
            return behaviour(observation, generator)
    space: Any = getattr(environment, "action_space", None)
    if not hasattr(space, "n"):
        raise UserError(
            "config.data.environment: has neither a method behaviour(observation, generator) nor "
            "an action_space with a number of actions, n; add one of them"
        )
    return int(generator.integers(space.n)) + int(getattr(space, "start", 0))
