"""Decision Transformers: the actions of an agent as a sequence (Chen et al. 2021,
arXiv:2106.01345).
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float, at_least_float32
from transformer_jax.config.registry import pick
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.encoder import ClassHead
from transformer_jax.models.model import Output
from transformer_jax.models.network import Network
from transformer_jax.nn.linear import Project
from transformer_jax.nn.roles import HEAD
from transformer_jax.nn.stems import STEMS
from transformer_jax.nn.view import self_view


class Acted(Output):
    """Continuous actions [B T A], without a head."""

    def logits(self) -> Float[Array, "B T A"]:
        """Return the actions, at least in float32."""
        return self.hidden


class DecisionTransformer(Network):
    """Stem, decoder, and a map from the output at each state to the action there.

    The source side has the time, the return and the state of each step, the target side its action,
    which only later steps see. Whatever `positions` has for a time step is added to all parts of
    it; `max_positions` are the time steps.
    """

    @property
    def predicted_name(self) -> str:
        """The name of what the objective predicts."""
        (name,) = self.predicts
        return name

    def setup(self) -> None:
        c = self.config
        stem: Any = pick(STEMS, c.stem, "config.model.stem")
        self.stem = stem(
            c, self.src_vocab_size, self.dtype, False, actions=self.tgt_vocab_size,
            returns=self.predicted_name == "action",
        )  # fmt: skip
        self.positions = self.new_positions()
        self.input_norm = self.new_input_norm()
        self.dropout = self.new_dropout()
        self.decoder = self.new_stack(c.num_decoder_layers, c.decoder_pattern, cross=False)
        if c.actions == "discrete":
            self.action_head: Any = ClassHead(c, self.tgt_vocab_size)
        else:
            sizes = (c.d_model,), (self.tgt_vocab_size,)
            self.action_head = Project(*sizes, ("embed", "features"), self.dtype, role=HEAD)

    def __call__(self, batch: Batch, train: bool) -> dict[str, Output]:
        src, tgt = batch.src, batch.tgt
        assert src is not None
        assert tgt is not None
        inputs, pos, seg = map(jnp.asarray, src[:3])
        times = jnp.round(inputs[..., 0]).astype(jnp.int32)
        of_time = self.positions.embed(times, self.config.max_positions)
        x, places, segments = self.stem(inputs, self._vectors(tgt.inputs), of_time, pos, seg)
        x = self.dropout(x if self.input_norm is None else self.input_norm(x), train)
        x = self.decoder(x, self_view(places, segments, "causal", single=self.single), train)
        at_states = x.reshape(*pos.shape, -1, x.shape[-1])[:, :, -2]
        if self.config.actions == "discrete":
            return {self.predicted_name: Output(at_states, self.action_head())}
        nothing: Any = None
        acted = Acted(jnp.tanh(at_least_float32(self.action_head(at_states))), nothing)
        return {self.predicted_name: acted}

    def _vectors(self, actions: Any) -> Float[Array, "B T A"]:
        """Return actions as the stem reads them."""
        actions = jnp.asarray(actions)
        if self.config.actions == "continuous":
            return actions
        return jax.nn.one_hot(actions, self.tgt_vocab_size, dtype=self.dtype)

    @nn.nowrap
    def stepper(self, params: object) -> None:
        """See Model: it writes nothing; see `decoding.acting`."""

    @nn.nowrap
    def example(self) -> Batch:
        """See Model."""
        ones = np.ones((1, 2), np.int32)
        vectors = np.ones((1, 2, self.src_vocab_size), np.float32)
        actions = np.zeros_like(ones)
        if self.config.actions == "continuous":
            actions = np.zeros((1, 2, self.tgt_vocab_size), np.float32)
        return Batch(Side(vectors, ones, ones), Side(actions, ones, ones), {})
