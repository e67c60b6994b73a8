"""The base of models whose decoder stack generates text, and its use by a search."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from flax import struct

from transformer_jax.base.arrays import Array, Bool, Float, Int, Size
from transformer_jax.base.vocabulary import PAD
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.core import Core, CoreStepper
from transformer_jax.models.model import Output
from transformer_jax.models.stack import Stack
from transformer_jax.nn.cache import KeysValues, Lanes, Slots
from transformer_jax.nn.embedding import Shortlist
from transformer_jax.nn.norm import make_norm
from transformer_jax.nn.positions import positions_of
from transformer_jax.nn.stems import Entered
from transformer_jax.nn.view import View, cross_view, self_view

NEVER = -1e9  # the logit of what cannot be: a position in another segment, a piece of padding


class Memory(NamedTuple):
    """An encoder's output for a source side, with positions and segments."""

    hidden: Float[Array, "B S D"]
    pos: Int[Array, "B S"]
    seg: Int[Array, "B S"]


class Network(Core):
    """A Model whose `decoder` stack writes the target side: see `models.model.Model`."""

    @nn.nowrap
    def stepper(self, params: Any) -> "NetworkStepper | None":
        """See Model."""
        return NetworkStepper(self, params)

    def encode(self, side: Side | None, train: bool) -> Memory | None:
        """Return the memory that the decoder's cross-attention reads, or None."""
        raise NotImplementedError

    def write(self, side: Side, memory: Memory | None, train: bool) -> dict[str, Output]:
        """Return the predictions after each token of whole targets: teacher forcing."""
        view = self_view(side.pos, side.seg, self.order, side.rank, self.single)
        hidden = across = None
        if memory is not None:
            hidden, pos, seg = memory
            across = cross_view(side.pos, side.seg, pos, seg, self.single)
        x = self.embed_target(side.inputs, side.pos, side.inputs.shape[1], train)
        x = self.decoder(x, view, train, hidden, across)
        return {"tokens": self.predicted(x)}

    def begin(self, batch: Batch, width: int, length: int, reach: int) -> "DecodeState":
        """Return the state after the source and the prompt; see `Stepper.start`."""
        memory = self.encode(batch.src, False)
        memories: Sequence[KeysValues | None] = [None] * self.config.num_decoder_layers
        if memory is not None:
            memories = self.decoder.remember(memory.hidden)
        side = batch.src if batch.tgt is None else batch.tgt
        assert side is not None, "neither source nor prompt"
        lanes = Lanes.empty(side.seg.shape[0], width, length, self.decoder.in_slots())
        further, paths = None, self.paths(memory)
        src_seg = None if memory is None else jnp.asarray(memory.seg)
        if batch.tgt is None:
            caches = self.decoder.empty(lanes)
        else:
            prompt = batch.tgt
            lanes, slots = lanes.prompt(prompt.seg, self.order, prompt.rank)
            x = self._embed_new(prompt.inputs, slots)
            across = _across(slots.view, src_seg)
            everyone = jnp.ones(prompt.seg.shape[0], bool)
            caches = self.decoder.empty(lanes)
            read = self.decoder.extend_branched(x, caches, slots, everyone, memories, across)
            x, caches, _, trunk = read
            further = self.begin_further(prompt, x, trunk, slots, lanes, reach)
        kept = [cache.keep(reach) for cache in caches]
        return DecodeState(memories, src_seg, kept, lanes, further=further, paths=paths)

    def paths(self, memory: Memory | None) -> Float[Array, "B S V"] | None:
        """Return CTC's log-probability of each piece at each position of the source, if the model
        predicts any.
        """
        return None

    def begin_further(
        self, prompt: Side, x: Array, trunk: Array, slots: Slots, lanes: Lanes, reach: int
    ) -> Any:
        """Return what predictions of further pieces begin with, if a search may ask for them."""
        return None

    def extend_further(
        self, further: Any, x: Array, trunk: Array, pos: Array, active: Array
    ) -> Any:
        """Return what they go on with, after new tokens."""
        return further

    def blank(self, length: int, reach: int) -> "DecodeState":
        """Return the state of one sentence with one hypothesis, without a source or a prompt."""
        lanes = Lanes.empty(1, 1, length)
        caches = [cache.keep(reach) for cache in self.decoder.empty(lanes)]
        return DecodeState([None] * self.config.num_decoder_layers, None, caches, lanes)

    def extend(
        self,
        state: "DecodeState",
        ids: Int[Array, "B W T"],
        pos: Int[Array, "B T"],
        active: Bool[Array, "B"],
    ) -> tuple[Float[Array, "B W T V"], list[Array] | None, "DecodeState"]:
        """Extend every hypothesis by T tokens; see `Stepper.step`."""
        batch, width, new = ids.shape
        lanes, slots = state.lanes.fill(pos, active, self.order)
        x = self._embed_new(ids.reshape(batch, width * new), slots)
        across = _across(slots.view, state.src_seg)
        x, caches, weights, trunk = self.decoder.extend_branched(
            x, state.caches, slots, active, state.memories, across
        )
        further = self.extend_further(state.further, x, trunk, pos, active)
        logits = self.logits(x, state.shortlist).reshape(batch, width, new, -1)
        attention = None if across is None else weights
        return logits, attention, replace(state, caches=caches, lanes=lanes, further=further)

    def embed_target(
        self, ids: Int[Array, "B T"], pos: Int[Array, "B T"], limit: Size, train: bool
    ) -> Float[Array, "B T D"]:
        """Return the decoder's input; positions are below the static `limit`."""
        layers = self.tgt_embedding, self.tgt_positions, self.tgt_input_norm
        return self.embedded(*layers, ids, pos, limit, train)

    def _embed_new(self, ids: Int[Array, "B T"], slots: Slots) -> Float[Array, "B T D"]:
        """Return the input of a search; tokens beyond the limit are dropped but still embedded."""
        limit = min(slots.limit, self.config.position_limit or slots.limit)
        return self.embed_target(ids, jnp.minimum(slots.view.q_pos, limit - 1), limit, False)

    def entered(self, side: Side) -> Entered:
        """Return the vectors of a source side: embedded pieces, or a stem's output."""
        if self.stem is None:
            return Entered(self.src_embedding(side.inputs), side.pos, side.seg)
        return self.stem(*map(jnp.asarray, (side.inputs, side.pos, side.seg)))

    @nn.nowrap
    def entering(self, length: Size) -> Size:
        """Return how many encoder positions a source side of this length takes."""
        stem = self.new_stem(begun=False)
        return length if stem is None else stem.length(length)

    def embedded(
        self, embedding: Any, positions: Any, norm: Any, ids: Any, pos: Any, limit: Size,
        train: bool,
    ) -> Array:  # fmt: skip
        """Return embedded ids with their positions added, normalised if there is a norm."""
        x, vectors = embedding(ids), positions.embed(pos, limit)
        x = x if vectors is None else x + vectors.astype(x.dtype)
        return self.dropout(x if norm is None else norm(x), train)

    @nn.nowrap
    def new_positions(self) -> nn.Module:
        """Return the scheme to add to the input: none if each layer adds it again."""
        return positions_of(self.config)

    @nn.nowrap
    def new_input_norm(self) -> nn.Module | None:
        """Return the norm of a stack's input, if the config has one."""
        return make_norm(self.config) if self.config.input_norm else None

    @nn.nowrap
    def new_stack(self, num_layers: int, pattern: Sequence[str], cross: bool) -> Stack:
        """Return layers."""
        return Stack(self.config, self.dtype, num_layers, pattern, cross)


def silenced(logits: Float[Array, "B S V"], seg: Int[Array, "B S"]) -> Float[Array, "B S V"]:
    """Return logits that make padding certain to be PAD, so that it adds nothing to any path."""
    certain = jnp.where(jnp.arange(logits.shape[2]) == PAD, 0.0, NEVER).astype(logits.dtype)
    return jnp.where((seg > 0)[..., None], logits, certain.reshape(1, 1, -1))


def _across(view: View, src_seg: Int[Array, "B S"] | None) -> View | None:
    """Return the view of decoder queries on the source, if there is one."""
    if src_seg is None:
        return None
    pos = jnp.broadcast_to(jnp.arange(src_seg.shape[1])[None], src_seg.shape)
    seen = jnp.broadcast_to((src_seg > 0)[:, None], (*view.q_pos.shape, src_seg.shape[1]))
    return cross_view(view.q_pos, jnp.ones_like(view.q_pos), pos, src_seg).on_slots(seen, pos)


@struct.dataclass
class DecodeState:
    """The state that decoding carries from step to step."""

    memories: Any  # one per stored layer: per sentence, not per hypothesis
    src_seg: Int[Array, "B S"] | None
    caches: Any  # one per applied layer, of its mixer's own kind
    lanes: Lanes
    shortlist: Shortlist | None = None  # of the output
    further: Any = None  # a `multi_token.Further`, where a search asks for further pieces
    paths: Float[Array, "B S V"] | None = None  # see `Network.paths`


class NetworkStepper(CoreStepper):
    """The Stepper of a Network, whose states are those of its layers' caches."""

    _model: Network

    def reorder(self, state: DecodeState, parents: Int[Array, "B W"]) -> DecodeState:
        """See Stepper."""
        caches = [cache.reorder(parents) for cache in state.caches]
        further = state.further and state.further.reorder(parents)
        return replace(
            state, caches=caches, lanes=state.lanes.reorder(parents), further=further
        )  # fmt: skip

    def rewind(self, state: DecodeState, position: Int[Array, "B"]) -> DecodeState:
        """See Stepper."""
        caches = [cache.rewind(position) for cache in state.caches]
        return replace(state, caches=caches, lanes=state.lanes.rewind(position))

    def grow(self, state: DecodeState, src_length: int, length: int) -> DecodeState:
        """See Stepper."""
        prompt = src_length if state.src_seg is None else state.lanes.shared
        lanes, seg, paths = state.lanes.grow(length, prompt), state.src_seg, state.paths
        if seg is not None:
            src_length = self._model.entering(src_length)
            more = (0, 0), (0, src_length - seg.shape[1])
            seg = jnp.pad(seg, more)
            if paths is not None:
                paths = silenced(jnp.pad(paths, (*more, (0, 0))), seg)
        return replace(
            state,
            memories=[None if x is None else x.pad(src_length) for x in state.memories],
            src_seg=seg,
            caches=[cache.grow(state.lanes, lanes) for cache in state.caches],
            lanes=lanes,
            further=state.further and state.further.grow(state.lanes, lanes),
            paths=paths,
        )

    def foresee(
        self, state: DecodeState, hidden: Array, depth: int, text: Int[Array, "B W C"],
        position: Int[Array, "B"], active: Bool[Array, "B"],
    ) -> tuple[Float[Array, "B W V"], Array, DecodeState]:  # fmt: skip
        """Return the logits of the piece `depth` after the next one; see `Decoder.foresee`."""
        given = state, hidden, depth, text, position, active
        return self._apply(self._variables, *given, method="foresee")

    # A prompt that is read part by part:

    def blank(self, length: int, reach: int) -> DecodeState:
        """Return the state of one sentence that has read nothing; see `Network.blank`."""
        return self._apply(self._variables, length, reach, method="blank")

    def part(self, state: DecodeState, first: Any, size: int) -> list[Any]:
        """Return what caches keep of the last `size` tokens read, from position `first` on."""
        return [cache.part(first, size) for cache in state.caches]

    def with_part(
        self, state: DecodeState, first: Any, size: int, part: Sequence[Any]
    ) -> DecodeState:
        """Return the state as if it had read these tokens."""
        pairs = zip(state.caches, part, strict=True)
        caches = [cache.with_part(first, size, own) for cache, own in pairs]
        lanes, slots = state.lanes, jnp.arange(state.lanes.seen.shape[2]).reshape(1, 1, -1)
        return replace(state, caches=caches, lanes=replace(lanes, seen=slots < first + size))

    def as_prompt(
        self, state: DecodeState, count: Any, width: int, length: int, reach: int
    ) -> DecodeState:
        """Return the state after a prompt of which `count` tokens were read; see `start`."""
        lanes = state.lanes.as_prompt(count, width, length)
        caches = [cache.as_prompt(lanes, reach) for cache in state.caches]
        return DecodeState(state.memories, None, caches, lanes)
