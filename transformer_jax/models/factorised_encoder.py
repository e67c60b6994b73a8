"""Two encoders of a clip, one after the other: of each time's tubelets, then of a vector for each
time (ViViT's model 2: Arnab et al. 2021, arXiv:2103.15691, section 3.3).
"""

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float
from transformer_jax.data.batches.batch import Side
from transformer_jax.models.encoder import Encoder
from transformer_jax.models.network import Memory
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.mixers.space_time import frames
from transformer_jax.nn.roles import PLAIN
from transformer_jax.nn.view import self_view


class FactorisedEncoder(Encoder):
    """The encoder reads the tubelets of each time by themselves, behind a class token. Its outputs
    for that, a vector for each time, are read by `num_time_layers` more layers, behind another one.
    Both have positions of their own. Each row of a batch holds one clip.
    """

    def setup(self) -> None:
        super().setup()
        c = self.config
        init = named(nn.initializers.normal(c.d_model**-0.5), "embed", role=PLAIN)
        self.time_token = parameter(self, "time_token", init, (c.d_model,))
        self.time_positions = self.new_positions()
        self.time_encoder = self.new_stack(c.num_time_layers, ("full",), cross=False)

    def encode(self, side: Side | None, train: bool) -> Memory:
        """Return the outputs for the second class token and for each time, in this order."""
        assert side is not None
        x, _, seg = self.entered(side)
        rows, within = (frames(self.config.grid, y, 1) for y in (x, seg))
        pos = jnp.broadcast_to(jnp.arange(rows.shape[1])[None], rows.shape[:2])
        layers = self.positions, self.input_norm
        rows = self.embedded(lambda _: rows, *layers, None, pos, rows.shape[1], train)
        rows = self.encoder(rows, self_view(pos, within, "all", single=self.single), train)
        return self._over_time(rows[:, 0].reshape(x.shape[0], -1, x.shape[2]), seg[:, :1], train)

    def _over_time(self, x: Float[Array, "B T D"], seg: Array, train: bool) -> Memory:
        batch, times, width = x.shape
        token = jnp.broadcast_to(self.time_token.astype(x.dtype), (batch, 1, width))
        vectors = jnp.concatenate([token, x], axis=1)
        pos = jnp.broadcast_to(jnp.arange(1 + times)[None], (batch, 1 + times))
        segs = jnp.broadcast_to(seg, pos.shape)
        layers = self.time_positions, None
        vectors = self.embedded(lambda _: vectors, *layers, None, pos, 1 + times, train)
        view = self_view(pos, segs, "all", single=self.single)
        return Memory(self.time_encoder(vectors, view, train), pos, segs)
