"""Diffusion transformers: what noise hides in a picture, led by time and condition (DiT: Peebles
and Xie 2022, arXiv:2212.09748; with a text as a second stream, MM-DiT: Esser et al. 2024,
arXiv:2403.03206).
"""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float, at_least_float32
from transformer_jax.config import ModelConfig
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.model import Output
from transformer_jax.models.network import Network
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.linear import Project
from transformer_jax.nn.lookup import look_up
from transformer_jax.nn.modulation import LastNorm, TwoMaps, waves
from transformer_jax.nn.roles import OWN_MAP, OWN_TABLE
from transformer_jax.nn.view import self_view


class Predicted(Output):
    """Vectors [B S C], without a head."""

    def logits(self) -> Float[Array, "B S C"]:
        """Return the vectors, at least in float32."""
        return self.hidden


class ClassTable(nn.Module):
    """A vector for each class, and one more for none; they start from N(0, 0.02^2), as in DiT."""

    config: ModelConfig
    count: int

    @nn.compact
    def __call__(self, side: Side, dtype: jnp.dtype) -> Float[Array, "B D"]:
        """Return the vector of the class at the first position of each row, if there is one."""
        init = named(nn.initializers.normal(0.02), "classes", "embed", role=OWN_TABLE)
        table = parameter(self, "table", init, (self.count + 1, self.config.d_model))
        ids = jnp.where(jnp.asarray(side.seg) > 0, jnp.asarray(side.inputs), self.count)
        return look_up(table, ids[:, :1])[:, 0].astype(dtype)


class DiffusionTransformer(Network):
    """Stem, encoder under a condition, and a map to the vectors that are predicted.

    The target side says what a picture shows; a row without a segment there says nothing.
    """

    def setup(self) -> None:
        c = self.config
        self.stem = self.new_stem(begun=False)
        self.positions = self.new_positions()
        self.times = TwoMaps(c, 256, self.dtype)
        if c.condition == "class":
            self.classes = ClassTable(c, self.tgt_vocab_size)
        else:
            self.text_embedding = self.new_embedding(self.tgt_vocab_size)
            self.text_positions = self.new_positions()
            self.pooled = TwoMaps(c, c.d_model, self.dtype)
        self.dropout = self.new_dropout()
        self.encoder = self.new_stack(c.num_encoder_layers, c.encoder_pattern, cross=False)
        self.last_norm = LastNorm(c)
        self.vectors = Project(
            (c.d_model,), (self.src_vocab_size,), ("embed", "features"), self.dtype, role=OWN_MAP,
            start=nn.initializers.zeros,
        )  # fmt: skip

    def __call__(self, batch: Batch, train: bool) -> dict[str, Output]:
        src, tgt = batch.src, batch.tgt
        assert src is not None
        assert tgt is not None
        x, pos, seg = self.entered(src)
        vectors = self.positions.embed(pos, pos.shape[1])
        x = x if vectors is None else x + vectors.astype(x.dtype)
        condition = self.times(waves(jnp.asarray(batch.time)))
        if self.config.condition == "class":
            condition = condition + self.classes(tgt, condition.dtype)
        else:
            text, places = self._text(tgt)
            condition = condition + self.pooled(_mean(self._embedded(tgt), tgt))
            x = jnp.concatenate([text, x], axis=1)
            pos, seg = (
                jnp.concatenate(pair, axis=1)
                for pair in ((places, pos), (jnp.asarray(tgt.seg), seg))
            )
        view = self_view(pos, seg, "all", single=self.single and self.config.condition == "class")
        x = self.encoder(self.dropout(x, train), view, train, condition=condition)
        x = x[:, -jnp.asarray(src.pos).shape[1] :]
        predicted: Any = at_least_float32(self.vectors(self.last_norm(x, condition)))
        nothing: Any = None
        return {"diffusion": Predicted(predicted, nothing)}

    def _embedded(self, tgt: Side) -> Float[Array, "B T D"]:
        return self.text_embedding(jnp.asarray(tgt.inputs))

    def _text(self, tgt: Side) -> tuple[Float[Array, "B T D"], Array]:
        """Return the vectors of a text's pieces, and their positions."""
        x, pos = self._embedded(tgt), jnp.asarray(tgt.pos)
        vectors = self.text_positions.embed(pos, pos.shape[1])
        return x if vectors is None else x + vectors.astype(x.dtype), pos

    @nn.nowrap
    def stepper(self, params: object) -> None:
        """See Model: it draws all vectors at once, see `decoding.draw`."""

    @nn.nowrap
    def example(self) -> Batch:
        """See Model."""
        ones = np.ones((1, 2), np.int32)
        if self.config.condition == "class":
            ones = ones[:, :1]
        length = int(np.prod(self.config.grid))
        places = np.ones((1, length), np.int32)
        vectors = np.ones((1, length, self.src_vocab_size), np.float32)
        said = Side(np.minimum(ones, self.tgt_vocab_size - 1), ones, ones)
        return Batch(Side(vectors, places, places), said, {}, np.ones(1, np.float32))


def _mean(x: Float[Array, "B T D"], side: Side) -> Float[Array, "B D"]:
    """Return the mean of the vectors of each row's text; zeros if there is none."""
    weight = (jnp.asarray(side.seg) > 0).astype(at_least_float32(x).dtype)
    share = weight / jnp.maximum(weight.sum(1, keepdims=True), 1)
    return jnp.einsum("BT,BTD->BD", share, x.astype(share.dtype)).astype(x.dtype)
