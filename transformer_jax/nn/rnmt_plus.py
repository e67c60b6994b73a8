"""The decoder of RNMT+ (Chen et al. 2018, arXiv:1804.09849, section 3)."""

from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.linear import Project
from transformer_jax.nn.mixers.recurrence import Step
from transformer_jax.nn.mixers.recurrent import lstm
from transformer_jax.nn.norm import standardised
from transformer_jax.nn.recurrent_decoders import Gnmt, State
from transformer_jax.nn.roles import MAP, PLAIN
from transformer_jax.nn.source_attention import Source


class GateNorm(nn.Module):
    """A separate norm for each gate of a cell, W x + U h + b [B G H], with scales and biases."""

    gates: int
    size: int
    epsilon: float

    def setup(self) -> None:
        shape = self.gates, self.size
        ones, zeros = (
            named(init, "gates", "state", role=PLAIN)
            for init in (nn.initializers.ones, nn.initializers.zeros)
        )
        self.scale = parameter(self, "scale", ones, shape)
        self.bias = parameter(self, "bias", zeros, shape)

    def normal(self) -> Callable[[Array], Array]:
        """Return the norm of gates as a function that holds the parameters."""
        scale, bias = self.scale[None], self.bias[None]
        return lambda gates: standardised(gates, self.epsilon) * scale + bias


class RnmtPlus(Gnmt):
    """GNMT's LSTM layers with a norm of each gate; the prediction is made from a linear map of the
    last layer's output and the context together.
    """

    def setup(self) -> None:
        super().setup()
        c = self.config
        self.norms = [GateNorm(4, c.d_model, c.norm_epsilon) for _ in self.cells]
        self.join = Project(
            (2, c.d_model), (c.d_model,), ("gates", "embed", "state"), self.dtype, role=MAP
        )

    def layers(self) -> list[Any]:
        """See RecurrentDecoder."""

        def layer(cell: Any, norm: GateNorm) -> Any:
            inward, rule = cell.inward(), lstm(cell.around(), norm.normal())
            return lambda state, x: rule(state, inward(x))

        return [layer(cell, norm) for cell, norm in zip(self.cells, self.norms, strict=True)]

    def step(self, source: Source) -> Step:
        """See RecurrentDecoder."""
        without = super().step(source)

        def step(state: State, token: tuple[Array, Array, Array]) -> tuple[State, Any]:
            (states, context), (x, weights) = without(state, token)
            return (states, context), ((x, context), weights)

        return step

    def predict(self, found: Any, y: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """See RecurrentDecoder."""
        return self.join(jnp.stack([part.astype(self.dtype) for part in found], axis=2))
