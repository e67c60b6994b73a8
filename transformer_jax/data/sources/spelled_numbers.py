"""The built-in corpus: numbers spelled out in one language and in English.

German joins words and puts units before tens ("dreihundertsiebenundvierzig"), so both segmentation
and word order have to be learned. The text comes from the num2words library.
"""

from collections.abc import Sequence
from functools import cache, cached_property
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig
from transformer_jax.data.texts import Texts

_SEED = 20170612  # the corpus is the same for every experiment
_SHORT = 100  # numbers of one or two digits are below this
_LARGE = 10_000  # above this bound they are rare
_HELD = 1_000_000  # larger splits are spelled out lazily
SPLITS = ("train", "validation", "test")  # in the order of data.num_examples


def load(config: DataConfig, split: str) -> tuple[Sequence[str], Sequence[str]]:
    """Return the spelled-out numbers of a split; the splits are disjoint.

    Raises:
      UserError: if num2words does not know a language.
    """
    languages = config.source_language, config.target_language
    part = SPLITS.index(split)
    drawn = Drawn(config.num_examples, config.max_number, config.round_numbers)
    if config.num_examples[part] > _HELD:
        src, tgt = (Spelled(drawn, part, language) for language in languages)
        return src, tgt
    numbers = draw(*drawn)[part]
    sides = ([spell(int(n), language) for n in numbers] for language in languages)
    return next(sides), next(sides)


class Drawn(NamedTuple):
    """How numbers are drawn; see `draw`."""

    sizes: tuple[int, ...]
    below: int
    round_numbers: float = 0.0


class Spelled(Texts):
    """The numbers of a split in a language, spelled out when they are read."""

    made = True

    def __init__(self, drawn: Drawn, split: int, language: str) -> None:
        spell(0, language)  # raises now if the language is unknown
        self._drawn, self._split, self._language = drawn, split, language
        self._range = range(drawn.sizes[split])

    @property
    def origin(self) -> str:
        """See Texts."""
        sizes, below, rounded = self._drawn
        ours = (sizes, below, self._split), self._range, self._language, _SEED, version("num2words")
        return f"spelled_numbers {ours}" + (f" {rounded}" if rounded else "")

    def __len__(self) -> int:
        return len(self._range)

    @cached_property
    def _numbers(self) -> np.ndarray:
        return draw(*self._drawn)[self._split][self._range.start : self._range.stop]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_numbers": self._numbers}  # spares others the drawing

    def between(self, start: int, stop: int) -> list[str]:
        """See Texts."""
        return [spell(n, self._language) for n in self._numbers[start:stop].tolist()]

    def part(self, start: int, stop: int) -> "Spelled":
        """See Texts."""
        cut = Spelled(self._drawn, self._split, self._language)
        cut._range = self._range[start:stop]
        return cut


@cache
def draw(sizes: tuple[int, ...], below: int, round_numbers: float = 0.0) -> list[np.ndarray]:
    """Cut one seeded permutation of numbers below a bound into parts of the given sizes.

    Nine tenths of a range have as many digits as its end, so the number of digits is drawn first,
    uniformly. In a share `round_numbers` of the numbers, each digit becomes 0 with probability 1/2.
    There are only a hundred numbers of one or two digits, of which all others are composed and
    which users try first: for a large range they are all in the first part, the training split, and
    fill a twentieth of it by repetition.
    """
    generator = np.random.default_rng(_SEED)
    digits = len(str(below - 1))
    unique, known = np.zeros(0, np.int64), np.zeros(0, np.int64)  # as drawn; sorted
    while len(unique) < sum(sizes):
        size = generator.integers(1, digits + 1, sum(sizes))
        values = generator.integers(10 ** (size - 1) * (size > 1), np.minimum(10**size, below))
        if round_numbers:
            chosen = generator.random(len(values)) < round_numbers
            for place in 10 ** np.arange(digits):
                gone = chosen & (generator.random(len(values)) < 0.5)
                values -= values // place % 10 * place * gone
        new, first = np.unique(values, return_index=True)
        other = ~np.isin(new, known, assume_unique=True)
        unique = np.concatenate([unique, values[np.sort(first[other])]])
        known = np.concatenate([known, new[other]])
    numbers = generator.permutation(unique[: sum(sizes)])
    if below > _LARGE and sizes[0] > 40 * _SHORT:
        repeated = generator.choice(_SHORT, sizes[0] // 20 - _SHORT)
        first = generator.permutation(np.concatenate([np.arange(_SHORT), repeated]))
        rest = numbers[numbers >= _SHORT]
        numbers = np.concatenate([first, rest])[: sum(sizes)]
        numbers[: sizes[0]] = generator.permutation(numbers[: sizes[0]])
    return np.split(numbers, np.cumsum(sizes)[:-1])


def spell(number: int, language: str) -> str:
    """Return a number in words.

    Raises:
      UserError: if num2words does not know the language.
    """
    from num2words import num2words

    try:
        return num2words(number, lang=language)
    except NotImplementedError:
        raise UserError(
            f"spelled_numbers: num2words has no language {language!r}; see its CONVERTER_CLASSES"
        ) from None
