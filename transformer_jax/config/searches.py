"""The search that changed fields of config.decoding ask for."""

from collections.abc import Mapping
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.config.choices.record import readers
from transformer_jax.config.choices.searches import SEARCHES

SAMPLING = SEARCHES["sample"].reads
_READERS = readers(SEARCHES)


def with_search(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return changed fields with the search they ask for: each asks for the search that reads it,
    first of all those of random texts.

    Raises:
      UserError: if they contradict one another.
    """
    asking = [name for name in _READERS if name in fields]
    if not asking:
        return dict(fields)
    first = next((name for name in asking if name in SAMPLING), asking[0])
    search = fields.get("search", _READERS[first][0])
    for name in sorted(asking, key=lambda name: name not in SAMPLING):
        if search in SEARCHES and search not in _READERS[name]:
            if "search" in fields:
                other, remedy = f"search={search!r}", "leave one of them out"
            else:
                other = f"{first}={fields[first]!r}"
                remedy = "leave it out, or what asks for samples"
            raise UserError(f"{name}={fields[name]!r}: has no effect with {other}; {remedy}")
    return {"search": search} | dict(fields)


def check_search(search: str, fields: Mapping[str, str]) -> None:
    """Refuse fields given on the command line, by their paths, that are those of another search.

    Raises:
      UserError: if there is one.
    """
    for path, text in fields.items():
        group, _, name = path.rpartition(".")
        of = _READERS.get(name, (search,))
        if group == "decoding" and search not in of:
            raise UserError(
                f"--config.{path}={text}: has no effect with decoding.search={search!r}; leave it "
                f"out, or add --config.decoding.search={of[0]}"
            )
