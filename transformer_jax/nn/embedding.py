"""The piece table: embedding, and the pre-softmax product with the same matrix."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Bool, Float, Int, at_least_float32, take_rows
from transformer_jax.base.shares import laid_out
from transformer_jax.config import ModelConfig
from transformer_jax.config.registry import pick
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.lookup import look_up
from transformer_jax.nn.roles import EMBEDDING, PLAIN, Role

COLUMNS = "columns"  # name of a transposed table among the parameters that a search holds


class Head(NamedTuple):
    """The last linear map: hidden states to logits, with a matrix that may be an embedding's.

    In a search, `columns` may hold the table transposed: see `decoding.weights`. With a softcap,
    logits are `capped`.
    """

    table: Float[Array, "V D"]
    bias: Float[Array, "V"] | None = None
    columns: Float[Array, "D V"] | None = None
    softcap: float | None = None

    def logits(self, x: Float[Array, "B T D"]) -> Float[Array, "B T V"]:
        """Return x times the transposed table, plus the bias, at least in float32."""
        matrix, axis = (self.table, 1) if self.columns is None else (self.columns, 0)
        logits = jax.lax.dot_general(
            x, matrix.astype(x.dtype), (((2,), (axis,)), ((), ())),
            preferred_element_type=jnp.promote_types(x.dtype, jnp.float32),
        )  # fmt: skip
        logits = logits if self.bias is None else logits + self.bias.reshape(1, 1, -1)
        return capped(logits, self.softcap)

    def among(self, pieces: Int[Array, "B K"], dtype: jnp.dtype) -> "Shortlist":
        """Return the map to a subset of pieces, which differs by row of the batch; without the
        softcap, which is no array of a search's state.
        """
        table = jnp.swapaxes(take_rows(self.table.astype(dtype), pieces), 1, 2)
        return Shortlist(table, None if self.bias is None else self.bias[pieces])


class Shortlist(NamedTuple):
    """A Head with a separate set of pieces for each row of a batch."""

    table: Float[Array, "B D K"]  # the product reads it along K: faster by half than along D
    bias: Float[Array, "B K"] | None

    def logits(self, x: Float[Array, "B T D"]) -> Float[Array, "B T K"]:
        """See Head."""
        logits = jax.lax.dot_general(
            x, self.table.astype(x.dtype), (((2,), (1,)), ((0,), (0,))),
            preferred_element_type=jnp.promote_types(x.dtype, jnp.float32),
        )  # fmt: skip
        return logits if self.bias is None else logits + self.bias[:, None]


def capped(logits: Array, softcap: float | None) -> Array:
    """Return c tanh(logits / c) with a softcap c (Gemma 2: arXiv:2408.00118); without, logits."""
    return logits if softcap is None else softcap * jnp.tanh(logits / softcap)


def fix_norm(rows: Float[Array, "... D"]) -> Float[Array, "... D"]:
    """Return rows of length 1 (FixNorm, Nguyen and Salazar 2019, arXiv:1910.05895).

    As in the authors' code, inputs are then multiplied by sqrt(D) and the pre-softmax matrix is
    not: the last norm's scale sets how peaked the softmax is.
    """
    squares = jnp.square(at_least_float32(rows)).sum(-1, keepdims=True)
    return rows * jax.lax.rsqrt(jnp.maximum(squares, 1e-24))


EMBEDDING_NORMS = {"none": lambda rows: rows, "fix_norm": fix_norm}


_KEPT = 1 - 0.15 * 0.8  # what ESM-2's training leaves unmasked, whatever a model's own rate


def token_dropout(
    x: Float[Array, "B T D"], hidden: Bool[Array, "B T"], seg: Int[Array, "B T"]
) -> Float[Array, "B T D"]:
    """Return vectors with zeros where pieces are hidden, and the others times 0.88 over the share
    of their segment that is not: see `config.model.token_dropout`. All are zero where all are
    hidden, for which ESM-2's formula is not defined.
    """

    def of_segments(counted: Bool[Array, "B T"]) -> Float[Array, "B T"]:
        rows = jax.vmap(lambda x, seg: jnp.bincount(seg, x, length=x.shape[0] + 1)[seg])
        return rows(counted.astype(jnp.promote_types(x.dtype, jnp.float32)), jnp.asarray(seg))

    shown = of_segments(~hidden)
    scale = jnp.where(hidden, 0, _KEPT * of_segments(hidden | ~hidden) / jnp.maximum(shown, 1))
    return x * scale[..., None].astype(x.dtype)


class LogitsBias(nn.Module):
    """A number for each piece [V], which starts at zero: see `config.model.logits_bias`."""

    vocab_size: int

    @nn.compact
    def __call__(self) -> Float[Array, "V"]:
        return parameter(
            self, "bias", named(nn.initializers.zeros, "vocab", role=PLAIN), (self.vocab_size,)
        )


class Embed(nn.Module):
    """A table [V D] from N(0, 1/D), as in tensor2tensor; lookups times sqrt(D) (paper 3.4)."""

    vocab_size: int
    config: ModelConfig
    dtype: jnp.dtype
    role: Role = EMBEDDING

    def setup(self) -> None:
        c = self.config
        init = named(nn.initializers.normal(c.d_model**-0.5), "vocab", "embed", role=self.role)
        self.table = parameter(self, "table", init, (self.vocab_size, c.d_model))
        self.norm = pick(EMBEDDING_NORMS, c.embedding_norm, "config.model.embedding_norm")

    def __call__(self, ids: Int[Array, "B T"]) -> Float[Array, "B T D"]:
        x = self.norm(look_up(self.table, ids)).astype(self.dtype)
        if self.config.embedding_scale:
            x = x * jnp.asarray(self.config.d_model**0.5, self.dtype)
        return laid_out(x, "batch", "act_length", "act_embed")

    def head(self) -> Head:
        """Return the pre-softmax map with this table."""
        held = self.has_variable("params", COLUMNS)
        columns = self.get_variable("params", COLUMNS) if held else None
        return Head(self.norm(self.table), columns=columns)
