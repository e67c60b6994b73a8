"""The only dispatch in the house: a table, a name, and an error that lists the right names."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from transformer_jax import parts
from transformer_jax.errors import UserError

T = TypeVar("T")


def did_you_mean(name: str, known: list[str]) -> str:
    """Return " (did you mean 'x'?)" for the closest known name, else ""."""
    close = get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def pick(table: Mapping[str, T], name: str, what: str) -> T:
    """Return `table[name]`, or the part of one's own that `name` names.

    Raises:
      UserError: if there is no such entry or part, or it is not of the kind of the others; `what`
        says what was being chosen.
    """
    if name in table:
        return table[name]
    if parts.read(name) is None:
        known = sorted(table)
        raise UserError(
            f"{what}: unknown choice {name!r}{did_you_mean(name, known)}; choices: {known}"
        )
    part = parts.resolve(name, what)
    if problem := _unlike(part, list(table.values())):
        raise UserError(f"{what}={name!r}: {problem}")
    return part


def _unlike(part: Any, entries: list[Any]) -> str:
    """Return what keeps a part from being an entry of a table: what all of those have."""
    model = entries[0]
    if isinstance(part, type) and not isinstance(model, type) and not callable(model):
        return f"is a class, and one of its objects is wanted, as in NAME = {part.__name__}()"
    missing = set.intersection(*map(_shows, entries)) - _shows(part)
    if not missing:
        return ""
    kind = model if isinstance(model, type) else type(model)
    names = ", ".join(sorted(missing)[:3]) + ", ..." * (len(missing) > 3)
    like = "" if kind.__module__ == "builtins" else f" as {kind.__module__}.{kind.__name__} does"
    return f"must have {names}{like}"


def _shows(thing: Any) -> set[str]:
    """Return the public names of what something has, and whether it can be called."""
    names = {name for name in dir(thing) if not name.startswith("_")} - set(dir(tuple))
    return names | ({"__call__"} if callable(thing) else set())
