"""A decoder whose text follows an encoder's output for vectors, such as a picture (LLaVA: Liu et
al. 2023, arXiv:2304.08485).
"""

import math
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float, Int
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.model import Output
from transformer_jax.models.network import DecodeState, Memory, Network
from transformer_jax.nn.cache import Lanes
from transformer_jax.nn.linear import Project
from transformer_jax.nn.roles import LOGITS, OWN_MAP
from transformer_jax.nn.view import self_view


class PrefixDecoder(Network):
    """Stem, encoder, a linear map, and a decoder whose text is preceded by the output of that map.

    The encoder reads each picture separately, with a position before its vectors: the class token
    of an encoder trained on classes (`architecture="encoder"`), so that its parameters can be
    loaded; the decoder does not see that position's output. To the decoder, vectors are the first
    positions of a text. A row holds one example.
    """

    def setup(self) -> None:
        c = self.config
        self.stem = self.new_stem(begun=True)
        self.src_positions, self.tgt_positions = self.new_positions(), self.new_positions()
        self.src_input_norm, self.tgt_input_norm = self.new_input_norm(), self.new_input_norm()
        self.dropout = self.new_dropout()
        self.encoder = self.new_stack(c.num_encoder_layers, c.encoder_pattern, cross=False)
        self.connector = Project(
            (c.d_model,), (c.d_model,), ("features", "embed"), self.dtype, role=OWN_MAP
        )
        self.embedding = self.new_embedding(self.tgt_vocab_size)
        self.tgt_embedding = self.output = self.embedding
        if c.tied_embeddings == "none":
            self.output = self.new_embedding(self.tgt_vocab_size, LOGITS)
        self.logits_bias = self.new_logits_bias()
        self.decoder = self.new_stack(c.num_decoder_layers, c.decoder_pattern, cross=False)

    def __call__(self, batch: Batch, train: bool) -> dict[str, Output]:
        side = batch.tgt
        assert side is not None
        memory = self.encode(batch.src, train)
        count = (memory.seg > 0).sum(1, keepdims=True)
        pos = jnp.concatenate([memory.pos, jnp.where(side.seg > 0, side.pos + count, 0)], axis=1)
        seg = jnp.concatenate([memory.seg, side.seg], axis=1)
        length = pos.shape[1]
        before = self._placed(memory.hidden, memory.pos, length, train)
        text = self.embed_target(side.inputs, pos[:, memory.pos.shape[1] :], length, train)
        x = jnp.concatenate([before, text], axis=1)
        # Padding separates vectors and text in rows with fewer vectors than others of the batch.
        x = self.decoder(x, self_view(pos, seg, "causal"), train)
        return {"tokens": self.predicted(x[:, memory.pos.shape[1] :])}

    def encode(self, side: Side | None, train: bool) -> Memory:
        """Return the decoder's prefix."""
        assert side is not None
        inputs, pos, seg = map(jnp.asarray, (side.inputs, side.pos, side.seg))
        rows, length, channels = inputs.shape
        each = math.prod(self.config.grid) if self.config.grid else length  # of one picture
        more = -length % each
        pictures = jnp.pad(inputs, ((0, 0), (0, more), (0, 0))).reshape(-1, each, channels)
        here = jnp.pad(seg, ((0, 0), (0, more))).reshape(-1, each)
        pictures = jnp.pad(pictures, ((0, 0), (1, 0), (0, 0)))
        here = jnp.pad(here, ((0, 0), (1, 0)), mode="edge")
        place = jnp.where(here > 0, jnp.arange(1 + each)[None], 0)
        x, place, here = self.entered(Side(pictures, place, here))
        layers = self.src_positions, self.src_input_norm
        x = self.embedded(lambda _: x, *layers, pictures, place, place.shape[1], train)
        x = self.encoder(x, self_view(place, here, "all", single=self.single), train)
        x = self.connector(x[:, 1:]).reshape(rows, length + more, -1)[:, :length]
        return Memory(x, pos, seg)

    def begin(self, batch: Batch, width: int, length: int, reach: int) -> DecodeState:
        """Return the state after the vectors; see `Stepper.start`."""
        memory = self.encode(batch.src, False)
        rows, count = memory.seg.shape
        lanes = Lanes.empty(rows, width, length, self.decoder.in_slots())
        lanes, slots = lanes.prompt(memory.seg, "causal")
        x = self._placed(memory.hidden, slots.view.q_pos, count, False)
        nothing: list[Any] = [None] * self.config.num_decoder_layers
        caches, everyone = self.decoder.empty(lanes), jnp.ones(rows, bool)
        _, caches, _ = self.decoder.extend(x, caches, slots, everyone, nothing, None)
        return DecodeState(nothing, None, [cache.keep(reach) for cache in caches], lanes)

    def _placed(
        self, x: Float[Array, "B S D"], pos: Int[Array, "B S"], limit: int, train: bool
    ) -> Float[Array, "B S D"]:
        """Return the decoder's input for vectors, with positions added."""
        layers = self.tgt_positions, self.tgt_input_norm
        return self.embedded(lambda _: x, *layers, x, pos, limit, train)

    @nn.nowrap
    def context(self, side: Side) -> Batch:
        """See Network."""
        return Batch(side, None, {})

    @nn.nowrap
    def example(self) -> Batch:
        """See Model."""
        ones = np.ones((1, 2), np.int32)
        return Batch(self.example_source(), Side(ones, ones, ones, ones), {})
