"""The base of all models: their arguments, tables and dropout; and of their steppers."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Bool, Float, Int
from transformer_jax.config import ModelConfig
from transformer_jax.config.registry import pick
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.model import Keys, Output
from transformer_jax.models.parametrization import logits_factor
from transformer_jax.nn.dropout import Dropout
from transformer_jax.nn.embedding import Embed, Head, LogitsBias, Shortlist, capped
from transformer_jax.nn.roles import EMBEDDING, Role
from transformer_jax.nn.stems import STEMS, Stem
from transformer_jax.nn.view import Order


class Core(nn.Module):
    """A Model whose subclasses define how it reads and writes: see `models.model.Model`.

    `order` is what the objective guarantees about the target side's ranks; `single`, whether each
    row holds one segment, from its start; `predicts`, what it has targets for; `lengths`, the
    lengths of both sides of every example, if they are fixed.
    """

    config: ModelConfig
    src_vocab_size: int
    tgt_vocab_size: int
    dtype: jnp.dtype = jnp.float32
    order: Order = "causal"
    single: bool = False
    predicts: Sequence[str] = ("tokens",)
    lengths: tuple[int, int] | None = None

    @nn.nowrap
    def outputs(self, params: Any, batch: Batch, keys: Keys | None) -> dict[str, Output]:
        """See Model."""
        rngs = None if keys is None else keys._asdict()
        apply: Any = self.apply
        return apply({"params": params}, batch, keys is not None, rngs=rngs)

    @nn.nowrap
    def context(self, side: Side) -> Batch:
        """See Stepper: a source, or a prompt."""
        raise NotImplementedError

    def predicted(self, x: Float[Array, "B T D"]) -> Output:
        """Return the prediction of the next token from hidden states."""
        c = self.config
        factor = c.logits_factor * (c.d_model**-0.5 if c.logits_scale else 1) * logits_factor(c)
        if factor != 1:
            x = x * jnp.asarray(factor, x.dtype)
        return Output(x, self.head())

    def head(self) -> Head:
        """Return the pre-softmax map."""
        head = self.output.head()._replace(softcap=self.config.logits_softcap)
        return head._replace(bias=self.logits_bias()) if self.config.logits_bias else head

    def shortlisted(self, pieces: Int[Array, "B K"] | None) -> Shortlist | None:
        """Return the map to the pieces of each sentence's shortlist, if there is one."""
        return None if pieces is None else self.head().among(jnp.asarray(pieces), self.dtype)

    def logits(self, x: Float[Array, "B T D"], short: Shortlist | None) -> Float[Array, "B T K"]:
        """Return the logits of the next token, over a shortlist if there is one."""
        output = self.predicted(x)
        if short is None:
            return output.logits()
        return capped(short.logits(output.hidden), self.config.logits_softcap)

    @nn.nowrap
    def new_stem(self, begun: bool) -> Stem | None:
        """Return the input layer of a source side of vectors, `begun` if there is a position before
        each sequence; None for pieces, which have a table.
        """
        stem = pick(STEMS, self.config.stem, "config.model.stem")
        return None if stem is None else stem(self.config, self.src_vocab_size, self.dtype, begun)

    @nn.nowrap
    def example_source(self) -> Side:
        """Return a source side of minimal size."""
        ones = np.ones((1, 2), np.int32)
        if self.config.stem == "embedding":
            return Side(ones, ones, ones)
        length = 1 + math.prod(self.config.grid) if self.lengths is None else self.lengths[0]
        ones = np.ones((1, length), np.int32)
        return Side(np.ones((1, length, self.src_vocab_size), np.float32), ones, ones)

    @nn.nowrap
    def new_embedding(self, size: int, role: Role = EMBEDDING) -> Embed:
        """Return a piece table."""
        return Embed(size, self.config, self.dtype, role)

    @nn.nowrap
    def new_logits_bias(self) -> LogitsBias | None:
        """Return what is added to the logits of pieces."""
        return LogitsBias(self.tgt_vocab_size) if self.config.logits_bias else None

    @nn.nowrap
    def new_dropout(self) -> Dropout:
        """Return the dropout of embeddings."""
        return Dropout(self.config.dropout_rate)


class CoreStepper:
    """A Stepper: see `models.model.Stepper`. Of a model whose `begin` returns the state before the
    first step, with a field `shortlist`, and whose `extend` makes a step.
    """

    def __init__(self, model: Core, params: Any) -> None:
        self._model, self._variables = model, {"params": params}
        self._apply: Any = model.apply

    def context(self, side: Side) -> Batch:
        """See Stepper."""
        return self._model.context(side)

    def start(
        self, batch: Batch, width: int, length: int, reach: int = 1, shortlist: Any = None
    ) -> Any:
        """See Stepper."""
        state = self._apply(self._variables, batch, width, length, reach, method="begin")
        short = self._apply(self._variables, shortlist, method="shortlisted")
        return replace(state, shortlist=short)

    def step(
        self, state: Any, tokens: Int[Array, "B W T"], positions: Int[Array, "B T"],
        active: Bool[Array, "B"],
    ) -> tuple[Float[Array, "B W T V"], list[Array] | None, Any]:  # fmt: skip
        """See Stepper."""
        return self._apply(self._variables, state, tokens, positions, active, method="extend")
