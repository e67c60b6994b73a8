"""The built-in corpus: numbers spelled out in one language and in English.

German runs words together and says units before tens ("dreihundertsiebenundvierzig"), so that both
segmentation and word order have to be learned. The text comes from the num2words library.
"""

from functools import cache

import numpy as np

from transformer_jax.config import DataConfig
from transformer_jax.errors import UserError

_SEED = 20170612  # the corpus is the same for every experiment
_SHORT = 100  # numbers of one or two digits are below this
_LARGE = 10_000  # from this bound on they are few
SPLITS = ("train", "validation", "test")  # in the order of data.num_examples


def load(config: DataConfig, split: str) -> tuple[list[str], list[str]]:
    """Return the spelled-out numbers of a split; no number is in two splits.

    Raises:
      UserError: if num2words does not know a language.
    """
    numbers = draw(config.num_examples, config.max_number)[SPLITS.index(split)]
    sides = (
        [_spell(int(n), language) for n in numbers]
        for language in (config.source_language, config.target_language)
    )
    return next(sides), next(sides)


@cache
def draw(sizes: tuple[int, ...], below: int) -> list[np.ndarray]:
    """Cut one seeded permutation of numbers below a bound into parts of the given sizes.

    Nine tenths of a range have as many digits as its end, so magnitudes are drawn first: as many
    numbers from each number of digits as there are, evenly. There are only a hundred numbers of
    one or two digits, which all others are made of and everybody tries first: of a large range
    they are all in the first part, the training split, and fill a twentieth of it by repetition.
    """
    generator = np.random.default_rng(_SEED)
    digits = len(str(below - 1))
    seen: dict[int, None] = {}
    while len(seen) < sum(sizes):
        size = generator.integers(1, digits + 1, sum(sizes))
        values = generator.integers(10 ** (size - 1) * (size > 1), np.minimum(10**size, below))
        seen.update(dict.fromkeys(values.tolist()))
    numbers = generator.permutation(np.fromiter(seen, np.int64)[: sum(sizes)])
    if below > _LARGE and sizes[0] > 40 * _SHORT:
        repeated = generator.choice(_SHORT, sizes[0] // 20 - _SHORT)
        first = generator.permutation(np.concatenate([np.arange(_SHORT), repeated]))
        rest = numbers[numbers >= _SHORT]
        numbers = np.concatenate([first, rest])[: sum(sizes)]
        numbers[: sizes[0]] = generator.permutation(numbers[: sizes[0]])
    return np.split(numbers, np.cumsum(sizes)[:-1])


def _spell(number: int, language: str) -> str:
    from num2words import num2words

    try:
        return num2words(number, lang=language)
    except NotImplementedError:
        raise UserError(
            f"spelled_numbers: num2words has no language {language!r}; see its CONVERTER_CLASSES"
        ) from None
