"""Rewards of answers that can be checked."""

from collections.abc import Callable, Sequence

from transformer_jax.config.registry import pick
from transformer_jax.data.conversations import Message

# Of the messages before an answer, the answer, and the one wanted: what it earns.
Reward = Callable[[Sequence[Message], str, str], float]


def exact_match(messages: Sequence[Message], answer: str, wanted: str) -> float:
    """Return 1 if the answer is the one wanted, whatever the spaces between and around words."""
    return float(answer.split() == wanted.split())


def contains(messages: Sequence[Message], answer: str, wanted: str) -> float:
    """Return 1 if the words of the one wanted follow one another in the answer."""
    return float(f" {' '.join(wanted.split())} " in f" {' '.join(answer.split())} ")


REWARDS: dict[str, Reward] = {"exact_match": exact_match, "contains": contains}


def reward_named(name: str) -> Reward:
    """Return an entry of the table, or a user-defined part."""
    return pick(REWARDS, name, "config.objective.reward")
