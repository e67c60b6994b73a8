"""Conversations about numbers in words: an assistant reads, writes, adds and compares them, and
refuses what it cannot do. Every answer can be checked.
"""

import json
import zlib
from collections.abc import Sequence
from functools import cache

import numpy as np

from transformer_jax.config import DataConfig
from transformer_jax.data.sources.spelled_numbers import SPLITS, spell

_SEED = 20221130  # the conversations are the same for every experiment
_HELD_OUT = 20  # one question in this many is for validation, and as many for test
_TURNS = 3  # at most
REFUSAL = "I can only read, write, add and compare numbers."
_ASKED = {
    "read": ("What is {} in words?", "Please read {}.", "How do I say {}?"),
    "write": ("Write {} in digits.", "What number is {}?"),
    "add": ("What is {} plus {}?", "Add {} and {}.", "How much is {} and {} together?"),
    "compare": ("Which is larger, {} or {}?", "Is {} or {} more?"),
}
_BEYOND = (
    "What is the capital of {}?", "Who was the first king of {}?", "Where is {}?",
    "Tell me a story about {}.", "How do I get to {}?", "What do people eat in {}?",
)  # fmt: skip
_PLACES = (
    "France", "Peru", "Norway", "Japan", "Kenya", "Canada", "Chile", "Spain", "Egypt", "Iceland",
    "Nepal", "Cuba", "Fiji", "Ghana", "Laos", "Malta", "Oman", "Poland", "Qatar", "Samoa", "Togo",
    "Yemen", "India", "Greece", "Iran", "Ireland", "Italy", "Mexico",
)  # fmt: skip


def load(config: DataConfig, split: str) -> tuple[Sequence[str], Sequence[str]]:
    """Return the conversations of a split as JSON, and no sources. A question of the last turn is
    in one split alone.
    """
    part = SPLITS.index(split)
    return [], _conversations(config.num_examples[part], part, config.max_number)


@cache
def _conversations(count: int, part: int, below: int) -> list[str]:
    chance = np.random.default_rng([_SEED, part])
    made: list[str] = []
    while len(made) < count:
        turns = [_turn(chance, below) for _ in range(int(chance.integers(1, _TURNS + 1)))]
        if any(_part(question) != part for question, _ in turns[-1:]):
            continue
        messages = [
            {"role": role, "content": text}
            for turn in turns
            for role, text in zip(("user", "assistant"), turn, strict=True)
        ]
        made.append(json.dumps({"messages": messages}))
    return made


def _part(question: str) -> int:
    """Return the split that a question is for, by a hash."""
    return {0: 1, 1: 2}.get(zlib.crc32(question.encode()) % _HELD_OUT, 0)


def _turn(chance: np.random.Generator, below: int) -> tuple[str, str]:
    """Return a question and its answer."""
    kind = str(chance.choice(("read", "write", "add", "add", "compare", "beyond")))
    if kind == "beyond":
        return str(chance.choice(_BEYOND)).format(chance.choice(_PLACES)), REFUSAL
    question = str(chance.choice(_ASKED[kind]))
    one, other = (int(x) for x in chance.integers(below, size=2))
    if kind == "read":
        return question.format(one), _words(one)
    if kind == "write":
        return question.format(_words(one)), str(one)
    return question.format(_words(one), _words(other)), _words(
        one + other if kind == "add" else max(one, other)
    )


def _words(number: int) -> str:
    return spell(number, "en")
