"""Searches: how a text is found, given a model."""

from dataclasses import dataclass
from typing import Any

from transformer_jax.config.choices.record import Record


@dataclass(frozen=True, kw_only=True)
class Search(Record):
    """What is known about a search.

    draws: whether it is random, a function of `seed`.
    competes: whether the hypotheses of a sentence are chosen from one another at every step; not if
      each is written by itself.
    width: the field that says how many hypotheses of a sentence there are.
    """

    draws: bool
    competes: bool
    width: str


SEARCHES = {
    "beam": Search(draws=False, competes=True, width="beam_size", reads=("beam_size",)),
    "sample": Search(
        draws=True, competes=False, width="num_samples",
        reads=("num_samples", "temperature", "top_k", "top_p", "seed"),
    ),
}  # fmt: skip
# The fields that ask for the likeliest piece at each step, and for one text whatever the search.
GREEDY: dict[str, Any] = {"search": "beam", "beam_size": 1}
ONE: dict[str, Any] = {record.width: 1 for record in SEARCHES.values()}


def samples(number: int) -> dict[str, Any]:
    """Return the fields that ask for this many random texts."""
    return {"search": "sample", "num_samples": number}
