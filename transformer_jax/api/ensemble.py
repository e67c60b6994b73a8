"""Ensembles of trained models."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from transformer_jax.api.trained import TrainedModel
from transformer_jax.base.errors import UserError
from transformer_jax.decoding.loaded import Loaded


class TrainedEnsemble(TrainedModel):
    """Several models with the same tokenizers, combined as `config.decoding.ensemble` says.

    Settings and lexicon come from the first model.
    """

    def __init__(self, members: Sequence[TrainedModel]) -> None:
        first = members[0]
        params = [member.params for member in members]
        steps = [step for member in members for step in member.steps]
        parts = first.experiment, first.model, params, first.tokenizers, steps, first.path
        super().__init__(*parts)
        self.members = list(members)

    @property
    def loaded(self) -> Loaded:
        """See TrainedModel."""
        return replace(super().loaded, members=tuple(member.model for member in self.members))

    def __repr__(self) -> str:
        return f"<TrainedEnsemble of {self.members}>"


def _of_one(name: str) -> Callable:
    def refuse(self: TrainedEnsemble, *arguments: Any, **options: Any) -> Any:
        raise UserError(f"{name} needs a single model: load one checkpoint of one work directory")

    refuse.__doc__ = f"Refuse: {name} needs a single model."
    return refuse


# What an ensemble supports; all other public methods are refused, including future ones.
_TOGETHER = {"loaded", "translator", "translate", "generator", "generate", "stream", "opened"}
for _name in dir(TrainedModel):
    if not _name.startswith("_") and _name not in _TOGETHER:
        setattr(TrainedEnsemble, _name, _of_one(_name))
