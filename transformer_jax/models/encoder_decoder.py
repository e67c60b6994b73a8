"""The paper's model (section 3), and the Stepper through which every search sees it."""

import functools
from dataclasses import replace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax import struct

from transformer_jax.arrays import Array, Bool, Float, Int
from transformer_jax.choices import pick
from transformer_jax.config import ModelConfig
from transformer_jax.models.stack import Decoder, Encoder
from transformer_jax.nn.cache import KeysValues, Lanes
from transformer_jax.nn.dropout import Dropout
from transformer_jax.nn.embedding import Embed
from transformer_jax.nn.positions import POSITIONS
from transformer_jax.nn.view import cross_view, self_view


class EncoderDecoder(nn.Module):
    """Embeddings, encoder, decoder and pre-softmax product."""

    config: ModelConfig
    src_vocab_size: int
    tgt_vocab_size: int
    dtype: jnp.dtype = jnp.float32

    def setup(self) -> None:
        c = self.config
        src, tgt = (
            functools.partial(Embed, size, c.d_model, self.dtype)
            for size in (self.src_vocab_size, self.tgt_vocab_size)
        )
        if c.tied_embeddings == "all":
            self.embedding = tgt()
            self.src_embedding = self.tgt_embedding = self.output = self.embedding
        else:
            self.src_embedding, self.tgt_embedding = src(), tgt()
            self.output = self.tgt_embedding if c.tied_embeddings == "decoder" else tgt()
        positions = pick(POSITIONS, c.positions, "config.model.positions")
        self.src_positions = positions(c.d_model, c.max_positions)
        self.tgt_positions = positions(c.d_model, c.max_positions)
        self.dropout = Dropout(c.dropout_rate)
        self.encoder = Encoder(c, self.dtype)
        self.decoder = Decoder(c, self.dtype)

    def __call__(
        self,
        src_ids: Int[Array, "B S"], src_pos: Int[Array, "B S"], src_seg: Int[Array, "B S"],
        tgt_in: Int[Array, "B T"], tgt_pos: Int[Array, "B T"], tgt_seg: Int[Array, "B T"],
        train: bool,
    ) -> Float[Array, "B T V"]:  # fmt: skip
        """Return the logits of the token after each one of `tgt_in`, at least in float32."""
        return self.logits(self.hidden(src_ids, src_pos, src_seg, tgt_in, tgt_pos, tgt_seg, train))

    def hidden(
        self,
        src_ids: Int[Array, "B S"], src_pos: Int[Array, "B S"], src_seg: Int[Array, "B S"],
        tgt_in: Int[Array, "B T"], tgt_pos: Int[Array, "B T"], tgt_seg: Int[Array, "B T"],
        train: bool,
    ) -> Float[Array, "B T D"]:  # fmt: skip
        """Return the decoder's output, before the pre-softmax product."""
        memory = self.encode(src_ids, src_pos, src_seg, train)
        x = self.embed_target(tgt_in, tgt_pos, tgt_in.shape[1], train)
        return self.decoder(
            x,
            memory,
            self_view(tgt_pos, tgt_seg, causal=True),
            cross_view(tgt_pos, tgt_seg, src_pos, src_seg),
            train,
        )

    @property
    def position_limit(self) -> int | None:
        """Most positions of a side; None: any number."""
        return self.config.max_positions if self.config.positions == "learned" else None

    @nn.nowrap
    def stepper(self, params: Any) -> "EncoderDecoderStepper":
        """Return what a search sees of the model."""
        return EncoderDecoderStepper(self, params)

    @nn.nowrap
    def log_probs(self, params: Any, batch: Any) -> Float[Array, "B T V"]:
        """Return the log-probability of every piece after each piece of a Batch's targets."""
        apply: Any = self.apply
        logits = apply(
            {"params": params},
            batch.src_ids, batch.src_pos, batch.src_seg, batch.tgt_in, batch.tgt_pos, batch.tgt_seg,
            train=False,
        )  # fmt: skip
        return jax.nn.log_softmax(logits)

    def hidden_and_table(self, *batch: Any, train: bool) -> tuple[Array, Array]:
        """Return `hidden` [B T D] and the pre-softmax matrix [V D], for a loss that fuses them."""
        hidden: Any = self.hidden
        return hidden(*batch, train), self.output.table

    def logits(self, x: Float[Array, "B T D"]) -> Float[Array, "B T V"]:
        """Return the pre-softmax product."""
        return self.output.logits(x)

    def encode(
        self, ids: Int[Array, "B S"], pos: Int[Array, "B S"], seg: Int[Array, "B S"], train: bool
    ) -> Float[Array, "B S D"]:
        """Return the encoder's output, the memory."""
        x = self.src_embedding(ids)
        x = self._add_positions(x, self.src_positions.embed(pos, ids.shape[1]), train)
        return self.encoder(x, self_view(pos, seg, causal=False), train)

    def memory_keys_values(
        self, ids: Int[Array, "B S"], pos: Int[Array, "B S"], seg: Int[Array, "B S"]
    ) -> list[KeysValues]:
        """Return what each decoder layer's cross-attention looks at."""
        return self.decoder.memory_keys_values(self.encode(ids, pos, seg, train=False))

    def embed_target(
        self, ids: Int[Array, "B T"], pos: Int[Array, "B T"], limit: int, train: bool
    ) -> Float[Array, "B T D"]:
        """Return the decoder's input; positions are below `limit`."""
        x = self.tgt_embedding(ids)
        return self._add_positions(x, self.tgt_positions.embed(pos, limit), train)

    def decode(self, state: "DecodeState", ids: Int[Array, "B W T"], pos: Int[Array, "B T"]):
        """Extend every hypothesis by T tokens; see `EncoderDecoderStepper.step`."""
        batch, width, new = ids.shape
        lanes, slots, view = state.lanes.fill(pos)
        seg = jnp.ones_like(view.q_pos)
        src_pos = jnp.broadcast_to(jnp.arange(state.src_seg.shape[1])[None], state.src_seg.shape)
        # What is beyond the room is lost in any case; but it shall have an embedding.
        where = jnp.minimum(view.q_pos, lanes.length - 1)
        x = self.embed_target(ids.reshape(batch, width * new), where, lanes.length, train=False)
        cross = cross_view(view.q_pos, seg, src_pos, state.src_seg)
        x, caches, weights = self.decoder.step(x, state.memory, view, cross, state.caches, slots)
        logits = self.logits(x).reshape(batch, width, new, -1)
        return logits, weights, replace(state, caches=caches, lanes=lanes)

    def _add_positions(self, x, vectors, train: bool):
        return self.dropout(x + vectors.astype(x.dtype), train)


@struct.dataclass
class DecodeState:
    """What decoding carries from step to step."""

    memory: list[KeysValues]  # one per layer: once per sentence, not per hypothesis
    src_seg: Int[Array, "B S"]
    caches: list[KeysValues]  # one per layer
    lanes: Lanes


class EncoderDecoderStepper:
    """The methods through which a search sees the model.

    start(src)                     encode and return the state
    step(state, tokens, positions) logits of what follows, attention, the new state
    reorder(state, parents)        let hypothesis w continue hypothesis parents[w]
    rewind(state, position)        forget the tokens from a position on
    grow(state, src_length, length)  make room for longer sources and more tokens
    """

    def __init__(self, model: EncoderDecoder, params: Any) -> None:
        self._model, self._variables = model, {"params": params}
        self._apply: Any = model.apply

    def start(self, src_ids: Int[Array, "B S"], width: int, length: int) -> DecodeState:
        """Encode sources (0 is padding) and make room for `length` tokens of `width` hypotheses."""
        seg = (src_ids > 0).astype(jnp.int32)
        pos = jnp.broadcast_to(jnp.arange(src_ids.shape[1])[None], src_ids.shape)
        memory = self._apply(
            self._variables, src_ids, pos, seg, method=EncoderDecoder.memory_keys_values
        )
        c, batch = self._model.config, src_ids.shape[0]
        slots = length * width
        cache = KeysValues(
            jnp.zeros((batch, c.num_heads, c.key_size, slots), self._model.dtype),
            jnp.zeros((batch, c.num_heads, slots, c.value_size), self._model.dtype),
        )
        caches = [cache] * c.num_decoder_layers
        return DecodeState(memory, seg, caches, Lanes.empty(batch, width, length))

    def step(
        self,
        state: DecodeState,
        tokens: Int[Array, "B W T"],
        positions: Int[Array, "B T"],
        active: Bool[Array, "B"],
    ) -> tuple[Float[Array, "B W T V"], list[Array], DecodeState]:
        """Return the logits after each token, cross-attention by layer, and the new state."""
        del active  # a search's idle sentences are done, or write beyond the room, which is lost
        return self._apply(self._variables, state, tokens, positions, method=EncoderDecoder.decode)

    def reorder(self, state: DecodeState, parents: Int[Array, "B W"]) -> DecodeState:
        """Let hypothesis w continue hypothesis parents[w]."""
        return replace(state, lanes=state.lanes.reorder(parents))

    def rewind(self, state: DecodeState, position: Int[Array, "B"]) -> DecodeState:
        """Forget the tokens from a position on."""
        return replace(state, lanes=state.lanes.rewind(position))

    def grow(self, state: DecodeState, src_length: int, length: int) -> DecodeState:
        """Make room for sources of `src_length` and `length` tokens in all."""
        slots = length * state.lanes.seen.shape[1]
        new = src_length - state.src_seg.shape[1]
        return DecodeState(
            memory=[memory.grow(src_length) for memory in state.memory],
            src_seg=jnp.pad(state.src_seg, ((0, 0), (0, new))),
            caches=[cache.grow(slots) for cache in state.caches],
            lanes=state.lanes.grow(length),
        )
