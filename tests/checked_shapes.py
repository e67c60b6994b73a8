"""Shapes and types of all arguments and results, checked on every call of the modules that ask, and
in others on the first call of each function.
"""

import functools
import inspect

import jaxtyping
from beartype import beartype

_jaxtyped = jaxtyping.jaxtyped
_every, _module = True, 0


def begin(every: bool) -> None:
    """Begin a module of tests, in which every call is checked, or the first of each function."""
    global _every, _module
    _every, _module = every, _module + 1


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

    checked = -1  # the module in which it was checked last

    @functools.wraps(function)
    def run(*args, **kwargs):
        nonlocal checked
        if checked == _module and not _every:
            return function(*args, **kwargs)
        checked = _module
        with _jaxtyped("context"):
            return strict(*args, **kwargs)

    return run
