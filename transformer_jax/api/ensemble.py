"""Several trained models as one."""

from collections.abc import Sequence
from typing import Any

from transformer_jax.api.trained import TrainedModel
from transformer_jax.decoding.text.attention import CrossAttention
from transformer_jax.decoding.text.inside import Inside
from transformer_jax.errors import UserError


class TrainedEnsemble(TrainedModel):
    """Several models with the same tokenizers as one; `config.decoding.ensemble` says how.

    Settings and lexicon are those of the first model.
    """

    def __init__(self, members: Sequence[TrainedModel]) -> None:
        first = members[0]
        params = [member.params for member in members]
        steps = [step for member in members for step in member.steps]
        given = first.experiment, first.model, params, first.tokenizers, steps, first.path
        super().__init__(*given)
        self.members = list(members)
        self._models = [member.model for member in members]

    def __repr__(self) -> str:
        return f"<TrainedEnsemble of {self.members}>"

    def attention(self, source: str, target: str | None = None) -> CrossAttention:
        """Refuse: attention is of one model."""
        raise UserError("attention is of one model: load one checkpoint of one work directory")

    def inside(self, source: str, target: str | None = None) -> dict[str, Inside]:
        """Refuse: layers are of one model."""
        raise UserError("inside is of one model: load one checkpoint of one work directory")

    def classify(self, texts: Any) -> Any:
        """Refuse: probabilities are of one model."""
        raise UserError("classify is of one model: load one checkpoint of one work directory")

    def score(self, src: Any, tgt: Any = None) -> Any:
        """Refuse: log-probabilities are of one model."""
        raise UserError("score is of one model: load one checkpoint of one work directory")
