"""Searches and engines built from a config, and checks of its settings."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jax.sharding import Mesh

from transformer_jax.base.errors import UserError
from transformer_jax.base.vocabulary import OURS, Special
from transformer_jax.config import DecodingConfig
from transformer_jax.config.choices import searches
from transformer_jax.config.registry import found_in, pick
from transformer_jax.decoding import search
from transformer_jax.decoding.batching.engine import Engine
from transformer_jax.decoding.search.sampling import Sampling
from transformer_jax.decoding.search.speculative import FUTURE, LOOKUPS, ByModel, Speculative
from transformer_jax.decoding.search.state import Constraint, Search
from transformer_jax.decoding.stepper import (
    ENSEMBLES,
    NO_LIMIT,
    Drafted,
    DraftedState,
    Ensemble,
    stepper_of,
)
from transformer_jax.decoding.weights import computing_in, in_compute_dtype
from transformer_jax.models.model import Model, Stepper
from transformer_jax.nn.mixers.kinds import MIXERS

# The searches by their words, in the order of the manual: the `WORDS` of the modules of search/.
FOUND = found_in(search)
SEARCHES = {
    word: FOUND[word]
    for word, record in searches.SEARCHES.items()
    if word in FOUND and not record.values
}


def check_n_best(config: DecodingConfig, n_best: int) -> None:
    """Check that a search keeps as many hypotheses as are wanted.

    Raises:
      UserError: if it does not.
    """
    if not 1 <= n_best <= config.hypotheses:
        raise UserError(
            f"n_best={n_best}: must lie between 1 and "
            f"decoding.{config.record.width}={config.hypotheses}"
        )


def make_search(
    config: DecodingConfig, wanted: int, forbidden: Sequence[int], special: Special = OURS,
    constraint: Constraint | None = None, continues: bool = False,
) -> Search:  # fmt: skip
    """Return the search with these settings, for `wanted` hypotheses, without forbidden pieces;
    `continues`: what is read is a prompt that the output continues.

    Raises:
      UserError: if the tokenizer has no EOS, by which a search knows the end of a text.
    """
    special = special._replace(eos=special.end)
    kind = Sampling if config.greedy else pick(SEARCHES, config.search, "config.decoding.search")
    rule = kind.of(config, wanted, tuple(forbidden), special, constraint, continues)
    if config.draft is None:
        return rule
    return Speculative(rule, LOOKUPS.get(config.draft, ByModel()), config.draft_length)


def foreseeing(config: DecodingConfig, models: Sequence[Model]) -> DecodingConfig:
    """Return the config with at most as many proposals in a pass as a model makes itself, if it is
    its own draft.

    Raises:
      UserError: if it predicts only the next piece, or there are several.
    """
    if config.draft != FUTURE:
        return config
    model, named = models[0].config, f"config.decoding.draft={FUTURE!r}"
    if len(models) > 1:
        raise UserError(f"{named}: is for a single model; name the work directory of a smaller one")
    if model.multi_token == "none":
        raise UserError(
            f"{named}: the model was trained with model.multi_token='none', and predicts only the "
            "next piece; choose 'ngram', or the work directory of a smaller model"
        )
    last = model.decoder_pattern[(model.num_decoder_layers - 1) % len(model.decoder_pattern)]
    if not getattr(pick(MIXERS, last, "config.model.decoder_pattern"), "in_slots", True):
        raise UserError(
            f"{named}: layers of {last!r} keep a state, which further predictions cannot take "
            "back; choose 'ngram', or the work directory of a smaller model"
        )
    return dataclasses.replace(config, draft_length=min(config.draft_length, model.future_tokens))


class Draft(NamedTuple):
    """A smaller model whose proposals the models of a search judge."""

    model: Model
    params: Any


def drafting_in(config: DecodingConfig, draft: Draft | None) -> Draft | None:
    """Return the draft, if any, with the dtype of `decoding.compute_dtype`."""
    if draft is None:
        return None
    return draft._replace(model=computing_in(config.compute_dtype, [draft.model])[0])


def held(models: Sequence[Model], params: Any, draft: Draft | None = None) -> list[Any]:
    """Return the parameters of all models of a search, of one or a list, those of a draft last, as
    they are computed with: see `in_compute_dtype`.
    """
    trees = [params] if len(models) == 1 else [*params]
    if draft is not None:
        models, trees = [*models, draft.model], [*trees, draft.params]
    return [in_compute_dtype(*pair) for pair in zip(models, trees, strict=True)]


@functools.lru_cache(maxsize=8)
def make_engine(
    models: tuple[Model, ...], ensemble: str, mesh: Mesh, draft: Model | None = None
) -> Engine:
    """Return the engine of these models, shared by all searches: it holds compiled programs."""
    return Engine(stepper_maker(models, ensemble, draft), mesh)


def stepper_maker(
    models: Sequence[Model], ensemble: str, draft: Model | None = None
) -> Callable[[Any], Stepper]:
    """Return a function that makes a Stepper from the parameters of one model or several, followed
    by those of a draft.
    """
    mean = pick(ENSEMBLES, ensemble, "config.decoding.ensemble")
    every = models if draft is None else [*models, draft]

    def make_stepper(params: Any) -> Stepper:
        steppers = [stepper_of(model, mine) for model, mine in zip(every, params, strict=True)]
        members = steppers[: len(models)]
        stepper = members[0] if len(members) == 1 else Ensemble(members, mean)
        return (
            stepper if draft is None else Drafted(stepper, steppers[-1], fewest_positions([draft]))
        )

    return make_stepper


def together(states: Sequence[Any], drafted: bool) -> Any:
    """Combine the states of models into that of the Stepper that `stepper_maker` makes."""
    *models, last = states
    models = models if drafted else [*models, last]
    state = models[0] if len(models) == 1 else tuple(models)
    return DraftedState(state, last) if drafted else state


def check_contiguous(config: DecodingConfig, what: str) -> None:
    """Check that no paged cache is requested where there is none.

    Raises:
      UserError: if one is; `what` says for what.
    """
    if config.cache == "paged":
        raise UserError(
            f"config.decoding.cache='paged': is for prompts that are continued in batches, not for "
            f"{what}; set it to 'contiguous'"
        )


def check_pages(models: Sequence[Model]) -> None:
    """Check that a model can use a paged cache.

    Raises:
      UserError: if it cannot.
    """
    config, paged = models[0].config, "config.decoding.cache='paged'"
    if len(models) > 1:
        raise UserError(f"{paged}: pages are for one model; set it to 'contiguous' for an ensemble")
    if config.architecture != "decoder" or getattr(models[0], "order", "causal") != "causal":
        raise UserError(
            f"{paged}: only a decoder that reads from left to right can share the pages of prompts "
            "that begin alike; set it to 'contiguous'"
        )
    kinds = [pick(MIXERS, name, "config.model.decoder_pattern") for name in config.decoder_pattern]
    attributes = "in_slots", "in_pages"
    if not all(getattr(kind, name, True) for kind in kinds for name in attributes):
        raise UserError(
            f"{paged}: config.model.decoder_pattern={config.decoder_pattern} has layers whose past "
            "has a constant size, a state or a window, and no pages; set it to 'contiguous'"
        )


def fewest_positions(models: Sequence[Model]) -> int:
    """Return how many positions all of the models have."""
    return min(model.config.position_limit or NO_LIMIT for model in models)


def room_behind(models: Sequence[Model], length: int) -> int:
    """Return how many pieces may be written for a source or a prompt of this length."""
    configs = [model.config for model in models]
    return min((c.position_limit or NO_LIMIT) - length * c.one_sequence for c in configs)


def until_eos(tokens: list[int], special: Special = OURS) -> list[int]:
    """Cut after the first EOS, or before the padding."""
    if special.eos in tokens:
        return tokens[: tokens.index(special.eos) + 1]
    return [token for token in tokens if token != special.pad]
