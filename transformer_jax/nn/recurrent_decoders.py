"""Recurrent decoders that attend to their source: cell and attention are one step."""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, Int
from transformer_jax.config import ModelConfig
from transformer_jax.nn.linear import Project
from transformer_jax.nn.mixers.kinds import MIXERS
from transformer_jax.nn.mixers.recurrence import Step
from transformer_jax.nn.mixers.recurrent import Cell, Recurrent
from transformer_jax.nn.roles import MAP
from transformer_jax.nn.source_attention import SOURCE_ATTENTIONS, Dot, Source

State = Any  # a pytree of arrays [B ...]


class RecurrentDecoder(nn.Module):
    """Layers of recurrent cells, and how they attend to a source.

    A step takes the embedding of a token [B D], its position [B] and the dropout factors of each
    layer [B L D]; it returns the input of `predict` and the weights [B S].
    """

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        kinds = [c.decoder_pattern[i % len(c.decoder_pattern)] for i in range(c.num_decoder_layers)]
        self.kinds: Sequence[type[Recurrent]] = [MIXERS[kind] for kind in kinds]  # type: ignore[misc]
        cells = []
        for number, kind in enumerate(self.kinds):
            width = self.width(number)
            axis = "embed" if width == c.d_model else "features"
            cells.append(Cell(width, c.d_model, kind.gates, self.dtype, axis))
        self.cells = cells
        attention = SOURCE_ATTENTIONS[c.source_attention]
        self.attention: Dot | None = None if attention is None else attention(c, self.dtype)
        names = "embed", "gates", "state"
        self.start = [
            Project((c.d_model,), (kind.states, c.d_model), names, self.dtype, role=MAP)
            for kind in self.kinds
        ]

    def width(self, layer: int) -> int:
        """Return the input width of a layer."""
        return self.config.d_model

    def prepare(self, memory: Float[Array, "B S D"], seg: Int[Array, "B S"]) -> Source:
        """Return the source in the form that the steps read."""
        if self.attention is None:
            return Source(memory, memory, seg)
        return self.attention.prepare(memory, seg)

    def begin(self, summary: Float[Array, "B D"]) -> State:
        """Return the first state: maps of a summary of the source, and what else is carried."""
        wide = jnp.promote_types(self.dtype, jnp.float32)
        states = []
        for kind, start in zip(self.kinds, self.start, strict=True):
            # With a token axis: in bfloat16, XLA has no gradient of [B D] x [D G H] on CPUs.
            first = jnp.tanh(start(summary[:, None])[:, 0].astype(wide))
            states.append(
                tuple(first[:, i] for i in range(kind.states)) if kind.states > 1 else first[:, 0]
            )
        return tuple(states), jnp.zeros((summary.shape[0], self.config.d_model), wide)

    def step(self, source: Source) -> Step:
        """Return one step as a function that holds the parameters."""
        raise NotImplementedError

    def predict(self, found: Any, y: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """Return hidden states from the outputs of the steps and the embeddings that they read."""
        raise NotImplementedError

    def layers(self) -> list[Any]:
        """Return (state, x [B D]) -> (state, out [B D]) for each layer."""

        def layer(cell: Cell, kind: type[Recurrent]) -> Any:
            inward, rule = cell.inward(), kind.rule(cell.around())
            return lambda state, x: rule(state, inward(x))

        return [layer(cell, kind) for cell, kind in zip(self.cells, self.kinds, strict=True)]

    def attend(self) -> Any:
        """Return the attention of a query; without attention, a function that returns zeros."""
        if self.attention is not None:
            return self.attention.attend()
        return lambda query, position, source: (0 * query, jnp.zeros(source.seg.shape, query.dtype))


def _climb(layers: list[Any], states: Any, x: Array, kept: Array) -> tuple[Any, Array]:
    """Return the new states of stacked layers, and the output of the last one; `kept` [B L D] are
    the dropout factors of each.
    """
    new = []
    for number, (layer, own) in enumerate(zip(layers, states, strict=True)):
        own, x = layer(own, x)
        x = x * kept[:, number]
        new.append(own)
    return tuple(new), x


class Luong(RecurrentDecoder):
    """All layers first, then attention to the source: h~ = tanh(W [c; h]) (Luong et al. 2015),
    which `config.input_feeding` concatenates with the next step's token. Without attention, the
    output is the last layer's state (Sutskever et al. 2014, arXiv:1409.3215).
    """

    def setup(self) -> None:
        super().setup()
        d = self.config.d_model
        if self.attention is not None:
            self.join = Project(
                (2, d), (d,), ("gates", "embed", "state"), self.dtype, use_bias=False, role=MAP
            )

    def width(self, layer: int) -> int:
        """See RecurrentDecoder."""
        return self.config.d_model * (1 + (layer == 0 and self.config.input_feeding))

    def step(self, source: Source) -> Step:
        """See RecurrentDecoder."""
        layers, attend, feeding = self.layers(), self.attend(), self.config.input_feeding
        join = None if self.attention is None else self.join.kernel

        def step(state: State, token: tuple[Array, Array, Array]) -> tuple[State, Any]:
            (states, fed), (y, position, kept) = state, token
            x = jnp.concatenate([y, fed.astype(y.dtype)], axis=-1) if feeding else y
            new, x = _climb(layers, states, x, kept)
            if join is None:
                return (new, x), (x, jnp.zeros(source.seg.shape, x.dtype))
            context, weights = attend(x, position, source)
            both = jnp.stack([context, x.astype(context.dtype)], axis=1)
            here = join.astype(self.dtype)  # so that its gradient is summed in its own dtype
            out = jnp.tanh(jnp.einsum("BPD,PDE->BE", both, here, preferred_element_type=x.dtype))
            return (new, out), (out, weights)

        return step

    def predict(self, found: Any, y: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """See RecurrentDecoder."""
        return found.astype(self.dtype)


class Bahdanau(RecurrentDecoder):
    """The previous state attends to the source, and the context enters the layers concatenated with
    the token; maxout units predict the next token from the new state, the token and the context
    (Bahdanau et al. 2015, arXiv:1409.0473). Without attention, the context is always the summary of
    the source (Cho et al. 2014, arXiv:1406.1078).
    """

    def setup(self) -> None:
        super().setup()
        d = self.config.d_model
        self.readout = Project(
            (3, d), (d, 2), ("gates", "embed", "state", "features"), self.dtype, role=MAP
        )

    def width(self, layer: int) -> int:
        """See RecurrentDecoder."""
        return self.config.d_model * (1 + (layer == 0))

    def begin(self, summary: Float[Array, "B D"]) -> State:
        """See RecurrentDecoder: without attention, the summary is carried."""
        states, carried = super().begin(summary)
        return states, (
            carried + summary.astype(carried.dtype) if self.attention is None else carried
        )

    def step(self, source: Source) -> Step:
        """See RecurrentDecoder."""
        layers, attend, attends = self.layers(), self.attend(), self.attention is not None

        def step(state: State, token: tuple[Array, Array, Array]) -> tuple[State, Any]:
            (states, carried), (y, position, kept) = state, token
            top = states[-1][0] if isinstance(states[-1], tuple) else states[-1]
            context, weights = attend(top, position, source)
            context = context if attends else carried
            x = jnp.concatenate([y, context.astype(y.dtype)], axis=-1)
            new, x = _climb(layers, states, x, kept)
            return (new, carried), ((x, context), weights)

        return step

    def predict(self, found: Any, y: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """See RecurrentDecoder."""
        state, context = found
        parts = [part.astype(self.dtype) for part in (state, y, context)]
        return self.readout(jnp.stack(parts, axis=2)).max(-1)


class Gnmt(RecurrentDecoder):
    """The bottom layer attends to the source; the context is concatenated with the input of all
    other layers, and with the next token for the bottom layer. From the third layer on, layers have
    residual connections (Wu et al. 2016, arXiv:1609.08144).
    """

    def width(self, layer: int) -> int:
        """See RecurrentDecoder."""
        return 2 * self.config.d_model

    def step(self, source: Source) -> Step:
        """See RecurrentDecoder."""
        layers, attend = self.layers(), self.attend()

        def step(state: State, token: tuple[Array, Array, Array]) -> tuple[State, Any]:
            (states, context), (y, position, kept) = state, token
            x, weights, new = y, None, []
            for number, (layer, own) in enumerate(zip(layers, states, strict=True)):
                own, out = layer(own, jnp.concatenate([x, context.astype(x.dtype)], axis=-1))
                out = out * kept[:, number]
                if number == 0:
                    context, weights = attend(out, position, source)
                    context = context.astype(out.dtype)
                x = out + x.astype(out.dtype) if number > 1 else out
                new.append(own)
            return (tuple(new), context), (x, weights)

        return step

    def predict(self, found: Any, y: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """See RecurrentDecoder."""
        return found.astype(self.dtype)
