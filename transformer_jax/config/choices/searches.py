"""Searches: how a text is found, or a picture drawn, given a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.config.choices.record import Record, readers, with_


@dataclass(frozen=True, kw_only=True)
class Search(Record):
    """What is known about a search.

    draws: whether it is random, a function of `seed`.
    competes: whether the hypotheses of a sentence are chosen from one another at every step; not if
      each is written by itself.
    width: the field that says how many hypotheses of a sentence there are.
    values: whether it draws values, such as the pixels of a picture, and does not write pieces.
    """

    draws: bool
    competes: bool
    width: str
    values: bool = False


SEARCHES = {
    "beam": Search(draws=False, competes=True, width="beam_size", reads=("beam_size",)),
    "sample": Search(
        draws=True, competes=False, width="num_samples",
        reads=("num_samples", "temperature", "top_k", "top_p", "min_p", "seed"),
    ),
    **{
        word: Search(
            draws=True, competes=False, width="num_samples", values=True,
            reads=("sampling_steps", "guidance", "num_samples", "seed", "autoencoder"),
        )
        for word in ("euler", "heun", "ancestral")
    },
}  # fmt: skip
OF_VALUES = with_(SEARCHES, values=True)
SAMPLING = SEARCHES["sample"].reads
_READERS = readers(SEARCHES)
# The fields that ask for the likeliest piece at each step, and for one text whatever the search.
GREEDY: dict[str, Any] = {"search": "beam", "beam_size": 1}
ONE: dict[str, Any] = {record.width: 1 for record in SEARCHES.values()}


def samples(number: int) -> dict[str, Any]:
    """Return the fields that ask for this many random texts."""
    return {"search": "sample", "num_samples": number}


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
