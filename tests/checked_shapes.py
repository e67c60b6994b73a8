"""Shapes and types of all arguments and results, checked on every call of the modules that ask."""

import functools
import inspect

import jaxtyping
from beartype import beartype

_jaxtyped = jaxtyping.jaxtyped
_on = True


def switch(on: bool) -> None:
    """Check calls of functions from now on, or do not."""
    global _on
    _on = on


def install(*packages: str) -> None:
    """Decorate every function and dataclass of these packages once they are imported."""
    jaxtyping.jaxtyped = _decorator  # what the import hook decorates with
    jaxtyping.install_import_hook(packages, "beartype.beartype")


def _decorator(*, typechecker):
    """Return jaxtyping's decorator for classes and generators, and a faster one for functions."""

    def decorate(what):
        if inspect.isclass(what) or inspect.isgeneratorfunction(what):
            return _jaxtyped(what, typechecker=typechecker)
        return _checked(what)

    return decorate


def _checked(function):
    """Return the function with its checks, all in one scope of named sizes.

    jaxtyping's own decorator makes two more functions of each and checks arguments twice, before
    and after a call, for the sake of its messages.
    """
    strict = beartype(function)
    if strict is function:
        return function

    @functools.wraps(function)
    def run(*args, **kwargs):
        if not _on:
            return function(*args, **kwargs)
        with _jaxtyped("context"):
            return strict(*args, **kwargs)

    return run
