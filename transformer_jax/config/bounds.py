"""Checks that reject a value, and the bounds that all numbers have."""

import functools
import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

from transformer_jax.base.errors import UserError

# Every number has a lower and an upper bound, which a test enforces for every field. They allow
# whatever makes sense, and stop typos from exhausting memory or overflowing integers.
STEPS = 10**9  # steps are counted in 32 bits
SIZE = 2**20  # of one axis of an array
ELEMENTS = 2**31  # of one matrix; 8 GiB
HELD_POSITIONS = 2**18  # of all hypotheses of a sentence; each takes 24 kB in the base model
# Beyond it, the penalty of the longest text, length^alpha, is infinite in float32, and so all
# scores are 0.
MOST_ALPHA = int(127 / math.log2(HELD_POSITIONS))


def check(condition: bool, message: str) -> None:
    """Raise a UserError with this message if the condition is false."""
    if not condition:
        raise UserError(message)


def default_unless(
    holds: bool, config: Any, *names: str, because: str, otherwise: str = ""
) -> None:
    """Reject values other than the default for these fields of a section of the manual, unless the
    condition holds; `otherwise` is an alternative remedy.
    """
    for name in () if holds else names:
        value, default = getattr(config, name), type(config).__dataclass_fields__[name].default
        remedy = f"leave it at {default!r}" + (f", or {otherwise}" if otherwise else "")
        check(value == default, f"{name}={value!r}: {because}; {remedy}")


@functools.lru_cache(maxsize=1024)
def computed(value: float) -> float:
    """Return a number as programs compute with it: a whole one as it is, another as a float32, of
    which XLA takes those below the smallest normal one for 0.
    """
    if isinstance(value, int):
        return value
    with np.errstate(over="ignore"):
        single = float(np.float32(value))
    return 0.0 if abs(single) < np.finfo(np.float32).tiny else single


def rounded(value: float | None) -> str:
    """Return what a number is in programs, for a message, if it is on a bound only there."""
    single = None if value is None else computed(value)
    return f" in float32, where it is {single:g}" if single != value and single in (0, 1) else ""


def check_pattern(field: str, pattern: str) -> None:
    """Reject an invalid regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise UserError(f"{field}={pattern!r}: not a regular expression ({error})") from None


def either(words: Iterable[str]) -> str:
    """Return words as alternatives for a message."""
    return " or ".join(map(repr, words))


def is_part(value: str) -> bool:
    """Return whether a value names a user-defined part, "path/file.py:Name"."""
    return ":" in value
