"""A few latents that attend to the whole input, whatever its kind and length (Perceiver: Jaegle et
al. 2021, arXiv:2103.03206), and queries that attend to them (Perceiver IO: arXiv:2107.14795).
"""

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.encoder import Encoder, chosen
from transformer_jax.models.layers import CrossLayer
from transformer_jax.models.model import Output
from transformer_jax.models.network import Memory
from transformer_jax.nn.embedding import Head
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.roles import PLAIN
from transformer_jax.nn.view import cross_view, self_view

_DEVIATION = 0.02  # of initial latents, as in the authors' code


class Perceiver(Encoder):
    """Embedding or stem, latents that attend to it once, layers over the latents, and a query to
    them for each prediction: a class has a trained query, a piece that of its position.

    Positions are added to the input, as in all models here, not concatenated with it. Blocks share
    parameters with `layer_sharing="all"`. Each row of a batch holds one text.
    """

    def setup(self) -> None:
        c = self.config
        self.set_inputs()
        init = named(nn.initializers.normal(_DEVIATION), None, "embed", role=PLAIN)
        self.latents = parameter(self, "latents", init, (c.num_latents, c.d_model))
        self.input_layer = CrossLayer(c, self.dtype)
        self.encoder = self.new_stack(c.num_encoder_layers, c.encoder_pattern, cross=False)
        if self.asks("text"):
            query = named(nn.initializers.normal(_DEVIATION), "embed", role=PLAIN)
            self.class_query = parameter(self, "class_query", query, (c.d_model,))
        if "tokens" in self.predicts:
            self.query_positions = self.new_positions()
            zeros = named(nn.initializers.zeros, "vocab", role=PLAIN)
            self.piece_bias = parameter(self, "piece_bias", zeros, (self.src_vocab_size,))
        self.output_layer = CrossLayer(c, self.dtype)
        self.set_heads()

    def __call__(self, batch: Batch, train: bool) -> dict[str, Output]:
        src, outputs = batch.src, {}
        assert src is not None
        memory = self.encode(src, train)
        if "tokens" in self.predicts:
            queries = self.query_positions.embed(jnp.asarray(src.pos), src.pos.shape[1])
            outputs["tokens"] = self.predicted(self._answered(queries, src, memory, train))
        for name in chosen(self):
            assert batch.tgt is not None
            queries = jnp.broadcast_to(
                self.class_query, (*batch.tgt.pos.shape, len(self.class_query))
            )
            hidden = self.dropout(self._answered(queries, batch.tgt, memory, train), train)
            outputs[name] = Output(hidden, getattr(self, f"{name}_head")())
        return outputs

    def encode(self, side: Side | None, train: bool) -> Memory:
        """Return the latents after all layers, with their indices as positions."""
        assert side is not None
        x, pos, seg = self.placed(side, train)
        many = seg.shape[0], self.config.num_latents
        numbers = jnp.broadcast_to(jnp.arange(many[1], dtype=jnp.int32)[None], many)
        segments = jnp.broadcast_to(seg.max(1, keepdims=True), many)
        latents = jnp.broadcast_to(self.latents.astype(x.dtype), (*many, x.shape[2]))
        look = cross_view(numbers, segments, pos, seg, self.single)
        latents = self.input_layer(latents, x, look, train)
        view = self_view(numbers, segments, "all", single=self.single)
        return Memory(self.encoder(latents, view, train), numbers, segments)

    def _answered(
        self, queries: Float[Array, "B T D"], side: Side, memory: Memory, train: bool
    ) -> Float[Array, "B T D"]:
        """Return what queries at the positions of a side gather from the latents."""
        hidden, pos, seg = memory
        look = cross_view(jnp.asarray(side.pos), jnp.asarray(side.seg), pos, seg, self.single)
        return self.output_layer(queries.astype(hidden.dtype), hidden, look, train)

    def predicted(self, x: Float[Array, "B S D"]) -> Output:
        """Return the prediction of the piece at each hidden state's position."""
        output = super(Encoder, self).predicted(x)
        return output._replace(head=Head(output.head.table, self.piece_bias))
