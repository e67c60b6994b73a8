"""A layer of two streams, a text and a picture, that meet in attention (MM-DiT: Esser et al. 2024,
arXiv:2403.03206, figure 2b).
"""

import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float
from transformer_jax.models.layers import Layer, make_residual, new_feed_forward
from transformer_jax.nn.mixers.joint import apart
from transformer_jax.nn.modulation import LastNorm
from transformer_jax.nn.residual import under
from transformer_jax.nn.view import View


class Joint(Layer):
    """Attention over both, then a feed-forward layer for each. The text stands first in the
    sequence; its parts have names that begin with `text_`.
    """

    def setup(self) -> None:
        super().setup()
        self.text_attention_residual = make_residual(self.config, self.cross)
        kind = self.feed_forward_kind
        feed_forward = new_feed_forward(self.config, self.dtype, kind)
        assert feed_forward is not None
        self.text_feed_forward = feed_forward
        self.text_feed_forward_residual = make_residual(self.config, self.cross)

    def __call__(
        self,
        x: Float[Array, "B L D"],
        view: View,
        train: bool,
        memory: Float[Array, "B S D"] | None = None,
        cross_view: View | None = None,
        condition: Float[Array, "B D"] | None = None,
    ) -> Float[Array, "B L D"]:
        """See Layer."""
        text, picture = apart(self.config, x)
        real = view.q_seg > 0
        of_text = under(self.text_attention_residual, condition)
        of_picture = under(self.self_attention_residual, condition)
        both = jnp.concatenate([of_text.read(text), of_picture.read(picture)], axis=1)
        mixed, _ = self.self_attention.mix(both, view, train)
        to_text, to_picture = apart(self.config, mixed)
        text, picture = (
            of_text.write(text, to_text, train),
            of_picture.write(picture, to_picture, train),
        )
        of_text = under(self.text_feed_forward_residual, condition)
        of_picture = under(self.feed_forward_residual, condition)
        first = text.shape[1]
        y = self.text_feed_forward(of_text.read(text), train, real[:, :first])
        z = self.feed_forward(of_picture.read(picture), train, real[:, first:])
        each = of_text.write(text, y, train), of_picture.write(picture, z, train)
        return jnp.concatenate(each, axis=1)


class LastJoint(Layer):
    """The last of these, after which nothing reads the text: it has a norm, keys and values."""

    def setup(self) -> None:
        super().setup()
        self.text_norm = LastNorm(self.config)

    def __call__(
        self,
        x: Float[Array, "B L D"],
        view: View,
        train: bool,
        memory: Float[Array, "B S D"] | None = None,
        cross_view: View | None = None,
        condition: Float[Array, "B D"] | None = None,
    ) -> Float[Array, "B L D"]:
        """See Layer: the text stays as it is."""
        assert condition is not None, "no condition"
        text, picture = apart(self.config, x)
        residual = under(self.self_attention_residual, condition)
        both = jnp.concatenate([self.text_norm(text, condition), residual.read(picture)], axis=1)
        mixed, _ = self.self_attention.mix(both, view, train)
        picture = residual.write(picture, apart(self.config, mixed)[1], train)
        residual = under(self.feed_forward_residual, condition)
        real = (view.q_seg > 0)[:, text.shape[1] :]
        y = self.feed_forward(residual.read(picture), train, real)
        return jnp.concatenate([text, residual.write(picture, y, train)], axis=1)
