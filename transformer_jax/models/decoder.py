"""One stack that reads a text and writes on (GPT: Radford et al. 2018, 2019).

With ranks it is a prefix language model too (Raffel et al. 2020, arXiv:1910.10683, section 3.2.1).
"""

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from transformer_jax.data.batch import Batch, Side
from transformer_jax.models.model import Output
from transformer_jax.models.network import Network


class Decoder(Network):
    """Embedding, decoder and pre-softmax product; there is no source."""

    def setup(self) -> None:
        c = self.config
        self.embedding = self.new_embedding(self.tgt_vocab_size)
        self.tgt_embedding = self.output = self.embedding
        if c.tied_embeddings == "none":
            self.output = self.new_embedding(self.tgt_vocab_size)
        self.positions = self.new_positions()
        self.tgt_positions = self.positions
        self.input_norm = self.new_input_norm()
        self.tgt_input_norm = self.input_norm
        self.dropout = self.new_dropout()
        self.decoder = self.new_stack(c.num_decoder_layers, c.decoder_pattern, cross=False)

    def __call__(self, batch: Batch, train: bool) -> dict[str, Output]:
        assert batch.tgt is not None
        return self.write(batch.tgt, None, train)

    def encode(self, side: Side | None, train: bool) -> None:
        """There is nothing to encode."""

    @nn.nowrap
    def context(self, side: Side) -> Batch:
        """See Network. By ranks, a prompt sees itself in both directions."""
        return Batch(None, side._replace(rank=jnp.zeros_like(side.pos)), {})

    @nn.nowrap
    def example(self) -> Batch:
        """See Model."""
        ones = np.ones((1, 2), np.int32)
        return Batch(None, Side(ones, ones, ones, ones), {})
