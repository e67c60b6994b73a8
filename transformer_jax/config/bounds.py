"""How a value is refused, and the bounds that all numbers have."""

import re
from collections.abc import Iterable
from typing import Any

from transformer_jax.errors import UserError

# Every number has bounds on both sides, and a test holds every field to that. They leave room for
# whatever makes sense, and keep slips of the hand from the memory and the integers of the machine.
STEPS = 10**9  # steps are counted in 32 bits
SIZE = 2**20  # of one axis of an array
ELEMENTS = 2**31  # of one matrix; 8 GiB
HELD_POSITIONS = 2**18  # of all hypotheses of one sentence; each takes 24 kB in the base model


def check(condition: bool, message: str) -> None:
    """Raise a UserError with this message unless the condition holds."""
    if not condition:
        raise UserError(message)


def default_unless(
    holds: bool, config: Any, *names: str, because: str, otherwise: str = ""
) -> None:
    """Refuse all but the defaults of these fields of one of the manual's sections, unless the
    condition holds; `otherwise` is another remedy.
    """
    for name in names:
        value, default = getattr(config, name), type(config).__dataclass_fields__[name].default
        remedy = f"leave it at {default!r}" + (f", or {otherwise}" if otherwise else "")
        check(holds or value == default, f"{name}={value!r}: {because}; {remedy}")


def within(low: float, high: float, **values: float | None) -> None:
    """Refuse numbers outside these bounds, by their names; None is no number."""
    for name, value in values.items():
        check(
            value is None or low <= value <= high,
            f"{name}={value}: must be at least {low} and at most {high}",
        )


def above(low: float, high: float, otherwise: str = "", **values: float | None) -> None:
    """Refuse numbers that are not above `low` and up to `high`; `otherwise` is another remedy."""
    for name, value in values.items():
        check(
            value is None or low < value <= high,
            f"{name}={value}: must be above {low} and at most {high}{otherwise}",
        )


def rate(**values: float | None) -> None:
    """Refuse shares that are not at least 0 and below 1."""
    for name, value in values.items():
        check(value is None or 0 <= value < 1, f"{name}={value}: must be at least 0 and below 1")


def check_pattern(field: str, pattern: str) -> None:
    """Refuse what is no regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise UserError(f"{field}={pattern!r}: no regular expression ({error})") from None


def either(words: Iterable[str]) -> str:
    """Return words as a message names them, one of which is to be chosen."""
    return " or ".join(map(repr, words))


def is_part(value: str) -> bool:
    """Return whether a value names a part of one's own, "path/file.py:Name"."""
    return ":" in value
