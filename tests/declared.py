"""Every choice that a config offers, to compare with the lists of what is supported."""

import copy
import dataclasses
import types
import typing
from typing import Any

from transformer_jax.config.allowed import Allowed, Anything


def choices(kind: type, prefix: str = "") -> dict[str, tuple[Any, ...]]:
    """Return {field: its words} for all fields of a dataclass, nested ones too; () for numbers.

    The words of an optional number include None; those of a tuple are its allowed elements.
    """
    found = {}
    for name, hint in typing.get_type_hints(kind).items():
        if dataclasses.is_dataclass(hint):
            found |= choices(hint, f"{prefix}{name}.")
        else:
            found[prefix + name] = _words(hint)
    return found


def _words(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)
    if hint is bool:
        return (False, True)
    if hint is types.NoneType:
        return (None,)
    if typing.get_origin(hint) is tuple or isinstance(hint, types.UnionType):
        return tuple(word for part in typing.get_args(hint) for word in _words(part))
    return ()


def unworded(allowed: Allowed, kind: type) -> list[str]:
    """Return the fields with words of which a list allows any, future ones included; and those that
    it names and the class lacks.
    """
    known = choices(kind)
    return [
        field
        for field, values in allowed.items()
        if field not in known
        or (isinstance(values, Anything) and any(isinstance(word, str) for word in known[field]))
    ]


def with_value(config: Any, field: str, value: Any) -> Any:
    """Return a copy with one field changed, even if other fields do not allow it."""
    if isinstance(getattr(config, field), tuple) and not isinstance(value, tuple):
        value = (value,)  # a word of a pattern
    changed = copy.copy(config)
    object.__setattr__(changed, field, value)
    return changed


def later(kind: type, name: str, hint: Any, default: Any) -> type:
    """Return the config class of a later version, with one more field."""
    return dataclasses.make_dataclass(
        f"Later{kind.__name__}", [(name, hint, default)], bases=(kind,), frozen=True
    )
