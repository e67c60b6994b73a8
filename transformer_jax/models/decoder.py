"""A single stack that reads a text and continues or classifies it (GPT: Radford et al. 2018, 2019).

With ranks it is also a prefix language model (Raffel et al. 2020, arXiv:1910.10683, section 3.2.1).
"""

from dataclasses import replace
from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Bool, Float, Int
from transformer_jax.config.registry import pick
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.encoder import pool, set_class_heads
from transformer_jax.models.model import Output
from transformer_jax.models.multi_token import (
    MULTI_TOKENS,
    Further,
    Parallel,
    Sequential,
    later,
    name_of,
)
from transformer_jax.models.network import DecodeState, Memory, Network, NetworkStepper
from transformer_jax.nn.cache import Lanes, Slots
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
        kind = pick(MULTI_TOKENS, c.multi_token, "config.model.multi_token")
        if kind is not None:
            for depth in range(1, c.future_tokens + 1):
                setattr(self, name_of(depth), kind(c, self.dtype))

    @property
    def future(self) -> list[Parallel | Sequential]:
        """The parts that predict further pieces, in order."""
        c = self.config
        count = c.future_tokens * (c.multi_token != "none")
        return [getattr(self, name_of(depth)) for depth in range(1, count + 1)]

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

    def write(self, side: Side, memory: Memory | None, train: bool) -> dict[str, Output]:
        """See Network: also the predictions of further pieces, if the model has such parts."""
        if not self.future:
            return super().write(side, memory, train)
        view = self_view(side.pos, side.seg, self.order, side.rank, self.single)
        x = self.embed_target(side.inputs, side.pos, side.inputs.shape[1], train)
        x, trunk = self.decoder.branched(x, view, train)
        outputs, here = {"tokens": self.predicted(x)}, x
        for depth, part in enumerate(self.future, 1):
            here = here if part.chained else trunk
            # Beyond the end of a text it is that of another, where nothing is predicted.
            piece = self.tgt_embedding(later(jnp.asarray(side.inputs), depth))
            here = part.stack(part.enter(here, piece), view, train)
            outputs[name_of(depth)] = self.predicted(here)
        return outputs

    def begin_further(
        self, prompt: Side, x: Array, trunk: Array, slots: Slots, lanes: Lanes, reach: int
    ) -> Further | None:
        """See Network. The last pieces of a prompt are followed by some that it does not have."""
        if not self.future or reach == 1:
            return None
        caches, here, everyone = [], x, jnp.ones(prompt.seg.shape[0], bool)
        for depth, part in enumerate(self.future, 1):
            here = here if part.chained else trunk
            here = part.enter(here, self.tgt_embedding(later(jnp.asarray(prompt.inputs), depth)))
            cache = part.stack.empty(lanes)
            here, cache, _ = part.stack.extend(here, cache, slots, everyone, [None], None)
            caches.append(cache[0].keep(reach))
        batch, width, _ = lanes.seen.shape
        hidden = jnp.zeros((batch, width, reach, x.shape[2]), x.dtype)
        return Further(caches, hidden, jnp.zeros(batch, jnp.int32))

    def extend_further(
        self, further: Further | None, x: Array, trunk: Array, pos: Array, active: Array
    ) -> Further | None:
        """See Network."""
        if further is None:
            return None
        read = (x if self.future[0].chained else trunk).reshape(further.hidden.shape)
        here = active.reshape(-1, 1, 1, 1)
        return further.replace(  # type: ignore[attr-defined]
            hidden=jnp.where(here, read, further.hidden),
            first=jnp.where(active, pos[:, 0].astype(jnp.int32), further.first),
        )

    def foresee(
        self, state: DecodeState, hidden: Float[Array, "B W T D"], depth: int,
        text: Int[Array, "B W C"], position: Int[Array, "B"], active: Bool[Array, "B"],
    ) -> tuple[Float[Array, "B W V"], Float[Array, "B W T D"], DecodeState]:  # fmt: skip
        """Return the logits of the piece `depth` after the one at `position`, which is the last of
        a text that a search has judged, as are all before it; what stands behind it is a draft.

        `hidden` is that of `state.further` for the first piece; the one returned is for the next.
        Positions of the last step are read again, now that the pieces behind them are known.
        """
        further, part = state.further, self.future[depth - 1]
        batch, width, new, channels = hidden.shape
        places = further.first[:, None] + jnp.arange(new)[None]
        _, slots = state.lanes.fill(places, active, self.order)
        behind = jnp.minimum(places + depth, text.shape[2] - 1)[:, None]
        behind = jnp.broadcast_to(behind, (batch, width, new))
        pieces = jnp.take_along_axis(text, behind, axis=2).reshape(batch, width * new)
        x = part.enter(hidden.reshape(batch, width * new, channels), self.tgt_embedding(pieces))
        caches = [*further.caches]
        x, (caches[depth - 1],), _ = part.stack.extend(
            x, [caches[depth - 1]], slots, active, [None], None
        )
        x = x.reshape(hidden.shape)
        last = jnp.clip(position - 1 - further.first, 0, new - 1).reshape(batch, 1, 1, 1)
        last = jnp.broadcast_to(last, (batch, width, 1, channels))
        logits = self.logits(jnp.take_along_axis(x, last, axis=2)[:, :, 0], state.shortlist)
        kept = replace(state, further=further.replace(caches=caches))
        return logits, x if part.chained else hidden, kept

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
