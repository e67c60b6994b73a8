"""Translation models before the Transformer: recurrent encoders and decoders.

The config selects the model: without `source_attention`, Sutskever et al.'s (2014) or, with
`recurrence=bahdanau`, Cho et al.'s; with it, RNNsearch, Luong et al.'s, GNMT or RNMT+. The encoder
may be the Transformer's (Chen et al. 2018, arXiv:1804.09849).
"""

from dataclasses import replace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from transformer_jax.base.arrays import Array, Bool, Float, Int, Size
from transformer_jax.config.registry import pick
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.core import Core, CoreStepper
from transformer_jax.models.encoder_decoder import set_embeddings
from transformer_jax.models.model import Output
from transformer_jax.models.stack import Stack
from transformer_jax.nn.dropout import Dropout
from transformer_jax.nn.embedding import Shortlist
from transformer_jax.nn.mixers.kinds import MIXERS
from transformer_jax.nn.mixers.recurrence import trailed
from transformer_jax.nn.mixers.recurrent import TwoWay
from transformer_jax.nn.norm import make_norm
from transformer_jax.nn.positions import positions_of
from transformer_jax.nn.recurrent_decoders import Bahdanau, Gnmt, Luong, RecurrentDecoder
from transformer_jax.nn.rnmt_plus import RnmtPlus
from transformer_jax.nn.source_attention import Source
from transformer_jax.nn.states import States
from transformer_jax.nn.view import View, self_view

RECURRENCES: dict[str, type[RecurrentDecoder]] = {
    "luong": Luong,
    "bahdanau": Bahdanau,
    "gnmt": Gnmt,
    "rnmt_plus": RnmtPlus,
}


class Read(nn.Module):
    """Recurrent layers that read a source, each followed by dropout; in GNMT and RNMT+, layers from
    the third on have residual connections.
    """

    config: Any
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        kinds = [c.encoder_pattern[i % len(c.encoder_pattern)] for i in range(c.num_encoder_layers)]
        self.layer = [MIXERS[kind](c, self.dtype) for kind in kinds]
        self.two_way = issubclass(MIXERS[kinds[-1]], TwoWay)

    def __call__(
        self, x: Float[Array, "B S D"], seg: Int[Array, "B S"], drop: Dropout, train: bool
    ) -> Array:
        view, x = _all(seg), drop(x, train)
        adds = self.config.recurrence in ("gnmt", "rnmt_plus")
        for number, layer in enumerate(self.layer):
            y = drop(layer.mix(x, view, False)[0], train)
            x = x + y if adds and number > 1 else y
        return x


def _all(seg: Int[Array, "B S"]) -> View:
    """Return the view of one text per row on all of itself."""
    pos = jnp.broadcast_to(jnp.arange(seg.shape[1])[None], seg.shape)
    return self_view(pos, seg, "all", single=True)


class RecurrentTranslator(Core):
    """Embeddings, an encoder, a decoder of cells, the pre-softmax product; a row holds one text."""

    def setup(self) -> None:
        set_embeddings(self)
        self.dropout = self.new_dropout()
        c = self.config
        self.encoder: Any
        if c.reads_by_cells:
            self.encoder = Read(c, self.dtype)
        else:  # with the Transformer's parameter names
            layers = c.num_encoder_layers, c.encoder_pattern
            self.encoder = Stack(c, self.dtype, *layers, cross=False)
            self.src_positions = positions_of(c)
            self.src_input_norm = make_norm(c) if c.input_norm else None
        recurrence = pick(RECURRENCES, self.config.recurrence, "config.model.recurrence")
        self.decoder = recurrence(self.config, self.dtype)

    def __call__(self, batch: Batch, train: bool) -> dict[str, Output]:
        src, tgt = batch.src, batch.tgt
        assert src is not None
        assert tgt is not None
        memory, summary = self.read(src, train)
        source = self.decoder.prepare(memory, jnp.asarray(src.seg))
        y = self.dropout(self.tgt_embedding(tgt.inputs), train)
        layers = self.config.num_decoder_layers
        kept = jnp.ones((*y.shape[:2], layers, y.shape[2]), y.dtype)
        kept = self.dropout(kept.reshape(y.shape[0], -1, y.shape[2]), train).reshape(kept.shape)
        tokens = y, jnp.broadcast_to(tgt.pos, y.shape[:2]), kept
        first = self.decoder.begin(summary)
        (outputs, _), _ = trailed(self.decoder.step(source), first, tokens)
        return {"tokens": self.predicted(self.decoder.predict(outputs, y))}

    def read(self, src: Side, train: bool) -> tuple[Float[Array, "B S D"], Float[Array, "B D"]]:
        """Return the encoder's output at each position of the source, and a summary of the whole
        source: the last layer's final output in each direction.
        """
        seg = jnp.asarray(src.seg)
        last = jnp.maximum((seg > 0).sum(1) - 1, 0)
        ids, turned = jnp.asarray(src.inputs), jnp.arange(seg.shape[1])[None]
        if self.config.reverse_source:
            turned = jnp.where(turned <= last[:, None], last[:, None] - turned, turned)
            ids = jnp.take_along_axis(ids, turned, axis=1)
        x = self.encoded(self.src_embedding(ids), seg, train)
        summary = jnp.take_along_axis(x, last[:, None, None], axis=1)[:, 0]
        if self.config.reads_by_cells and self.encoder.two_way:
            half = x.shape[2] // 2
            summary = jnp.concatenate([summary[:, :half], x[:, 0, half:]], axis=-1)
        if self.config.reverse_source:
            x = jnp.take_along_axis(x, turned[..., None], axis=1)
        return x, summary

    def encoded(self, x: Float[Array, "B S D"], seg: Int[Array, "B S"], train: bool) -> Array:
        """Return the encoder's output for embeddings."""
        if self.config.reads_by_cells:
            return self.encoder(x, seg, self.dropout, train)
        view = _all(seg)
        vectors = self.src_positions.embed(view.q_pos, seg.shape[1])
        x = x if vectors is None else x + vectors.astype(x.dtype)
        x = x if self.src_input_norm is None else self.src_input_norm(x)
        return self.encoder(self.dropout(x, train), view, train)

    @nn.nowrap
    def stepper(self, params: Any) -> "RecurrentStepper":
        """See Model."""
        return RecurrentStepper(self, params)

    def begin(self, batch: Batch, width: Size, length: Size, reach: int) -> "ReadState":
        """Return the state after the source; see `Stepper.start`."""
        assert batch.src is not None
        memory, summary = self.read(batch.src, False)
        source = self.decoder.prepare(memory, jnp.asarray(batch.src.seg))
        return ReadState(*source, States.of(self.decoder.begin(summary), width).keep(reach))

    def extend(
        self,
        state: "ReadState",
        ids: Int[Array, "B W T"],
        pos: Int[Array, "B T"],
        active: Bool[Array, "B"],
    ) -> tuple[Float[Array, "B W T V"], list[Array] | None, "ReadState"]:
        """Extend every hypothesis by T tokens; see `Stepper.step`."""
        batch, width, new = ids.shape

        def each(x: Array) -> Array:
            """Repeat data of sentences for each of their hypotheses."""
            return jnp.repeat(x, width, axis=0)

        source = Source(*map(each, (state.values, state.keys, state.seg)))
        y = self.tgt_embedding(ids.reshape(batch * width, new))
        kept = jnp.ones((*y.shape[:2], self.config.num_decoder_layers, y.shape[2]), y.dtype)
        current = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), state.decoder.current())
        tokens = y, each(pos), kept
        (outputs, weights), trail = trailed(self.decoder.step(source), current, tokens)
        x = self.decoder.predict(outputs, y).reshape(batch, width * new, -1)
        logits = self.logits(x, state.shortlist)
        trail = jax.tree.map(lambda x: x.reshape(batch, width, *x.shape[1:]), trail)
        looks = self.config.source_attention != "none"
        attention = [weights.reshape(batch, 1, width * new, -1)] if looks else None
        after = replace(state, decoder=state.decoder.follow(trail, active))
        return logits.reshape(batch, width, new, -1), attention, after

    @nn.nowrap
    def context(self, side: Side) -> Batch:
        """See Core."""
        return Batch(side, None, {})

    @nn.nowrap
    def example(self) -> Batch:
        """See Model."""
        ones = np.ones((1, 2), np.int32)
        return Batch(Side(ones, ones, ones), Side(ones, ones, ones), {})


@struct.dataclass
class ReadState:
    """The state that decoding carries from step to step: the source and the hypotheses' states."""

    values: Float[Array, "B S D"]
    keys: Float[Array, "B S D"]
    seg: Int[Array, "B S"]
    decoder: States
    shortlist: Shortlist | None = None  # of the output


class RecurrentStepper(CoreStepper):
    """The Stepper of a RecurrentTranslator, whose states are those of its cells."""

    def reorder(self, state: ReadState, parents: Int[Array, "B W"]) -> ReadState:
        """See Stepper."""
        return replace(state, decoder=state.decoder.reorder(parents))

    def rewind(self, state: ReadState, position: Int[Array, "B"]) -> ReadState:
        """See Stepper."""
        return replace(state, decoder=state.decoder.rewind(position))

    def grow(self, state: ReadState, src_length: int, length: int) -> ReadState:
        """See Stepper."""
        new = src_length - state.seg.shape[1]
        values, keys = (jnp.pad(x, ((0, 0), (0, new), (0, 0))) for x in (state.values, state.keys))
        return replace(state, values=values, keys=keys, seg=jnp.pad(state.seg, ((0, 0), (0, new))))
