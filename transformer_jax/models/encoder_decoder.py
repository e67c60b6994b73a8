"""The paper's model (section 3)."""

from typing import Any

import flax.linen as nn
import jax
import numpy as np

from transformer_jax.base.arrays import Array, Float
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.encoder import set_class_heads
from transformer_jax.models.model import Output, Pointed
from transformer_jax.models.network import Memory, Network, silenced
from transformer_jax.nn.positions import without_order
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
    """Embeddings, encoder, decoder and pre-softmax product; and what the encoder alone predicts, if
    the objective asks for CTC.
    """

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
        set_class_heads(self)

    def __call__(self, batch: Batch, train: bool) -> dict[str, Output]:
        assert batch.src is not None
        assert batch.tgt is not None
        memory = self.encode(batch.src, train)
        outputs = self.write(batch.tgt, memory, train)
        if "ctc" in self.predicts:
            outputs["ctc"] = self.aligned(memory, train)
        return outputs

    def aligned(self, memory: Memory, train: bool) -> Pointed:
        """Return CTC's prediction of a piece at each position of the source."""
        head = self.ctc_head()
        logits = head.logits(self.dropout(memory.hidden, train))
        return Pointed(silenced(logits, memory.seg), head)

    def paths(self, memory: Memory | None) -> Float[Array, "B S V"] | None:
        """See Network."""
        if memory is None or "ctc" not in self.predicts:
            return None
        return jax.nn.log_softmax(self.aligned(memory, False).logits())

    def encode(self, side: Side | None, train: bool) -> Memory:
        """Return the encoder's output."""
        assert side is not None
        x, pos, seg = self.entered(side)
        if self.config.unordered_pieces:
            pos = without_order(side.inputs, pos, self.config.unordered_pieces)
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
