"""Allow-lists of supported config values, one line per field.

Code that knows a model only by its config uses one: an exporter, or the check whether a run may
resume. Anything not on the list is rejected.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

from transformer_jax.config.fields import Values


class Anything:
    """Every value of a field: for numbers, flags and free text, never for a choice of words."""

    def __contains__(self, _: Any) -> bool:
        return True


ANY = Anything()
Allowed = Mapping[str, tuple[Any, ...] | Anything]  # field -> its values, or ANY


def declared(values: Values) -> tuple[Any, ...] | Anything:
    """Return the values that a field's declaration allows: some words, or any number or text."""
    return values if isinstance(values, tuple) else ANY if values else ()


def allows(values: tuple[Any, ...] | Anything, value: Any) -> bool:
    """Return whether a value is allowed; for a tuple of words, whether every one of them is."""
    words = value if isinstance(value, tuple) else ()
    return value in values or (bool(words) and all(word in values for word in words))


def refused(config: Any, allowed: Allowed) -> dict[str, Any]:
    """Return {field: value} for the fields of a dataclass whose value is not allowed.

    A field that is not on the list must have its default, so a newly added field changes nothing.
    """
    values = {item.name: getattr(config, item.name) for item in dataclasses.fields(config)}
    return {
        field: value
        for field, value in values.items()
        if not allows(_values(config, allowed, field), value)
    }


def among(config: Any, allowed: Allowed, field: str) -> str:
    """Return the allowed values of a field, for a message."""
    values = _values(config, allowed, field)
    return "anything" if isinstance(values, Anything) else " or ".join(map(repr, values))


def _values(config: Any, allowed: Allowed, field: str) -> tuple[Any, ...] | Anything:
    (default,) = (item.default for item in dataclasses.fields(config) if item.name == field)
    return allowed.get(field, (default,))
