"""Declaration of the manual's fields: a default, its bounds, what reads it, what may change.

A field without `may_change` keeps its value when a run resumes, and an exporter refuses any value
but the default of one without `neutral`: what nobody declared is refused.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.config.bounds import computed, rounded

_KEY = "declaration"
Values = bool | tuple[Any, ...]  # all values of a number, flag or free text; some words; or none


@dataclass(frozen=True)
class Declaration:
    """What is known about a field besides its type and default.

    of: the choice whose words read it, by the name of its table in `config/choices/`; "": the
      field is read whatever the choices are.
    may_change: values between which a resumed run may change it: what is monitored, and where and
      how fast a run executes, not what is learned.
    neutral: values that an exported model need not express: settings of training and execution, and
      sizes, which an exporter may restrict further.
    """

    low: float | None = None
    high: float | None = None
    open_low: bool = False  # whether `low` itself is outside
    open_high: bool = False
    otherwise: str = ""  # an alternative remedy
    of: str = ""
    may_change: Values = False
    neutral: Values = False

    def admits(self, value: float) -> bool:
        """Return whether a number is within the bounds, as programs compute with it."""
        single = computed(value)
        low = None if self.low is None else computed(self.low)
        high = None if self.high is None else computed(self.high)
        above = low is None or (single > low if self.open_low else single >= low)
        return above and (high is None or (single < high if self.open_high else single <= high))

    @property
    def bounds(self) -> str:
        """The bounds in words."""
        low = f"{'above' if self.open_low else 'at least'} {self.low}"
        high = f"{'below' if self.open_high else 'at most'} {self.high}"
        return f"{low} and {high}"


_UNDECLARED = Declaration()


def number(default: Any, low: float, high: float, otherwise: str = "", **known: Any) -> Any:
    """Declare a number of at least `low` and at most `high`; None, where allowed, passes."""
    return _declared(default, Declaration(low, high, otherwise=otherwise, **known))


def above(default: Any, low: float, high: float, otherwise: str = "", **known: Any) -> Any:
    """Declare a number above `low` and at most `high`; None, where allowed, passes."""
    return _declared(default, Declaration(low, high, True, otherwise=otherwise, **known))


def rate(default: Any, **known: Any) -> Any:
    """Declare a rate: at least 0 and below 1."""
    return _declared(default, Declaration(0, 1, open_high=True, **known))


def value(default: Any, **known: Any) -> Any:
    """Declare a word, a flag, a text or several of them."""
    return _declared(default, Declaration(**known))


def _declared(default: Any, declaration: Declaration) -> Any:
    return field(default=default, metadata={_KEY: declaration})


def declaration(item: "dataclasses.Field[Any]") -> Declaration:
    """Return the declaration of a field of a dataclass."""
    return item.metadata.get(_KEY, _UNDECLARED)


def declarations(kind: Any, prefix: str = "") -> Iterator[tuple[str, Declaration]]:
    """Yield the path and the declaration of each field of a config class or object, nested too."""
    for item in dataclasses.fields(kind):
        section = item.default_factory
        if isinstance(section, type) and dataclasses.is_dataclass(section):
            yield from declarations(section, f"{prefix}{item.name}.")
        else:
            yield prefix + item.name, declaration(item)


def check_bounds(section: Any) -> None:
    """Reject numbers of a section that are out of their bounds."""
    for item in dataclasses.fields(section):
        known, number = declaration(item), getattr(section, item.name)
        if known.low is None or number is None or known.admits(number):
            continue
        said = rounded(number) if known.open_low or known.open_high else ""
        raise UserError(f"{item.name}={number}: must be {known.bounds}{said}{known.otherwise}")
