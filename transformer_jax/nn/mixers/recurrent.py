"""Recurrent layers: Elman's, LSTM and GRU, left to right or bidirectional."""

from collections.abc import Sequence
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.mixers.recurrence import Recurrence, Step, scan
from transformer_jax.nn.roles import MAP, PLAIN
from transformer_jax.nn.view import View


class Cell(nn.Module):
    """W x + b of every gate, and the recurrent weights: U and its biases.

    Gates [D G H] start Xavier-uniform, each separately, and U [H G H] orthogonal; biases at zero.
    """

    d_model: int
    size: int  # of the state, H
    gates: int  # G
    dtype: jnp.dtype
    axis: str = "embed"  # the name of the input axis

    def setup(self) -> None:
        d, h, g = self.d_model, self.size, self.gates
        inward = named(
            _each_gate(nn.initializers.xavier_uniform()), self.axis, "gates", "state", role=MAP
        )
        around = named(
            _each_gate(nn.initializers.orthogonal()), "features", "gates", "state", role=PLAIN
        )
        self.kernel = parameter(self, "kernel", inward, (d, g, h))
        self.recurrent_kernel = parameter(self, "recurrent_kernel", around, (h, g, h))
        zeros = named(nn.initializers.zeros, "gates", "state", role=PLAIN)
        self.bias = parameter(self, "bias", zeros, (g, h))
        self.recurrent_bias = parameter(self, "recurrent_bias", zeros, (g, h))

    def enter(self, x: Float[Array, "B T D"]) -> Float[Array, "B T G H"]:
        """Return W x + b."""
        return self.inward()(x)

    def inward(self) -> Any:
        """Return x [... D] -> W x + b [... G H] as a function that holds the parameters."""
        kernel, bias = self.kernel, self.bias

        def inward(x: Float[Array, "... D"]) -> Float[Array, "... G H"]:
            y = self._product("...D,DGH->...GH", x, kernel)
            return y + bias.reshape((1,) * (y.ndim - 2) + bias.shape)

        return inward

    def around(self) -> Any:
        """Return h [B H] -> U h + b [B G H]."""
        kernel, bias = self.recurrent_kernel, self.recurrent_bias
        return lambda h: self._product("BH,HGK->BGK", h, kernel) + bias[None]

    @nn.nowrap
    def _product(self, axes: str, x: Array, kernel: Array) -> Array:
        wide = jnp.promote_types(self.dtype, jnp.float32)
        factors = x.astype(self.dtype), kernel.astype(self.dtype)
        return jnp.einsum(axes, *factors, preferred_element_type=wide)


def elman(around: Any) -> Step:
    """Return h = tanh(W x + U h + b) (Elman 1990, https://doi.org/10.1207/s15516709cog1402_1)."""

    def step(h: Array, x: Array) -> tuple[Array, Array]:
        h = jnp.tanh(x + around(h))[:, 0]
        return h, h

    return step


def lstm(around: Any, normal: Any = None) -> Step:
    """Return c = s(f) c + s(i) tanh(g), h = s(o) tanh(c), with a forget gate (Gers et al. 2000,
    https://doi.org/10.1162/089976600300015015); gates in the order i, f, g, o, first normalised if
    a norm is given.
    """

    def step(state: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], Array]:
        h, c = state
        gates = x + around(h)
        i, f, g, o = jnp.moveaxis(gates if normal is None else normal(gates), 1, 0)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return step


def gru(around: Any) -> Step:
    """Return n = tanh(W x + b + r (U h + b')), h = (1 - z) n + z h: the gated recurrent unit of Cho
    et al. 2014 (arXiv:1406.1078) with its reset gate after the product; gates in the order r, z, n.
    """

    def step(h: Array, x: Array) -> tuple[Array, Array]:
        again = around(h)
        r = jax.nn.sigmoid(x[:, 0] + again[:, 0])
        z = jax.nn.sigmoid(x[:, 1] + again[:, 1])
        n = jnp.tanh(x[:, 2] + r * again[:, 2])
        h = (1 - z) * n + z * h
        return h, h

    return step


class Recurrent(Recurrence):
    """A left-to-right recurrent layer, with a state as wide as the model."""

    gates = 1
    states = 1  # arrays in a state
    rule = staticmethod(elman)

    def setup(self) -> None:
        self.cell = Cell(self.config.d_model, self.config.d_model, self.gates, self.dtype)

    def enter(self, x: Float[Array, "B T D"]) -> Any:
        """See Recurrence."""
        return self.cell.enter(x)

    def blank(self, batch: Any) -> Any:
        """See Recurrence."""
        return self._blank(batch, self.config.d_model)

    @nn.nowrap
    def _blank(self, batch: Any, size: int) -> Any:
        zeros = jnp.zeros((batch, size), jnp.promote_types(self.dtype, jnp.float32))
        return (zeros,) * self.states if self.states > 1 else zeros

    def step(self) -> Step:
        """See Recurrence."""
        return self.rule(self.cell.around())

    def leave(self, out: Array) -> Float[Array, "B T D"]:
        """See Recurrence."""
        return out.astype(self.dtype)


class Lstm(Recurrent):
    """Long short-term memory."""

    gates, states, rule = 4, 2, staticmethod(lstm)


class Gru(Recurrent):
    """Gated recurrent units."""

    gates, rule = 3, staticmethod(gru)


class TwoWay(Recurrent):
    """A bidirectional layer: one from each end, with states of half the width, concatenated
    (Schuster and Paliwal 1997, https://doi.org/10.1109/78.650093). It reads whole texts: for
    encoders only.
    """

    def setup(self) -> None:
        half = self.config.d_model // 2
        self.forward = Cell(self.config.d_model, half, self.gates, self.dtype)
        self.backward = Cell(self.config.d_model, half, self.gates, self.dtype)

    def enter(self, x: Float[Array, "B T D"]) -> tuple[Array, Array]:
        """See Recurrence: one for each direction."""
        return self.forward.enter(x), self.backward.enter(x)

    def through(self, entering: tuple[Array, Array], view: View) -> tuple[Array, None]:
        """See Recurrence; nothing can be appended."""
        assert view.order == "all", "a text being generated has no end to start from"
        blank = self._blank(view.q_seg.shape[0], self.config.d_model // 2)
        out = [
            scan(self.rule(cell.around()), blank, inputs, view.q_seg, reverse)[0]
            for cell, inputs, reverse in zip(
                (self.forward, self.backward), entering, (False, True), strict=True
            )
        ]
        return jnp.concatenate(out, axis=-1), None


class BiElman(TwoWay):
    """Bidirectional Elman network."""


class BiLstm(TwoWay, Lstm):
    """Bidirectional long short-term memory."""


class BiGru(TwoWay, Gru):
    """Bidirectional gated recurrent units."""


def _each_gate(init: Any) -> Any:
    def start(key: Array, shape: Sequence[int], dtype: Any = jnp.float32) -> Array:
        keys = jax.random.split(key, shape[1])
        return jnp.stack([init(k, (shape[0], shape[2]), dtype) for k in keys], axis=1)

    return start


WORDS = {
    "elman": Recurrent,
    "lstm": Lstm,
    "gru": Gru,
    "bielman": BiElman,
    "bilstm": BiLstm,
    "bigru": BiGru,
}
