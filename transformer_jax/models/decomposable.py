"""Decomposable attention between two texts (Parikh et al. 2016, arXiv:1606.01933)."""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float, at_least_float32
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.core import Core
from transformer_jax.models.encoder import ClassHead
from transformer_jax.models.model import Output
from transformer_jax.nn.dropout import Dropout
from transformer_jax.nn.linear import Project
from transformer_jax.nn.roles import HEAD
from transformer_jax.nn.view import View, cross_view


class TwoLayers(nn.Module):
    """Two linear maps from the last axes of x, each with dropout before and a ReLU after it: F, G
    or H of the paper.
    """

    widths: Sequence[int]  # of the input
    names: Sequence[str]
    d_ff: int
    dropout_rate: float
    dtype: jnp.dtype

    def setup(self) -> None:
        self.up = Project(self.widths, (self.d_ff,), (*self.names, "mlp"), self.dtype, role=HEAD)
        self.down = Project((self.d_ff,), (self.d_ff,), ("mlp", "features"), self.dtype, role=HEAD)
        self.dropout = Dropout(self.dropout_rate)

    def __call__(self, x: Float[Array, "..."], train: bool) -> Float[Array, "... F"]:
        x = jax.nn.relu(self.up(self.dropout(x, train)))
        return jax.nn.relu(self.down(self.dropout(x, train)))


class DecomposableAttention(Core):
    """Attend, compare, aggregate: scores e = F(a) . F(b) of all pairs of words of two texts; each
    word compared with the mean of what it attends to in the other text, G([a; beta]); a class from
    the sums over each text, H([v_1; v_2]).

    Word order is ignored. The texts are two kinds of tokens; BOS and EOS are words like any others,
    and words without a counterpart attend to them as to the paper's NULL. Embeddings are trained.
    """

    def setup(self) -> None:
        c = self.config
        self.embedding = self.new_embedding(self.src_vocab_size)
        sizes = c.d_ff, c.dropout_rate, self.dtype
        self.attend = TwoLayers((c.d_model,), ("embed",), *sizes)
        self.compare = TwoLayers((2, c.d_model), ("gates", "embed"), *sizes)
        self.aggregate = TwoLayers((2, c.d_ff), ("gates", "features"), *sizes)
        self.class_head = ClassHead(c, self.tgt_vocab_size, width=c.d_ff)

    def __call__(self, batch: Batch, train: bool) -> dict[str, Output]:
        src, tgt = batch.src, batch.tgt
        assert src is not None
        assert tgt is not None
        x, kind = self.embedding(src.inputs), jnp.asarray(src.kind)
        wide = jnp.promote_types(self.dtype, jnp.float32)
        asked = self.attend(x, train)
        scores = jnp.einsum("BSF,BTF->BST", asked, asked, preferred_element_type=wide)
        seen = _view(src, src).mask()[:, 0] & (kind[:, :, None] != kind[:, None, :])
        weights = jax.nn.softmax(jnp.where(seen, scores, jnp.finfo(wide).min))
        aligned = jnp.einsum("BST,BTD->BSD", weights.astype(self.dtype), x)
        compared = self.compare(jnp.stack([x, aligned], axis=2), train)
        own = _view(tgt, src).mask()  # [B 1 T S]
        texts = own & (kind[:, None, None, :] == jnp.arange(2)[None, :, None, None])
        sums = jnp.einsum("BKTS,BSF->BTKF", texts.astype(wide), at_least_float32(compared))
        return {"class": Output(self.aggregate(sums, train), self.class_head())}

    @nn.nowrap
    def stepper(self, params: Any) -> None:
        """See Model: it generates nothing."""

    @nn.nowrap
    def example(self) -> Batch:
        """See Model."""
        ones = np.ones((1, 2), np.int32)
        side = Side(ones, ones, ones, kind=ones)
        return Batch(side, side, {})


def _view(one: Side, other: Side) -> View:
    return cross_view(one.pos, one.seg, other.pos, other.seg)
