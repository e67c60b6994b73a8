"""Embeddings from language models (ELMo): a forward and a backward recurrent language model, and
the features that they provide for other tasks (Peters et al. 2018, arXiv:1802.05365).
"""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Float
from transformer_jax.config import ModelConfig
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.core import Core
from transformer_jax.models.encoder import HEADS, chosen, pool, set_class_heads
from transformer_jax.models.model import Output
from transformer_jax.models.network import Memory
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.linear import Project
from transformer_jax.nn.mixers.kinds import MIXERS
from transformer_jax.nn.roles import HEAD, LOGITS, PLAIN
from transformer_jax.nn.view import self_view


class OneWay(nn.Module):
    """Recurrent layers that read a text in one direction, with residuals from the second on."""

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        kinds = [c.encoder_pattern[i % len(c.encoder_pattern)] for i in range(c.num_encoder_layers)]
        self.layer = [MIXERS[kind](c, self.dtype) for kind in kinds]

    def __call__(self, x: Float[Array, "B S D"], side: Side, drop: Any) -> list[Array]:
        """Return the input of the first layer, and the output of each."""
        view, layers = self_view(side.pos, side.seg, "causal"), [x]
        for number, layer in enumerate(self.layer):
            y = layer.mix(x, view, False)[0]
            x = x + drop(y) if number else drop(y)
            layers.append(x)
        return layers


class Mixture(nn.Module):
    """gamma sum_j softmax(s)_j h_j over L + 1 layers; s starts at 0, gamma at 1."""

    layers: int

    @nn.compact
    def __call__(self, layers: Sequence[Float[Array, "B S P D"]]) -> Float[Array, "B S P D"]:
        zeros, ones = (
            named(init, "layers", role=PLAIN)
            for init in (nn.initializers.zeros, nn.initializers.ones)
        )
        share = jax.nn.softmax(parameter(self, "weights", zeros, (self.layers + 1,)))
        gamma = parameter(self, "gamma", ones, (1,))
        mixed = sum(
            weight * layer.astype(share.dtype) for weight, layer in zip(share, layers, strict=True)
        )
        return (gamma[0] * mixed).astype(layers[0].dtype)


class Elmo(Core):
    """Embeddings, forward and backward layers, each as wide as the model, and one pre-softmax
    product for both directions.

    Predictions about texts or their positions (see `encoder.HEADS`) are made from a mixture of all
    layers, with both directions concatenated.
    """

    def setup(self) -> None:
        c = self.config
        self.embedding = self.new_embedding(self.src_vocab_size)
        self.dropout = self.new_dropout()
        self.forward, self.backward = OneWay(c, self.dtype), OneWay(c, self.dtype)
        if "tokens" in self.predicts:
            own = c.tied_embeddings == "none"
            self.output = self.new_embedding(self.src_vocab_size, LOGITS) if own else self.embedding
        if chosen(self):
            self.mixture = Mixture(c.num_encoder_layers)
        if self.asks_of_texts():
            both = ("gates", "embed", "features")
            self.pooler = Project((2, c.d_model), (c.d_model,), both, self.dtype, role=HEAD)
        set_class_heads(self, of_places=2 * c.d_model)

    @nn.nowrap
    def asks_of_texts(self) -> bool:
        """Whether anything is predicted about whole texts."""
        return any(HEADS[name].of == "text" for name in chosen(self))

    def __call__(self, batch: Batch, train: bool) -> dict[str, Output]:
        src = batch.src
        assert src is not None
        forward, backward = self.read(src, train)
        outputs = {}
        if "tokens" in self.predicts:
            outputs["tokens"] = self.predicted(forward[-1])
            outputs["backward"] = self.predicted(backward[-1])
        if not chosen(self):
            return outputs
        pairs = zip(forward, backward, strict=True)
        features = self.dropout(self.mixture([jnp.stack(pair, axis=2) for pair in pairs]), train)
        places = features.reshape(*features.shape[:2], -1)
        if self.asks_of_texts():
            assert batch.tgt is not None
            memory = Memory(places, jnp.asarray(src.pos), jnp.asarray(src.seg))
            pooled = pool(memory, batch.tgt, self.config.pooling)
            pooled = pooled.reshape(*pooled.shape[:2], 2, -1)
            pooled = self.dropout(jnp.tanh(self.pooler(pooled)), train)
        for name in chosen(self):
            hidden = pooled if HEADS[name].of == "text" else places
            outputs[name] = Output(hidden, getattr(self, f"{name}_head")())
        return outputs

    def read(self, side: Side, train: bool) -> tuple[list[Array], list[Array]]:
        """Return the input and output of the layers at each position, for both directions."""
        drop = lambda x: self.dropout(x, train)  # noqa: E731
        x = drop(self.embedding(side.inputs))
        turned = Side(None, *(jnp.asarray(y)[:, ::-1] for y in (side.pos, side.seg)))
        backward = self.backward(x[:, ::-1], turned, drop)
        return self.forward(x, side, drop), [y[:, ::-1] for y in backward]

    @nn.nowrap
    def stepper(self, params: Any) -> None:
        """See Model: it generates nothing."""

    @nn.nowrap
    def example(self) -> Batch:
        """See Model."""
        ones = np.ones((1, 2), np.int32)
        side = Side(ones, ones, ones)
        return Batch(side, side if self.asks_of_texts() else None, {})
