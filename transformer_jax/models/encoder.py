"""A single bidirectional stack that reads a text (BERT: Devlin et al. 2019, arXiv:1810.04805)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Bool, Float, Int, at_least_float32
from transformer_jax.config import ModelConfig
from transformer_jax.config.registry import pick
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.core import Core
from transformer_jax.models.model import Output, Pointed
from transformer_jax.models.move_head import MoveHead
from transformer_jax.models.network import NEVER, Memory, Network, silenced
from transformer_jax.nn.distributions import DISTRIBUTIONS, Distribution, Scale
from transformer_jax.nn.embedding import Embed, Head, token_dropout
from transformer_jax.nn.feedforward import ACTIVATIONS
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.linear import Project
from transformer_jax.nn.norm import make_norm
from transformer_jax.nn.roles import HEAD, HEAD_TABLE, KINDS, LOGITS, PLAIN
from transformer_jax.nn.stems import Entered
from transformer_jax.nn.view import cross_view, self_view


class Forecasted(Output):
    """Parameters [B T K] for each number; the head is their distribution."""

    def logits(self) -> Float[Array, "B T K"]:
        """Return the parameters, at least in float32."""
        return self.hidden


class ForecastHead(nn.Module):
    """One linear map from all patches of a window to all numbers after it, in the unit of the
    series (PatchTST's flatten head: Nie et al. 2023, arXiv:2211.14730, section 3.1), or from the
    position of each channel to those of the channel, which follow one another row by row. `lengths`
    are those of the window and of the forecast.
    """

    config: ModelConfig
    lengths: tuple[int, int]
    dtype: jnp.dtype

    def setup(self) -> None:
        c, (window, horizon) = self.config, self.lengths
        read = (c.d_model,) if self.by_channel else (c.patches(window), c.d_model)
        names = ("length", "embed", "horizon", "choices")[-2 - len(read) :]
        shapes = read, (horizon, self.distribution.count)
        self.output = Project(*shapes, names, self.dtype, role=HEAD)

    @property
    def by_channel(self) -> bool:
        """Whether each position is a channel."""
        return self.config.stem == "variates"

    @property
    def distribution(self) -> Distribution:
        """The distribution predicted for each number."""
        return pick(DISTRIBUTIONS, self.config.distribution, "config.model.distribution")

    def __call__(self, x: Float[Array, "B S D"], scale: Scale) -> Forecasted:
        head: Any = self.distribution
        if not self.by_channel:
            return Forecasted(head.placed(self.output(x), scale), head)
        raw = self.output(x)  # [B C T K]
        each = Scale(*(statistic.reshape(-1, 1, 1) for statistic in scale))
        placed = head.placed(raw.reshape(-1, *raw.shape[2:]), each).reshape(*raw.shape[:3], -1)
        return Forecasted(placed.swapaxes(1, 2).reshape(len(x), -1, placed.shape[-1]), head)


class Kind(NamedTuple):
    """What a head predicts, as a choice among a few classes."""

    # "text": for the source segment that each position of the target side belongs to, [B T];
    # "place": for each position of the source, [B S]; "ends": the first and the last position of an
    # answer, at two positions of the target side, among those of their segment, [B T].
    # "squares": for each position of the target side, its chess board's, [B T].
    # "path": for each position, [B S], with padding certain to be PAD.
    of: Literal["text", "place", "ends", "path", "squares"]
    choices: int | None = None  # number of classes; None: pieces of the target side's codec


# By prediction, besides the piece at each position of the source, "tokens" [B S]. A single logit is
# a number predicted for a text.
HEADS = {
    "class": Kind("text"),
    "next_sentence": Kind("text", choices=2),
    "value": Kind("text", choices=1),
    "reward": Kind("text", choices=1),
    "tags": Kind("place"),
    "span": Kind("ends", choices=2),
    "ctc": Kind("path"),
    "move": Kind("squares"),
}


def chosen(model: Core) -> list[str]:
    """Return the names of a model's predictions that have a head in HEADS."""
    return [name for name in model.predicts if name in HEADS]


def set_class_heads(model: Core, of_places: int | None = None) -> None:
    """Give a model a head for each prediction in HEADS, in its `setup`. `of_places` is the width of
    what predictions that are not of texts are made from; None: d_model.
    """
    for name in chosen(model):
        of, count = HEADS[name]
        rows, width = "classes" if count is None else "choices", None if of == "text" else of_places
        head: nn.Module = ClassHead(model.config, count or model.tgt_vocab_size, rows, width)
        if of == "squares":
            head = MoveHead(model.config, model.dtype)
        setattr(model, f"{name}_head", head)


class Encoder(Network):
    """Embedding, encoder, and a head for each prediction of the objective: see `HEADS`."""

    def setup(self) -> None:
        c = self.config
        self.set_inputs()
        self.encoder = self.new_stack(c.num_encoder_layers, c.encoder_pattern, cross=False)
        if "tokens" in self.predicts:
            self.piece_head = PieceHead(c, self.src_vocab_size, self.dtype)
        if self.asks("text") and c.pooler:
            self.pooler = Project(
                (c.d_model,), (c.d_model,), ("embed", "features"), self.dtype, role=HEAD
            )
        self.set_heads()
        if "forecast" in self.predicts:
            assert self.lengths is not None
            self.forecast_head = ForecastHead(c, self.lengths, self.dtype)

    def set_inputs(self) -> None:
        """Create the input layers of the source side, in `setup`."""
        c = self.config
        self.stem = self.new_stem(begun=self.asks("text"))
        if self.stem is None:
            self.embedding = self.new_embedding(self.src_vocab_size)
            self.src_embedding = self.embedding
        self.positions = self.new_positions()
        self.kinds = Embed(c.token_types, c, self.dtype, KINDS) if c.token_types else None
        self.input_norm = self.new_input_norm()
        self.dropout = self.new_dropout()

    def set_heads(self) -> None:
        """Create the tables of the predictions, in `setup`."""
        if "tokens" in self.predicts:
            own = self.config.tied_embeddings == "none"
            self.output = self.new_embedding(self.src_vocab_size, LOGITS) if own else self.embedding
        set_class_heads(self)

    @nn.nowrap
    def asks(self, *kinds: str) -> bool:
        """Whether any prediction is of one of these kinds."""
        return any(HEADS[name].of in kinds for name in chosen(self))

    def __call__(self, batch: Batch, train: bool) -> dict[str, Output]:
        src = batch.src
        assert src is not None
        memory, outputs = self.encode(src, train), {}
        x = memory.hidden
        if "tokens" in self.predicts:
            outputs["tokens"] = self.predicted(x)
        if self.asks("text"):
            assert batch.tgt is not None
            pooled = pool(memory, batch.tgt, self.config.pooling)
            pooled = jnp.tanh(self.pooler(pooled)) if self.config.pooler else pooled
            pooled = self.dropout(pooled, train)
        for name in chosen(self):
            head, kind = getattr(self, f"{name}_head"), HEADS[name].of
            hidden = pooled if kind == "text" else self.dropout(x, train)
            if kind == "squares":
                assert batch.tgt is not None
                outputs[name] = head(memory._replace(hidden=hidden), src, batch.tgt)
                continue
            outputs[name] = Output(hidden, head := head())
            if kind == "ends":
                assert batch.tgt is not None
                outputs[name] = Pointed(pointed(head.logits(hidden), memory, batch.tgt), head)
            if kind == "path":
                outputs[name] = Pointed(silenced(head.logits(hidden), memory.seg), head)
        if "forecast" in self.predicts:
            stem: Any = self.stem
            outputs["forecast"] = self.forecast_head(x, stem.scale(src.inputs))
        return outputs

    def encode(self, side: Side | None, train: bool) -> Memory:
        """Return the hidden state of each position of the source."""
        assert side is not None
        x, pos, seg = self.placed(side, train)
        view = self_view(pos, seg, "all", single=self.single)
        view = replace(view, before=int(self.asks("text")))
        return Memory(self.encoder(x, view, train), pos, seg)

    def placed(self, side: Side, train: bool) -> Entered:
        """Return a source side's vectors, positions and token types added, with their places."""
        x, pos, seg = self.entered(side)
        if self.config.token_dropout is not None:
            x = token_dropout(x, jnp.asarray(side.inputs) == self.config.token_dropout, seg)
        vectors = self.positions.embed(pos, pos.shape[1])
        x = x if vectors is None else x + vectors.astype(x.dtype)
        if self.kinds is not None:
            kind = jnp.zeros_like(side.inputs) if side.kind is None else side.kind
            x = x + self.kinds(kind)
        x = x if self.input_norm is None else self.input_norm(x)
        return Entered(self.dropout(x, train), pos, seg)

    def predicted(self, x: Float[Array, "B S D"]) -> Output:
        """Return the prediction of the piece at each hidden state's position."""
        output = super().predicted(self.piece_head(x))
        return output._replace(head=Head(output.head.table, self.piece_head.bias))

    @nn.nowrap
    def stepper(self, params: object) -> None:
        """See Model: it generates nothing."""

    @nn.nowrap
    def example(self) -> Batch:
        """See Model."""
        ones, src = np.ones((1, 2), np.int32), self.example_source()
        return Batch(
            src, Side(ones, ones, ones) if self.asks("text", "ends", "squares") else None, {}
        )


# Which positions of a segment [B T S] are averaged into its vector.
POOLINGS: dict[str, Callable[[Array, Array], Array]] = {
    "first": lambda seen, pos: seen & (pos == 0)[:, None, :],
    "mean": lambda seen, pos: seen,
    "last": lambda seen, pos: seen & (pos[:, None] == _last(seen, pos)),
}


def _last(seen: Bool[Array, "B T S"], pos: Int[Array, "B S"]) -> Int[Array, "B T 1"]:
    """Return the last position of each segment, -1 if there is none."""
    return jnp.where(seen, pos[:, None], -1).max(-1, keepdims=True)


def pool(memory: Memory, tgt: Side, pooling: str) -> Float[Array, "B T D"]:
    """Return a source vector for each position of the target side, from its segment."""
    x, pos, seg = memory
    seen = cross_view(tgt.pos, tgt.seg, pos, seg).mask()[:, 0]
    seen = pick(POOLINGS, pooling, "config.model.pooling")(seen, pos)
    weights = at_least_float32(seen.astype(x.dtype))
    weights = weights / jnp.maximum(weights.sum(-1, keepdims=True), 1)
    return jnp.einsum("BTS,BSD->BTD", weights.astype(x.dtype), x)


def pointed(logits: Float[Array, "B S 2"], src: Memory, tgt: Side) -> Float[Array, "B T S"]:
    """Return the logit of each source position for the end that a target position stands for: the
    first target position of a segment for the first, the second for the last.
    """
    seen = cross_view(tgt.pos, tgt.seg, src.pos, src.seg).mask()[:, 0]
    first, last = logits[:, None, :, 0], logits[:, None, :, 1]
    ends = jnp.where((tgt.pos == 0)[:, :, None], first, last)
    return jnp.where(seen, ends, NEVER)


class PieceHead(nn.Module):
    """The layers before the table in BERT's masked-piece head: a linear map, the activation, a
    norm. It holds the bias of each piece.
    """

    config: ModelConfig
    vocab_size: int
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        self.dense = Project(
            (c.d_model,), (c.d_model,), ("embed", "features"), self.dtype, role=HEAD
        )
        self.norm = make_norm(c)
        self.bias = parameter(
            self, "bias", named(nn.initializers.zeros, "vocab", role=PLAIN), (self.vocab_size,)
        )

    def __call__(self, x: Float[Array, "B S D"]) -> Float[Array, "B S D"]:
        activation = pick(ACTIVATIONS, self.config.activation, "config.model.activation")
        return self.norm(activation.function(self.dense(x)))


class ClassHead(nn.Module):
    """The linear map to classes: a table [C D] from N(0, 1/D), and a bias."""

    config: ModelConfig
    count: int
    rows: str = "classes"  # the logical axis
    width: int | None = None  # D; None: d_model

    @nn.compact
    def __call__(self) -> Head:
        width = self.width or self.config.d_model
        columns = "embed" if self.width is None else "features"
        init = named(nn.initializers.normal(width**-0.5), self.rows, columns, role=HEAD_TABLE)
        zeros = named(nn.initializers.zeros, self.rows, role=PLAIN)
        table = parameter(self, "table", init, (self.count, width))
        return Head(table, parameter(self, "bias", zeros, (self.count,)))
