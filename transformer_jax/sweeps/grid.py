"""The settings of a sweep's points, from axes in command-line syntax.

model.d_ff=256,512                              these values; commas inside (), [] or quotes stay
model.dropout_rate=linspace(0,0.3,4)            4 values in equal steps
optimizer.learning_rate=geomspace(1e-4,1e-2,5)  5 values in equal ratios
model.dropout_rate=uniform(0,0.3)               drawn uniformly between the two
optimizer.learning_rate=loguniform(1e-4,1e-2)   drawn on a logarithmic scale
"""

import itertools
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.base.command_text import listed
from transformer_jax.base.errors import UserError
from transformer_jax.config.convert import kind_of

Settings = dict[str, str]  # path of a field -> its value as command-line text
Sampler = Callable[[np.random.Generator], str]


class Axis(NamedTuple):
    """A field with its values, or a way to draw one."""

    path: str
    values: tuple[str, ...]
    draw: Sampler


def read_axis(text: str) -> Axis:
    """Read FIELD=VALUES, in one of the forms above.

    Raises:
      UserError: if there is no such field, or the values are in none of the forms.
    """
    path, equals, values = text.partition("=")
    if not equals:
        raise UserError(f"--grid={text}: must be FIELD=VALUES, for example model.d_ff=256,512")
    kind = kind_of(path)
    call = re.fullmatch(r"\s*(\w+)\((.*)\)\s*", values)
    if call is None or call[1] not in _RANGES:
        return _listed(path, tuple(listed(values)))
    return _read_range(text, path, call[1], call[2], kind)


def grid(axes: Sequence[Axis]) -> list[Settings]:
    """Return every combination of the axes' values, the last axis varying fastest.

    Raises:
      UserError: if an axis has no list of values.
    """
    _distinct(axes)
    for axis in axes:
        if not axis.values:
            raise UserError(f"--grid={axis.path}: a range to draw from; add --random=N")
    paths = [axis.path for axis in axes]
    combined = itertools.product(*(axis.values for axis in axes))
    return [dict(zip(paths, values, strict=True)) for values in combined]


def draw(axes: Sequence[Axis], count: int, seed: int) -> list[Settings]:
    """Return `count` different random settings; a larger count only adds to them.

    Raises:
      UserError: if the axes do not have that many.
    """
    _distinct(axes)
    points: list[Settings] = []
    for attempt in range(100 * count):
        random = np.random.default_rng([seed, attempt])
        settings = {axis.path: axis.draw(random) for axis in axes}
        if settings not in points:
            points.append(settings)
        if len(points) == count:
            return points
    raise UserError(f"--random={count}: the axes hold only {len(points)} different points")


def _distinct(axes: Sequence[Axis]) -> None:
    paths = [axis.path for axis in axes]
    for path in paths:
        if paths.count(path) > 1:
            raise UserError(f"--grid={path}: given twice; name all values at once")


def _read_range(text: str, path: str, name: str, arguments: str, kind: Any) -> Axis:
    counted, logarithmic = _RANGES[name]
    form = f"{name}(LOW,HIGH,COUNT)" if counted else f"{name}(LOW,HIGH)"
    numbers = arguments.split(",")
    try:
        count = int(numbers.pop()) if counted else 0
        low, high = map(float, numbers)
    except ValueError:
        raise UserError(f"--grid={text}: must be {form}, in numbers") from None
    if not (math.isfinite(low) and low < high < math.inf) or (logarithmic and low <= 0):
        raise UserError(f"--grid={text}: {form} needs {'0 < ' if logarithmic else ''}LOW < HIGH")
    if counted and count < 2:
        raise UserError(f"--grid={text}: COUNT={count}: must be at least 2")

    def at(share: float) -> str:
        value = low * (high / low) ** share if logarithmic else low + (high - low) * share
        return str(round(value)) if _whole(kind) else f"{value:.6g}"

    if not counted:
        return Axis(path, (), lambda random: at(random.random()))
    # Without duplicates: rounding may have made some values equal.
    return _listed(path, tuple(dict.fromkeys(at(i / (count - 1)) for i in range(count))))


def _listed(path: str, values: tuple[str, ...]) -> Axis:
    return Axis(path, values, lambda random: values[random.integers(len(values))])


def _whole(kind: Any) -> bool:
    return kind is int or kind == int | None


# name -> (takes a COUNT of values, on a logarithmic scale)
_RANGES = {
    "linspace": (True, False),
    "geomspace": (True, True),
    "uniform": (False, False),
    "loguniform": (False, True),
}
