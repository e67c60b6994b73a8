"""Lists of what a part of the program supports, a line for each field of a config.

They stand where something knows a model by its config instead of asking its program: an exporter,
or whoever decides whether a run may go on. What is not on a list is refused.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any


class Anything:
    """Every value of a field: of a number, a flag or free text, and never of a choice of words."""

    def __contains__(self, _: Any) -> bool:
        return True


ANY = Anything()
Allowed = Mapping[str, tuple[Any, ...] | Anything]  # field -> its values, or ANY


def allows(values: tuple[Any, ...] | Anything, value: Any) -> bool:
    """Say whether a value is allowed; of a tuple of words, whether each of them is."""
    words = value if isinstance(value, tuple) else ()
    return value in values or (bool(words) and all(word in values for word in words))


def refused(config: Any, allowed: Allowed) -> dict[str, Any]:
    """Return {field: value} of what a dataclass has and a list does not allow.

    A field that is not on the list may have its default alone: a new one changes nothing then.
    """
    values = {item.name: getattr(config, item.name) for item in dataclasses.fields(config)}
    return {
        field: value
        for field, value in values.items()
        if not allows(_values(config, allowed, field), value)
    }


def among(config: Any, allowed: Allowed, field: str) -> str:
    """Return the values that a field may have, for a message."""
    values = _values(config, allowed, field)
    return "anything" if isinstance(values, Anything) else " or ".join(map(repr, values))


def _values(config: Any, allowed: Allowed, field: str) -> tuple[Any, ...] | Anything:
    (default,) = (item.default for item in dataclasses.fields(config) if item.name == field)
    return allowed.get(field, (default,))
