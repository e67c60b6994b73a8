"""Searches: how a text is found, given a model."""

from dataclasses import dataclass

from transformer_jax.config.choices.record import Record


@dataclass(frozen=True, kw_only=True)
class Search(Record):
    """What is known about a search.

    draws: whether it is random, a function of `seed`.
    width: the field that says how many hypotheses of a sentence there are.
    """

    draws: bool
    width: str


SEARCHES = {
    "beam": Search(draws=False, width="beam_size", reads=("beam_size",)),
    "sample": Search(
        draws=True, width="num_samples",
        reads=("num_samples", "temperature", "top_k", "top_p", "seed"),
    ),
}  # fmt: skip
