"""A trained model with what every use of it takes."""

from dataclasses import dataclass, field, replace
from typing import Any

from transformer_jax.base.errors import UserError
from transformer_jax.config import DataConfig, ObjectiveConfig
from transformer_jax.data.batches.batch import Ragged
from transformer_jax.data.codecs.codec import Codec, VectorCodec
from transformer_jax.data.codecs.pair import TokenizerPair
from transformer_jax.data.objectives import Objective, objective_named
from transformer_jax.data.store.token_store import TokenStore
from transformer_jax.models.model import Model


@dataclass(frozen=True, eq=False)
class Loaded:
    """A trained model as all verbs take it: to translate, generate, score, classify and so on are
    functions of it. The members of an ensemble have a list of `params`; `model` is the first.
    """

    model: Model
    params: Any
    codecs: TokenizerPair
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    data: DataConfig = field(default_factory=DataConfig)
    members: tuple[Model, ...] = ()  # of an ensemble

    @property
    def models(self) -> tuple[Model, ...]:
        """All members of an ensemble, or the model alone."""
        return self.members or (self.model,)

    @property
    def task(self) -> Objective:
        """How texts become examples, and what is predicted of them."""
        return objective_named(self.objective.name)

    @property
    def reads(self) -> Codec:
        """The codec of what is read."""
        return self.codecs.tgt if self.objective.one_sided else self.codecs.src

    @property
    def cut_at(self) -> int | None:
        """The most pieces of a source, EOS included, where long ones are truncated."""
        return self.objective.cut_at(self.data)

    def items(self, src: Ragged, tgt: Ragged) -> TokenStore:
        """Return what the objective makes of encoded sources and targets, as in training."""
        store = TokenStore(src, tgt, self.codecs.special(self.objective.record.chats))
        return self.task.items(store, self.objective.measured, self.reads)

    def in_chats(self) -> "Loaded":
        """Return the model as one that answers in conversations.

        Raises:
          UserError: if it has no chat template, or does not continue texts.
        """
        continues = self.objective.record.prompt in ("messages", "beginning")
        if self.codecs.template is None or not continues:
            raise self.refusal(
                "has no chat template, which would make one prompt of messages; train with "
                "objective.name='chat'"
            )
        objective = ObjectiveConfig(name="chat", window=self.objective.window)
        return replace(self, objective=objective)

    def check_text(self, verb: str) -> None:
        """Check that the model reads text, and writes it piece by piece.

        Raises:
          UserError: if it does not.
        """
        if isinstance(self.codecs.src, VectorCodec) or self.objective.record.best_path:
            raise UserError(f"{verb}: is for models that read text and write it piece by piece")

    def refusal(self, why: str) -> UserError:
        """Return the error for a verb that is not one of such a model."""
        return UserError(f"config.objective.name={self.objective.name!r}: such a model {why}")
