"""Dispatch by name, the only one in the code: a table, a name, an error listing the valid names."""

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from difflib import get_close_matches
from types import ModuleType
from typing import Any, TypeVar

from transformer_jax.base.errors import UserError
from transformer_jax.config import parts

T = TypeVar("T")


def did_you_mean(name: str, known: list[str]) -> str:
    """Return " (did you mean 'x'?)" for the closest known name, else ""."""
    close = get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def pick(table: Mapping[str, T], name: str, what: str) -> T:
    """Return `table[name]`, or the user-defined part that `name` refers to.

    Raises:
      UserError: if there is no such entry or part, or it lacks the interface of the others; `what`
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


def found_in(package: ModuleType, besides: str = "") -> dict[str, Any]:
    """Return {word: entry} of the `WORDS` of all modules of a package, but for one of them."""
    entries: dict[str, Any] = {}
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        if module.name != besides:
            entries |= getattr(importlib.import_module(module.name), "WORDS", {})
    return entries


def _unlike(part: Any, entries: list[Any]) -> str:
    """Return why a part cannot be an entry of a table: what it lacks and all entries have."""
    model = entries[0]
    if isinstance(part, type) and not isinstance(model, type) and not callable(model):
        return f"is a class, but an instance is expected, as in NAME = {part.__name__}()"
    missing = set.intersection(*map(_shows, entries)) - _shows(part)
    kind = model if isinstance(model, type) else type(model)
    ours = "" if kind.__module__ == "builtins" else f"{kind.__name__} of {kind.__module__}"
    if lacking := sorted(missing - {"__call__"}):
        names = ", ".join(lacking[:3]) + ", ..." * (len(lacking) > 3)
        return f"has no {names}" + f"; write it like {ours}" * bool(ours)
    needed = _needed(model) if callable(model) else []
    if missing:
        return f"is not a function; write one of ({', '.join(needed)})"
    if callable(model) and not _takes(part, needed):
        like = f", as {ours} does" * bool(ours)
        return f"does not take ({', '.join(needed)}){like}; change its parameters to these"
    return ""


def _needed(entry: Any) -> list[str]:
    """Return the names of the parameters of a callable that have no default."""
    parameters = inspect.signature(entry).parameters.values()
    return [x.name for x in parameters if x.default is x.empty]


def _takes(part: Any, arguments: list[str]) -> bool:
    """Return whether a callable can be called with these positional arguments alone."""
    signature = inspect.signature(part)
    own = [x for x in signature.parameters.values() if x.name not in ("parent", "name")]  # Flax's
    try:
        signature.replace(parameters=own).bind(*arguments)
    except TypeError:
        return False
    return True


def _shows(thing: Any) -> set[str]:
    """Return the public attribute names of an object, plus "__call__" if it is callable."""
    names = {name for name in dir(thing) if not name.startswith("_")} - set(dir(tuple))
    return names | ({"__call__"} if callable(thing) else set())
