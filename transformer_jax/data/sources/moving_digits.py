"""Clips of moving digits, generated: what moves where can be seen only in several frames.

Digits are drawn as a 5 x 7 matrix of dots, each a little larger, narrower, slanted, turned and
brighter than others, and begin anywhere. They move 2 pixels a frame in one of 8 directions, and
what leaves the picture on one side enters on the other, so that no frame alone says more of a
direction than chance. With several digits, they have to be read to know whose is asked for.
"""

from typing import NamedTuple

import numpy as np

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig
from transformer_jax.data.random import uniform
from transformer_jax.data.sources.spelled_numbers import SPLITS

_SEED = 20150216  # the corpus is the same for every experiment
_SIZE = 32, 32
_STEP = 2  # pixels a frame
_DRAWN = 1000  # clips drawn at a time
_VALUE, _WAY, _ROW, _COLUMN, _TALL, _WIDE, _SLANT, _TURN, _BRIGHT = range(9)  # what is random
TARGETS = ("direction", "value", "text")

DIRECTIONS = {
    "right": (0, 1), "down right": (1, 1), "down": (1, 0), "down left": (1, -1), "left": (0, -1),
    "up left": (-1, -1), "up": (-1, 0), "up right": (-1, 1),
}  # fmt: skip
_NAMES = (
    "a zero", "a one", "a two", "a three", "a four", "a five", "a six", "a seven", "an eight",
    "a nine",
)  # fmt: skip
_GLYPHS = """
.###. ..#.. .###. #####  ...#. ##### ..##. ##### .###. .###.
#...# .##.. #...# ...#.  ..##. #.... .#... ....# #...# #...#
#..## ..#.. ....# ..#..  .#.#. ####. #.... ...#. #...# #...#
#.#.# ..#.. ...#. ...#.  #..#. ....# ####. ..#.. .###. .####
##..# ..#.. ..#.. ....#  ##### ....# #...# .#... #...# ....#
#...# ..#.. .#... #...#  ...#. #...# #...# .#... #...# ...#.
.###. .###. ##### .###.  ...#. .###. .###. .#... .###. .##..
"""


class Motion(NamedTuple):
    """What one digit of each clip is and does: arrays [n]."""

    value: np.ndarray  # 0 to 9
    way: np.ndarray  # of DIRECTIONS, by number


def load(config: DataConfig, split: str) -> tuple[list[np.ndarray], list[str]]:
    """Return the clips of a split, uint8 [T H W], and their labels.

    The label is that of the digit of the largest value: its "direction" or its "value", as
    `target_language` says, or a "text" of all, the largest first.

    Raises:
      UserError: if the target side is not in TARGETS.
    """
    target = config.target_language
    if target not in TARGETS:
        raise UserError(
            f"config.data.target_language={target!r}: data.source='moving_digits' has "
            f"{', '.join(map(repr, TARGETS))}; choose one"
        )
    number = SPLITS.index(split)
    clips: list[np.ndarray] = []
    labels: list[str] = []
    size = (*config.image_size,) or _SIZE
    count = config.num_examples[number]
    for start in range(0, count, _DRAWN):
        numbers = np.arange(start, min(start + _DRAWN, count))
        motions = _motions(number, numbers, config.num_digits)
        each = [
            _moving(motion, (number, numbers, place), config.num_frames, size)
            for place, motion in enumerate(motions)
        ]
        clips += list(np.maximum.reduce(each))
        labels += _labels(motions, target)
    return clips, labels


def _motions(split: int, numbers: np.ndarray, count: int) -> list[Motion]:
    """Return what the digits of clips are and do: values and directions of a clip all differ, for
    the direction of another digit must not be right by chance.
    """
    keys = [(split, numbers, place) for place in range(count)]
    values = _different([uniform(_SEED, *key, _VALUE) for key in keys], len(_NAMES))
    ways = _different([uniform(_SEED, *key, _WAY) for key in keys], len(DIRECTIONS))
    return [Motion(*both) for both in zip(values, ways, strict=True)]


def _different(draws: list[np.ndarray], most: int) -> list[np.ndarray]:
    """Return whole numbers below `most` [n], one for each draw, that differ in each place."""
    chosen: list[np.ndarray] = []
    for drawn in draws:
        number = (drawn * (most - len(chosen))).astype(np.int64)
        for taken in np.sort(np.stack(chosen), axis=0) if chosen else ():
            number += number >= taken  # the one after as many that are left
        chosen.append(number)
    return chosen


def _labels(motions: list[Motion], target: str) -> list[str]:
    values, ways = (np.stack(arrays, 1) for arrays in zip(*motions, strict=True))
    order = np.argsort(-values, axis=1)
    values, ways = (np.take_along_axis(x, order, 1) for x in (values, ways))
    names = [*DIRECTIONS]
    if target == "direction":
        return [names[way] for way in ways[:, 0]]
    if target == "value":
        return [str(value) for value in values[:, 0]]
    return [
        " and ".join(f"{_NAMES[value]} moves {names[way]}" for value, way in zip(*one, strict=True))
        for one in zip(values, ways, strict=True)
    ]


def _moving(motion: Motion, keys: tuple, frames: int, size: tuple[int, ...]) -> np.ndarray:
    """Return clips of one digit each, uint8 [n T H W]."""
    height, width = size
    square = min(size) // 2
    canvas = np.zeros((len(motion.value), height, width), np.uint8)
    canvas[:, :square, :square] = _drawn(motion.value, keys, square)
    steps = np.array([*DIRECTIONS.values()])[motion.way] * _STEP
    places = []
    for axis, (length, purpose) in enumerate(((height, _ROW), (width, _COLUMN))):
        first = (uniform(_SEED, *keys, purpose) * length).astype(np.int64)
        moved = first[:, None] + np.arange(frames) * steps[:, axis, None]  # [n T]
        places.append((np.arange(length) - moved[..., None]) % length)
    rows, columns = places[0][..., :, None], places[1][..., None, :]
    return canvas[np.arange(len(canvas))[:, None, None, None], rows, columns]


def _drawn(values: np.ndarray, keys: tuple, square: int) -> np.ndarray:
    """Return pictures of digits, uint8 [n S S]: the dots of a matrix, interpolated."""

    def between(low: float, high: float, purpose: int) -> np.ndarray:
        return (low + (high - low) * uniform(_SEED, *keys, purpose))[:, None, None]

    matrices = _matrices()
    middle = (np.arange(square) + 0.5) / square - 0.5
    rows, columns = middle[:, None], middle[None]
    turn, slant = between(-0.2, 0.2, _TURN), between(-0.2, 0.2, _SLANT)
    down = np.cos(turn) * rows + np.sin(turn) * columns
    right = np.cos(turn) * columns - np.sin(turn) * rows + slant * rows
    # Where each pixel is in the matrix, whose dots have whole numbers, within a border of zeros.
    high, wide = (size - 1 for size in matrices.shape[1:])
    y = down * 7 / between(0.7, 0.95, _TALL) + high / 2
    x = right * 5 / between(0.5, 0.75, _WIDE) + wide / 2
    y, x = np.clip(y, 0, high - 1e-6), np.clip(x, 0, wide - 1e-6)
    top, left = y.astype(np.int64), x.astype(np.int64)
    y, x, which = y - top, x - left, values[:, None, None]
    ink = (1 - y) * ((1 - x) * matrices[which, top, left] + x * matrices[which, top, left + 1])
    ink += y * ((1 - x) * matrices[which, top + 1, left] + x * matrices[which, top + 1, left + 1])
    return np.rint(between(180, 255, _BRIGHT) * ink).astype(np.uint8)


def _matrices() -> np.ndarray:
    """Return the dots of all digits, [10 9 7], with a border of zeros."""
    lines = [line.split() for line in _GLYPHS.split("\n") if line]
    dots = [[[sign == "#" for sign in line[digit]] for line in lines] for digit in range(10)]
    return np.pad(np.array(dots, np.float64), ((0, 0), (1, 1), (1, 1)))
