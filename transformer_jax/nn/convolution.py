"""The convolution module of a Conformer block (Gulati et al. 2020, arXiv:2005.08100, 2.2)."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.arrays import Array, Float, at_least_float32
from transformer_jax.config import ModelConfig
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.linear import Project, project_together
from transformer_jax.nn.norm import make_norm
from transformer_jax.nn.view import View


class ConvolutionModule(nn.Module):
    """A gated linear unit, a convolution of each channel by itself along the sequence, a norm, SiLU
    and a linear map, all without biases.

    The norm is that of the model: no statistics of a batch are kept here, so it is not the paper's
    batch norm. What is not of a row's text is 0 to the convolution: padding changes nothing.
    """

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        inward = (c.d_model,), (c.d_model,), ("embed", "features"), self.dtype, False
        self.gate, self.up = Project(*inward), Project(*inward)
        self.down = Project((c.d_model,), (c.d_model,), ("features", "embed"), self.dtype, False)
        self.norm = make_norm(c)
        init = named(nn.initializers.normal(c.conv_kernel**-0.5), "rows", "features")
        self.depthwise = parameter(self, "depthwise", init, (c.conv_kernel, c.d_model))

    def __call__(self, x: Float[Array, "B T D"], view: View) -> Float[Array, "B T D"]:
        gates, linear = project_together(x, [self.gate, self.up])
        x = jnp.where(view.q_seg[..., None] > 0, jax.nn.sigmoid(gates) * linear, 0)
        return self.down(jax.nn.silu(self.norm(self._along(x))))

    def _along(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        """Return the sum of as many neighbours on either side, each channel by its own weights."""
        half, length = len(self.depthwise) // 2, x.shape[1]
        padded = at_least_float32(jnp.pad(x, ((0, 0), (half, half), (0, 0))))
        kernel = at_least_float32(self.depthwise)
        found = jnp.zeros((), padded.dtype)
        for place in range(len(self.depthwise)):
            found += kernel[place].reshape(1, 1, -1) * padded[:, place : place + length]
        return found.astype(x.dtype)
