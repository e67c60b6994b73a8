"""XLNet (Yang et al. 2019, arXiv:1906.08237): pieces in any order, and two streams."""

import flax.linen as nn
import jax.numpy as jnp

from transformer_jax.base.arrays import Array, Float
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.decoder import Decoder
from transformer_jax.models.model import Output
from transformer_jax.nn.initializers import named, parameter
from transformer_jax.nn.roles import PLAIN_EMBEDDING
from transformer_jax.nn.view import two_stream_view


class TwoStream(Decoder):
    """A decoder that predicts each piece at its own position, from pieces of lower ranks (section
    2.3 of the paper).

    The content stream holds the pieces. The query stream starts from one learned vector, the same
    at every position, and passes through the same layers: it attends to the content of lower ranks
    and never to its own, so it may predict it. Both form one sequence of twice the length, content
    first; the second half's keys and values are never attended to.
    """

    def setup(self) -> None:
        super().setup()
        normal = nn.initializers.normal(1.0)  # as large as embedded pieces
        init = named(normal, "embed", role=PLAIN_EMBEDDING)
        self.mask_emb = parameter(self, "mask_emb", init, (self.config.d_model,))

    def __call__(self, batch: Batch, train: bool) -> dict[str, Output]:
        side = batch.tgt
        assert side is not None
        assert side.rank is not None, "the query stream needs ranks"
        length = side.inputs.shape[1]
        content = self.embed_target(side.inputs, side.pos, length, train)
        queries = self._queries(side, train)
        x = jnp.concatenate([content, queries.astype(content.dtype)], axis=1)
        x = self.decoder(x, two_stream_view(side.pos, side.seg, side.rank), train)
        return {"tokens": self.predicted(x[:, length:])}

    def _queries(self, side: Side, train: bool) -> Float[Array, "B T D"]:
        """Return the initial query stream: each position without its content."""

        def same_everywhere(ids: Array) -> Array:
            vector = self.mask_emb.astype(self.dtype).reshape(1, 1, -1)
            return jnp.broadcast_to(vector, (*ids.shape, self.config.d_model))

        length = side.inputs.shape[1]
        arguments = same_everywhere, self.tgt_positions, None, side.inputs, side.pos
        return self.embedded(*arguments, length, train)

    @nn.nowrap
    def stepper(self, params: object) -> None:
        """See Model: it generates nothing."""
