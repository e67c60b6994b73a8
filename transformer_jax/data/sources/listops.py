"""ListOps: nested lists of digits with operators, and their value (Nangia and Bowman 2018,
arXiv:1804.06028), sampled as in Long Range Arena (Tay et al. 2021, arXiv:2011.04006) and its code.

A text is "[MAX 4 3 [MIN 2 3 X 1 0 X", its class the digit 4; X closes a list, like ] in the
original. From the root down, a node is an operator with probability 1/4 while deeper lists are
allowed, and a digit otherwise; MIN, MAX, MED (the median, rounded down) and SM (the sum modulo 10)
are equally likely, and so are all numbers of arguments from 2 up. Trees outside the requested
lengths are drawn again, so every tree that is kept has an operator at its root.
"""

import random
import statistics
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig
from transformer_jax.data.sources.spelled_numbers import SPLITS

_SEED = 20201108  # the corpus is the same for every experiment
_TRIES = 100_000  # failures in a row after which hardly any new text is left
_NESTED = 0.25  # share of operators among nodes, where deeper lists are allowed

OPERATORS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(statistics.median(values)),
    "[SM": lambda values: sum(values) % 10,
}
END = "X"


class Tree(NamedTuple):
    """A list or a digit: its symbols and its value."""

    symbols: list[str]
    value: int


def load(config: DataConfig, split: str) -> tuple[list[str], list[str]]:
    """Return the texts of a split and their values; no text is in two splits. Where
    `target_language` is "text", the texts are there too, for objectives that read nothing else.

    Raises:
      UserError: if there are not enough texts of these lengths.
    """
    sizes, number = config.num_examples, SPLITS.index(split)
    trees = draw(sum(sizes), config.example_lengths, config.list_depth, config.list_arguments)
    own = trees[sum(sizes[:number]) : sum(sizes[: number + 1])]
    texts = [text for text, _ in own]
    return texts, texts if config.target_language == "text" else [value for _, value in own]


@cache
def draw(count: int, lengths: tuple[int, ...], depth: int, arguments: int) -> list[tuple[str, str]]:
    """Return `count` different texts with lengths within the bounds, and their values."""
    chance, (least, most) = random.Random(_SEED), lengths
    examples: dict[str, str] = {}
    tries = 0
    while len(examples) < count:
        drawn = tree(chance, depth, arguments, most)
        text = "" if drawn is None or len(drawn.symbols) < least else " ".join(drawn.symbols)
        tries = 0 if text and text not in examples else tries + 1
        if drawn is not None and text:
            examples[text] = str(drawn.value)
        if tries > _TRIES:
            raise UserError(
                f"config.data.example_lengths={lengths}: of {_TRIES:,} lists of list_depth={depth} "
                f"and list_arguments={arguments} none is new and within these lengths, after "
                f"{len(examples):,} of {count:,}; change the lengths, or lower num_examples"
            )
    return list(examples.items())


def tree(chance: random.Random, depth: int, arguments: int, most: int) -> Tree | None:
    """Draw a tree of at most `depth` levels, digits included, or None if it has more symbols."""
    if depth <= 1 or chance.random() > _NESTED:
        digit = chance.randrange(10)
        return Tree([str(digit)], digit)
    symbols, values = [""], []
    for _ in range(chance.randint(2, arguments)):
        part = tree(chance, depth - 1, arguments, most)
        if part is None or len(symbols) + len(part.symbols) >= most:
            return None
        symbols += part.symbols
        values.append(part.value)
    symbols[0] = chance.choice([*OPERATORS])
    return Tree([*symbols, END], OPERATORS[symbols[0]](values))
