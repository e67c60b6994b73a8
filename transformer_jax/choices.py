"""The only dispatch in the house: a table, a name, and an error that lists the right names."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeVar

from transformer_jax.errors import UserError

T = TypeVar("T")


def did_you_mean(name: str, known: list[str]) -> str:
    """Return " (did you mean 'x'?)" for the closest known name, else ""."""
    close = get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def pick(table: Mapping[str, T], name: str, what: str) -> T:
    """Return `table[name]`.

    Raises:
      UserError: if there is no such entry; `what` says what was being chosen.
    """
    if name not in table:
        known = sorted(table)
        raise UserError(
            f"{what}: unknown choice {name!r}{did_you_mean(name, known)}; choices: {known}"
        )
    return table[name]
