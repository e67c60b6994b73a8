"""Every choice that a config offers, to be held against the lists of what is supported."""

import copy
import dataclasses
import types
import typing
from typing import Any

from transformer_jax.allowed import Allowed, Anything


def choices(kind: type, prefix: str = "") -> dict[str, tuple[Any, ...]]:
    """Return {field: its words} for all fields of a dataclass and of those in it; () for numbers.

    Of an optional number None is one of them, of a tuple of words each word.
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


def undeclared(allowed: Allowed, kind: type, stays: tuple[str, ...] = ()) -> list[str]:
    """Return the fields that neither list names, or both; and choices of words that are ANY."""
    found = []
    for field, words in choices(kind).items():
        if (field in allowed) == (field in stays):
            found.append(field)
        elif any(isinstance(word, str) for word in words) and isinstance(
            allowed.get(field), Anything
        ):
            found.append(f"{field}=ANY")
    return found


def with_value(config: Any, field: str, value: Any) -> Any:
    """Return a copy that has a value whether or not other fields go with it."""
    if isinstance(getattr(config, field), tuple) and not isinstance(value, tuple):
        value = (value,)  # a word of a pattern
    changed = copy.copy(config)
    object.__setattr__(changed, field, value)
    return changed


def later(kind: type, name: str, hint: Any, default: Any) -> type:
    """Return the config of a later version, which has one more field."""
    return dataclasses.make_dataclass(
        f"Later{kind.__name__}", [(name, hint, default)], bases=(kind,), frozen=True
    )
