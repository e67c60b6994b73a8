"""The paper's model (section 3)."""

from typing import Any

import flax.linen as nn
import numpy as np

from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.model import Output
from transformer_jax.models.network import Memory, Network
from transformer_jax.nn.roles import LOGITS
from transformer_jax.nn.view import self_view


def set_embeddings(model: Any) -> None:
    """Give a model of two sides its tables, tied as its config says, in its `setup`."""
    tied = model.config.tied_embeddings
    if tied == "all":
        model.embedding = model.new_embedding(model.tgt_vocab_size)
        model.src_embedding = model.tgt_embedding = model.output = model.embedding
        return
    reads_pieces = model.config.stem == "embedding"
    model.src_embedding = model.new_embedding(model.src_vocab_size) if reads_pieces else None
    model.tgt_embedding = model.new_embedding(model.tgt_vocab_size)
    one = tied == "decoder"
    model.output = model.tgt_embedding if one else model.new_embedding(model.tgt_vocab_size, LOGITS)


class EncoderDecoder(Network):
    """Embeddings, encoder, decoder and pre-softmax product."""

    def setup(self) -> None:
        c = self.config
        set_embeddings(self)
        self.logits_bias = self.new_logits_bias()
        self.stem = self.new_stem(begun=False)
        self.src_positions, self.tgt_positions = self.new_positions(), self.new_positions()
        self.src_input_norm, self.tgt_input_norm = self.new_input_norm(), self.new_input_norm()
        self.dropout = self.new_dropout()
        self.encoder = self.new_stack(c.num_encoder_layers, c.encoder_pattern, cross=False)
        self.decoder = self.new_stack(c.num_decoder_layers, c.decoder_pattern, cross=True)

    def __call__(self, batch: Batch, train: bool) -> dict[str, Output]:
        assert batch.src is not None
        assert batch.tgt is not None
        return self.write(batch.tgt, self.encode(batch.src, train), train)

    def encode(self, side: Side | None, train: bool) -> Memory:
        """Return the encoder's output."""
        assert side is not None
        x, pos, seg = self.entered(side)
        layers = self.src_positions, self.src_input_norm
        x = self.embedded(lambda _: x, *layers, side.inputs, pos, pos.shape[1], train)
        x = self.encoder(x, self_view(pos, seg, "all", single=self.single), train)
        return Memory(x, pos, seg)

    @nn.nowrap
    def context(self, side: Side) -> Batch:
        """See Network."""
        return Batch(side, None, {})

    @nn.nowrap
    def example(self) -> Batch:
        """See Model."""
        ones = np.ones((1, 2), np.int32)
        return Batch(self.example_source(), Side(ones, ones, ones, ones), {})
