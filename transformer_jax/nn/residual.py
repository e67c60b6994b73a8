"""Placement of the norm: what a sub-layer reads, and how its output joins the residual stream.

A layer only computes `x = residual.write(x, sublayer(residual.read(x)))`. A stack applies `begin`
to its input and `end` to its output. `cross` says whether the layer has cross-attention, as depth
constants differ between stacks.
"""

from typing import Any, ClassVar, NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float
from transformer_jax.config import ModelConfig
from transformer_jax.nn.dropout import Dropout
from transformer_jax.nn.modulation import Modulation, modulated
from transformer_jax.nn.norm import make_norm


class PostNorm(nn.Module):
    """norm(x + dropout(y)), as in the paper (section 3.1). The stack needs no final norm."""

    config: ModelConfig
    cross: bool = False
    needs_final_norm: ClassVar[bool] = False

    def setup(self) -> None:
        self.norm = make_norm(self.config)

    @staticmethod
    def begin(x: Float[Array, "B T D"]) -> Float[Array, "B T E"]:
        return x

    @staticmethod
    def end(x: Float[Array, "B T E"]) -> Float[Array, "B T D"]:
        return x

    def read(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        return x

    @nn.compact
    def write(
        self, x: Float[Array, "B T D"], y: Float[Array, "B T D"], train: bool
    ) -> Float[Array, "B T D"]:
        return self.norm(x + Dropout(self.config.dropout_rate)(y, train))


class PreNorm(PostNorm):
    """x + dropout(y) with y = sublayer(norm(x)) (Xiong et al. 2020, arXiv:2002.04745).

    Nothing normalises the stream itself, so the stack ends with a final norm. With
    `parametrization="completep"`, y is divided by how many times the base's its depth is.
    """

    needs_final_norm: ClassVar[bool] = True

    def read(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        return self.norm(x)

    @nn.compact
    def write(
        self, x: Float[Array, "B T D"], y: Float[Array, "B T D"], train: bool
    ) -> Float[Array, "B T D"]:
        y = Dropout(self.config.dropout_rate)(y, train)
        if (depths := self.config.depths) != 1:
            y = y * jnp.asarray(1 / depths, y.dtype)
        return x + y


class ReorderedNorm(PostNorm):
    """x + dropout(norm(y)): the output of a sub-layer is normalised, its input is not.

    The name is OLMo 2's (arXiv:2501.00656); Swin Transformer V2 (arXiv:2111.09883) calls it
    res-post-norm.
    """

    needs_final_norm: ClassVar[bool] = True

    @nn.compact
    def write(
        self, x: Float[Array, "B T D"], y: Float[Array, "B T D"], train: bool
    ) -> Float[Array, "B T D"]:
        return x + Dropout(self.config.dropout_rate)(self.norm(y), train)


class Sandwich(PreNorm):
    """x + dropout(output_norm(y)) with y = sublayer(norm(x)) (CogView, Ding et al. 2021,
    arXiv:2105.13290; Gemma 2).
    """

    def setup(self) -> None:
        self.norm, self.output_norm = make_norm(self.config), make_norm(self.config)

    @nn.compact
    def write(
        self, x: Float[Array, "B T D"], y: Float[Array, "B T D"], train: bool
    ) -> Float[Array, "B T D"]:
        return x + Dropout(self.config.dropout_rate)(self.output_norm(y), train)


class DeepNorm(PostNorm):
    """norm(alpha x + dropout(y)), for hundreds of layers (Wang et al. 2022, arXiv:2203.00555).

    Some parameters are initialised smaller, by beta: see `models.initial_values`.
    """

    @nn.compact
    def write(
        self, x: Float[Array, "B T D"], y: Float[Array, "B T D"], train: bool
    ) -> Float[Array, "B T D"]:
        alpha = deep_norm(self.config, self.cross).alpha
        return self.norm(alpha * x + Dropout(self.config.dropout_rate)(y, train))


class Parallel(PreNorm):
    """x + dropout(y) + dropout(z) with y and z two sub-layers of the same norm(x), a layer's mixer
    and its feed-forward part, which can be computed at the same time (GPT-J; PaLM, Chowdhery et al.
    2022, arXiv:2204.02311). Its layer is `models.layers.ParallelLayer`.
    """

    parallel: ClassVar[bool] = True
    one_norm: ClassVar[bool] = True


class ParallelNorms(Parallel):
    """The same with a norm for each (GPT-NeoX, Black et al. 2022, arXiv:2204.06745)."""

    one_norm: ClassVar[bool] = False


class Reversible(PostNorm):
    """Two streams side by side, [a; b] -> [b; a + dropout(y)] with y = sublayer(norm(b)), so that
    the input can be recomputed from the output (Gomez et al. 2017, arXiv:1707.04585; the Reformer).
    Both begin as the input of the stack; its output is their mean.
    """

    needs_final_norm: ClassVar[bool] = True

    def setup(self) -> None:
        super().setup()
        self.dropout = Dropout(self.config.dropout_rate)

    @staticmethod
    def begin(x: Float[Array, "B T D"]) -> Float[Array, "B T E"]:
        return jnp.concatenate([x, x], axis=-1)

    @staticmethod
    def end(x: Float[Array, "B T E"]) -> Float[Array, "B T D"]:
        a, b = jnp.split(x, 2, axis=-1)
        return (a + b) * jnp.asarray(0.5, x.dtype)

    def read(self, x: Float[Array, "B T E"]) -> Float[Array, "B T D"]:
        return self.norm(jnp.split(x, 2, axis=-1)[1])

    def write(
        self, x: Float[Array, "B T E"], y: Float[Array, "B T D"], train: bool
    ) -> Float[Array, "B T E"]:
        a, b = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([b, a + self.dropout(y, train)], axis=-1)

    def read_again(self, x: Float[Array, "B T E"]) -> Float[Array, "B T D"]:
        """Return what `read` returned, given the output of the `write` that followed."""
        return self.norm(jnp.split(x, 2, axis=-1)[0])

    def unwrite(
        self, x: Float[Array, "B T E"], y: Float[Array, "B T D"], train: bool
    ) -> Float[Array, "B T E"]:
        """Return the stream as it was before y was written."""
        b, sum_ = jnp.split(x, 2, axis=-1)
        return jnp.concatenate([sum_ - self.dropout(y, train), b], axis=-1)


class AdaptiveNorm(PostNorm):
    """x + gate * dropout(y) with y = sublayer(norm(x) * (1 + scale) + shift): adaLN-Zero (Peebles
    and Xie 2022, arXiv:2212.09748). Shift, scale and gate are maps of a condition, one for each
    sequence, that start at zero, and with them the layer as the identity. The norm of the stack's
    output is the model's, adaptive too.
    """

    def setup(self) -> None:
        self.modulation = Modulation(self.config, 3)
        self.dropout = Dropout(self.config.dropout_rate)

    def under(self, condition: Float[Array, "B D"]) -> "Conditioned":
        """Return the connection under a condition."""
        return Conditioned(self.config, self.dropout, *self.modulation(condition))


class Conditioned(NamedTuple):
    """An AdaptiveNorm under a condition."""

    config: ModelConfig
    dropout: Dropout
    shift: Float[Array, "B 1 D"]
    scale: Float[Array, "B 1 D"]
    gate: Float[Array, "B 1 D"]

    def read(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        return modulated(self.config, x, self.shift, self.scale)

    def write(
        self, x: Float[Array, "B T D"], y: Float[Array, "B T D"], train: bool
    ) -> Float[Array, "B T D"]:
        return x + self.gate * self.dropout(y, train)


def under(residual: Any, condition: Float[Array, "B D"] | None) -> Any:
    """Return a residual connection under a condition, if there is one."""
    return residual if condition is None else residual.under(condition)


class Depth(NamedTuple):
    """DeepNorm's constants for one stack."""

    alpha: float  # factor of the residual stream
    beta: float  # factor of the initial value, output and feed-forward maps


def deep_norm(config: ModelConfig, cross: bool) -> Depth:
    """Return the constants of a stack with or without cross-attention (figure 2 of the paper)."""
    n, m = config.num_encoder_layers, config.num_decoder_layers
    if config.architecture != "encoder_decoder":
        layers = n if "encoder" in config.stacks else m
        return Depth((2 * layers) ** 0.25, (8 * layers) ** -0.25)
    if cross:
        return Depth((3 * m) ** 0.25, (12 * m) ** -0.25)
    return Depth(0.81 * (n**4 * m) ** (1 / 16), 0.87 * (n**4 * m) ** (-1 / 16))


RESIDUALS: dict[str, Any] = {
    "post_norm": PostNorm,
    "pre_norm": PreNorm,
    "sandwich": Sandwich,
    "reordered_norm": ReorderedNorm,
    "deep_norm": DeepNorm,
    "parallel": Parallel,
    "parallel_norms": ParallelNorms,
    "reversible": Reversible,
    "adaptive_norm": AdaptiveNorm,
}
