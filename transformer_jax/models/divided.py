"""A layer of a clip that mixes its times, then each frame (divided space-time attention,
TimeSformer: Bertasius et al. 2021, arXiv:2102.05095, figure 2).
"""

from transformer_jax.base.arrays import Array, Float
from transformer_jax.models.layers import Layer, make_residual
from transformer_jax.nn.mixers.space_time import MappedTimeAttention
from transformer_jax.nn.residual import under
from transformer_jax.nn.view import View


class Divided(Layer):
    """Attention over the times of each place, a residual part of its own, before attention over the
    places of each frame and a feed-forward layer.
    """

    def setup(self) -> None:
        super().setup()
        self.time_attention = MappedTimeAttention(self.config, self.dtype)
        self.time_attention_residual = make_residual(self.config, self.cross)

    def __call__(
        self,
        x: Float[Array, "B T E"],
        view: View,
        train: bool,
        memory: Float[Array, "B S D"] | None = None,
        cross_view: View | None = None,
        condition: Float[Array, "B D"] | None = None,
    ) -> Float[Array, "B T E"]:
        """See Layer."""
        residual = under(self.time_attention_residual, condition)
        y, _ = self.time_attention.mix(residual.read(x), view, train)
        x = residual.write(x, y, train)
        return super().__call__(x, view, train, memory, cross_view, condition)
