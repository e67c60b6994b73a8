"""What an autoencoder keeps of a position: the nearest of a table of codes, or normal numbers."""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, Int, at_least_float32
from transformer_jax.config import ModelConfig
from transformer_jax.nn.embedding import fix_norm
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.linear import Project
from transformer_jax.nn.roles import MAP, TABLE

_LOG_VARIANCES = -30.0, 20.0  # as in Stable Diffusion's


class Coded(NamedTuple):
    """What each position is decoded from, and a penalty: for its distance from the input, or from
    what a position would be that says nothing.
    """

    x: Float[Array, "B S D"]
    penalty: Float[Array, "B S"]


class Codes(nn.Module):
    """Vector quantisation (van den Oord et al. 2017, arXiv:1711.00937): each position is replaced
    by its nearest code, with a straight-through gradient.

    The lookup compares vectors of few channels and length 1, which keeps all codes in use (Yu et
    al. 2021, arXiv:2110.04627, section 3.2): the nearest code is the one with the largest cosine.
    """

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        names = "embed", "features"
        self.enter = Project((c.d_model,), (c.code_width,), names, self.dtype, role=MAP)
        init = named(nn.initializers.normal(1.0), "rows", "features", role=TABLE)
        self.table = parameter(self, "table", init, (c.num_codes, c.code_width))
        self.leave = Project((c.code_width,), (c.d_model,), names[::-1], self.dtype, role=MAP)

    def __call__(self, x: Float[Array, "B S D"]) -> Coded:
        near = self._entered(x)
        code = self._unit_table()[self._nearest(near)].astype(near.dtype)
        stop = jax.lax.stop_gradient
        moved = jnp.square(stop(near) - code).sum(-1)
        committed = jnp.square(near - stop(code)).sum(-1)
        decoded = self.leave(near + stop(code - near))
        return Coded(decoded, moved + self.config.commitment * committed)

    def of(self, x: Float[Array, "B S D"]) -> Int[Array, "B S"]:
        """Return the index of each position's code."""
        return self._nearest(self._entered(x))

    def vectors(self, codes: Int[Array, "B S"]) -> Float[Array, "B S D"]:
        """Return the quantised vectors of positions with these codes."""
        return self.leave(self._unit_table()[codes])

    def _entered(self, x: Float[Array, "B S D"]) -> Float[Array, "B S K"]:
        return fix_norm(at_least_float32(self.enter(x)))

    def _unit_table(self) -> Float[Array, "C K"]:
        return fix_norm(self.table)

    def _nearest(self, near: Float[Array, "B S K"]) -> Int[Array, "B S"]:
        table = self._unit_table().astype(near.dtype)
        return jnp.einsum("BSK,CK->BSC", near, table).argmax(-1)


class Gaussian(nn.Module):
    """Normal latents (Kingma and Welling 2013, arXiv:1312.6114): mean and log-variance of K numbers
    per position, mean + deviation x noise in training, the mean otherwise; and the divergence from
    a standard normal distribution, (mean^2 + variance - 1 - log-variance) / 2, summed (nats), times
    its weight.
    """

    config: ModelConfig
    dtype: jnp.dtype

    def setup(self) -> None:
        c = self.config
        names = "embed", "features"
        self.enter = Project((c.d_model,), (2 * c.code_width,), names, self.dtype, role=MAP)
        self.leave = Project((c.code_width,), (c.d_model,), names[::-1], self.dtype, role=MAP)

    def __call__(self, x: Float[Array, "B S D"], train: bool) -> Coded:
        mean, log_variance = self._parameters(x)
        variance = jnp.exp(log_variance)
        nats = (jnp.square(mean) + variance - 1 - log_variance).sum(-1) / 2
        z = mean
        if train:
            noise = jax.random.normal(self.make_rng("dropout"), mean.shape, mean.dtype)
            z = mean + jnp.sqrt(variance) * noise
        return Coded(self.leave(z), self.config.kl_weight * nats)

    def of(self, x: Float[Array, "B S D"]) -> Float[Array, "B S K"]:
        """Return the mean of each position's latents."""
        return self._parameters(x)[0]

    def vectors(self, latents: Float[Array, "B S K"]) -> Float[Array, "B S D"]:
        """Return what positions with these latents are decoded from."""
        return self.leave(latents)

    def _parameters(
        self, x: Float[Array, "B S D"]
    ) -> tuple[Float[Array, "B S K"], Float[Array, "B S K"]]:
        mean, log_variance = jnp.split(at_least_float32(self.enter(x)), 2, axis=-1)
        return mean, jnp.clip(log_variance, *_LOG_VARIANCES)
