"""A single stack that reads a text and continues or classifies it (GPT: Radford et al. 2018, 2019).

With ranks it is also a prefix language model (Raffel et al. 2020, arXiv:1910.10683, section 3.2.1).
"""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.encoder import pool, set_class_heads
from transformer_jax.models.model import Output
from transformer_jax.models.network import Memory, Network, NetworkStepper
from transformer_jax.nn.roles import LOGITS
from transformer_jax.nn.view import self_view


class Decoder(Network):
    """Embedding, decoder and pre-softmax product, without a source. Or, in place of that product, a
    linear map of the hidden states that `pooling` selects to a prediction about the text.
    """

    @property
    def writes(self) -> bool:
        """Whether it predicts pieces, and reads the target side."""
        return "tokens" in self.predicts

    @nn.nowrap
    def stepper(self, params: Any) -> NetworkStepper | None:
        """See Model."""
        return super().stepper(params) if self.writes else None

    def setup(self) -> None:
        c = self.config
        size = self.tgt_vocab_size if self.writes else self.src_vocab_size
        self.embedding = self.tgt_embedding = self.new_embedding(size)
        if self.writes:
            own = c.tied_embeddings == "none"
            self.output = self.new_embedding(size, LOGITS) if own else self.embedding
            self.logits_bias = self.new_logits_bias()
        set_class_heads(self)
        self.positions = self.new_positions()
        self.tgt_positions = self.positions
        self.input_norm = self.new_input_norm()
        self.tgt_input_norm = self.input_norm
        self.dropout = self.new_dropout()
        self.decoder = self.new_stack(c.num_decoder_layers, c.decoder_pattern, cross=False)

    def __call__(self, batch: Batch, train: bool) -> dict[str, Output]:
        assert batch.tgt is not None
        if self.writes:
            return self.write(batch.tgt, None, train)
        assert batch.src is not None
        inputs, pos, seg = map(jnp.asarray, batch.src[:3])
        x = self.embed_target(inputs, pos, pos.shape[1], train)
        x = self.decoder(x, self_view(pos, seg, "causal", single=self.single), train)
        pooled = pool(Memory(x, pos, seg), batch.tgt, self.config.pooling)
        pooled = self.dropout(pooled, train)
        return {name: Output(pooled, getattr(self, f"{name}_head")()) for name in self.predicts}

    def encode(self, side: Side | None, train: bool) -> None:
        """There is nothing to encode."""

    @nn.nowrap
    def context(self, side: Side) -> Batch:
        """See Network. With ranks, a prompt sees itself in both directions."""
        return Batch(None, side._replace(rank=jnp.zeros_like(side.pos)), {})

    @nn.nowrap
    def example(self) -> Batch:
        """See Model."""
        ones = np.ones((1, 2), np.int32)
        side = Side(ones, ones, ones, ones)
        return Batch(None if self.writes else side, side, {})
