"""The search that changed fields of config.decoding ask for."""

from collections.abc import Mapping
from typing import Any

from transformer_jax.config.choices.searches import SEARCHES
from transformer_jax.errors import UserError

SAMPLING = SEARCHES["sample"].reads


def with_search(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return changed fields with the search they ask for: any of `SAMPLING` asks for random texts,
    `beam_size` for the best text.

    Raises:
      UserError: if they contradict one another.
    """
    drawn = next((name for name in SAMPLING if name in fields), None)
    search = fields.get("search", "beam" if drawn is None else "sample")
    wrong = drawn if search == "beam" else "beam_size" if search == "sample" else None
    if wrong is not None and wrong in fields:
        if "search" in fields:
            other, remedy = f"search={search!r}", "leave one of them out"
        else:
            assert drawn is not None
            other, remedy = f"{drawn}={fields[drawn]!r}", "leave it out, or what asks for samples"
        raise UserError(f"{wrong}={fields[wrong]!r}: has no effect with {other}; {remedy}")
    implied = {"search": search} if drawn is not None or "beam_size" in fields else {}
    return implied | dict(fields)


def check_search(search: str, fields: Mapping[str, str]) -> None:
    """Refuse fields given on the command line, by their paths, that are those of another search.

    Raises:
      UserError: if there is one.
    """
    for path, text in fields.items():
        group, _, name = path.rpartition(".")
        of = "sample" if name in SAMPLING else "beam" if name == "beam_size" else search
        if group == "decoding" and of != search:
            raise UserError(
                f"--config.{path}={text}: has no effect with decoding.search={search!r}; leave it "
                f"out, or add --config.decoding.search={of}"
            )
