"""Autoencoding pictures as discrete codes (VQ-VAE: van den Oord et al. 2017, arXiv:1711.00937), or
as normal vectors (VAE: Kingma and Welling 2013, arXiv:1312.6114), with Transformers on both sides
(ViT-VQGAN: Yu et al. 2021, arXiv:2110.04627, section 3.1).
"""

from typing import Any

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float, Int
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.encoder import Encoder
from transformer_jax.models.model import Output
from transformer_jax.nn.codes import Coded, Codes, Gaussian
from transformer_jax.nn.linear import Project
from transformer_jax.nn.roles import MAP
from transformer_jax.nn.view import self_view


class Reconstructed(Output):
    """The vectors themselves [B S C]; in place of a head, the penalty of each position [B S]."""

    def logits(self) -> Float[Array, "B S C"]:
        """Return the vectors, at least in float32."""
        return self.hidden


class Autoencoder(Encoder):
    """Stem, encoder and codes; then the codes' vectors, more layers, and a map to vectors."""

    def setup(self) -> None:
        c = self.config
        self.set_inputs()
        self.encoder = self.new_stack(c.num_encoder_layers, c.encoder_pattern, cross=False)
        self.codes = self.new_codes()
        self.code_positions = self.new_positions()
        self.code_norm = self.new_input_norm()
        self.decoder = self.new_stack(c.num_decoder_layers, c.decoder_pattern, cross=False)
        names = "embed", "features"
        self.pixels = Project((c.d_model,), (self.src_vocab_size,), names, self.dtype, role=MAP)

    def __call__(self, batch: Batch, train: bool) -> dict[str, Output]:
        src = batch.src
        assert src is not None
        coded = self.coded(self.encode(src, train).hidden, train)
        penalty: Any = coded.penalty
        return {"pixels": Reconstructed(self._made(coded.x, src, train), penalty)}

    @nn.nowrap
    def new_codes(self) -> Any:
        """Return what is kept of each position."""
        return Codes(self.config, self.dtype)

    def coded(self, x: Float[Array, "B S D"], train: bool) -> Coded:
        """Return what is decoded of each position."""
        return self.codes(x)

    def to_codes(self, side: Side) -> Int[Array, "B S"] | Float[Array, "B S K"]:
        """Return the code of each position of pictures, or its latents."""
        return self.codes.of(self.encode(side, False).hidden)

    def from_codes(self, side: Side) -> Float[Array, "B S C"]:
        """Return the vectors of pictures whose codes, or latents, are the side's inputs."""
        return self._made(self.codes.vectors(jnp.asarray(side.inputs)), side, False)

    def _made(self, x: Float[Array, "B S D"], side: Side, train: bool) -> Float[Array, "B S C"]:
        pos, seg = jnp.asarray(side.pos), jnp.asarray(side.seg)
        vectors = self.code_positions.embed(pos, pos.shape[1])
        x = x if vectors is None else x + vectors.astype(x.dtype)
        x = x if self.code_norm is None else self.code_norm(x)
        view = self_view(pos, seg, "all", single=self.single)
        x = self.decoder(self.dropout(x, train), view, train)
        pixels = self.pixels(x)
        return pixels.astype(jnp.promote_types(pixels.dtype, jnp.float32))


class VariationalAutoencoder(Autoencoder):
    """The same with normal latents in place of codes."""

    @nn.nowrap
    def new_codes(self) -> Any:
        """See Autoencoder."""
        return Gaussian(self.config, self.dtype)

    def coded(self, x: Float[Array, "B S D"], train: bool) -> Coded:
        """See Autoencoder."""
        return self.codes(x, train)
