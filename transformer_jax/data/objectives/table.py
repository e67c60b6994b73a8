"""The table of objectives by their words, in the order of the manual.

The entries are those of the modules beside it: each calls `WORDS` what its objects are in
`objective.name`. `config/choices/objectives.py` says what is known about each word.
"""

from transformer_jax.config import Experiment
from transformer_jax.config.choices import objectives
from transformer_jax.config.choices.codecs import CODECS
from transformer_jax.config.registry import found_in, pick
from transformer_jax.data import objectives as here
from transformer_jax.data.objectives.objective import BaseObjective, Objective

_FOUND = found_in(here, besides=__name__)
OBJECTIVES: dict[str, BaseObjective] = {
    word: _FOUND[word] for word in objectives.OBJECTIVES if word in _FOUND
}


def noun_of(objective: Objective, experiment: Experiment) -> str:
    """Return what messages call an item: an objective of texts may read pictures or sounds."""
    if objective.noun != "text":
        return objective.noun
    codec = CODECS.get(experiment.codecs[0])
    return codec.noun if codec is not None and codec.noun else objective.noun


def objective_named(name: str) -> Objective:
    """Return an entry of the table, or a user-defined part."""
    return pick(OBJECTIVES, name, "config.objective.name")
