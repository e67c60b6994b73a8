"""The Evoformer: distances of all pairs, from a representation of pairs that triangles refine
(AlphaFold 2: Jumper et al. 2021, https://doi.org/10.1038/s41586-021-03819-2, supplement 1.5-1.9).
"""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.base.arrays import Array, Bool, Float, at_least_float32
from transformer_jax.data.batches.batch import Batch, Side
from transformer_jax.models.core import Core
from transformer_jax.models.model import Output
from transformer_jax.nn.distributions import Bins
from transformer_jax.nn.linear import Project
from transformer_jax.nn.norm import make_norm
from transformer_jax.nn.pairs import EvoformerBlock
from transformer_jax.nn.roles import HEAD, OWN_MAP

_REACH = 32  # positions apart, beyond which pairs are not told apart


class Distogram(Output):
    """Logits of the bins of each pair's distance [B P K], P = T T; the head is the bins."""

    def logits(self) -> Float[Array, "B P K"]:
        """Return the logits, at least in float32."""
        return self.hidden


class Evoformer(Core):
    """Blocks over pairs and a sequence; what they know of distances enters again `recycling` times.

    The source side has the known distances from each position to all others, [B T T], and -1 where
    a distance is not known.
    """

    def setup(self) -> None:
        c = self.config
        self.bins = Bins(c.distance_bins, c.nearest_distance, c.farthest_distance)
        self.known = self._new_map(c.distance_bins + 1)
        self.relative = self._new_map(2 * _REACH + 1)
        names = "features", "embed"
        self.sequence = Project((c.pair_width,), (c.d_model,), names, self.dtype, role=OWN_MAP)
        self.recycled_norm, self.recycled_pair_norm = make_norm(c), make_norm(c)
        self.recycled_distances = self._new_map(c.distance_bins)
        self.encoder = [EvoformerBlock(c, self.dtype) for _ in range(c.num_encoder_layers)]
        self.distances = self._new_map(c.distance_bins, out=True)

    @nn.nowrap
    def _new_map(self, count: int, out: bool = False) -> Project:
        width, names = self.config.pair_width, ("classes", "features")
        if out:
            zeros = nn.initializers.zeros
            return Project((width,), (count,), names[::-1], self.dtype, role=HEAD, start=zeros)
        return Project((count,), (width,), names, self.dtype, role=OWN_MAP)

    def __call__(self, batch: Batch, train: bool) -> dict[str, Output]:
        src = batch.src
        assert src is not None
        known, pos, seg = map(jnp.asarray, (src.inputs, src.pos, src.seg))
        z = self.refined(known, pos, seg, train)
        logits = at_least_float32(self.distances(z + z.swapaxes(1, 2)))
        rows, places = z.shape[:2]
        head: Any = self.bins
        return {"distances": Distogram(logits.reshape(rows, places**2, -1), head)}

    def refined(
        self, known: Float[Array, "B T T"], pos: Any, seg: Any, train: bool
    ) -> Float[Array, "B T T Z"]:
        """Return the pairs after the last pass; earlier ones have no gradient, and in training
        their number is drawn for each step, from 0 to `recycling`.
        """
        c = self.config
        mask = seg > 0
        entered = self._entered(known, pos, mask)
        passes: Any = c.recycling
        if train and c.recycling:
            passes = jax.random.randint(self.make_rng("dropout"), (), 0, c.recycling + 1)

        def going(module: "Evoformer", carry: Any) -> Any:
            return carry[0] < passes

        def once(module: "Evoformer", carry: Any) -> Any:
            count, m, z = carry
            return count + 1, *module._passed(entered, m, z, mask, train)

        m, z = (jnp.zeros_like(x) for x in entered)
        if c.recycling:
            start = jnp.zeros((), jnp.int32), m, z
            if self.is_initializing():
                once(self, start)
            loop = nn.while_loop(
                going, once, self, start, split_rngs={"dropout": False, "params": False}
            )
            m, z = jax.lax.stop_gradient(loop[1:])
        return self._passed(entered, m, z, mask, train)[1]

    def _entered(self, known: Float[Array, "B T T"], pos: Any, mask: Bool[Array, "B T"]) -> Any:
        """Return the pairs as they enter, and the sequence [B 1 T D]: the mean of each one's."""
        c = self.config
        bins = jnp.where(known < 0, c.distance_bins, self.bins.of(known))
        apart = jnp.clip(pos[:, :, None] - pos[:, None], -_REACH, _REACH) + _REACH
        z = self.known(jax.nn.one_hot(bins, c.distance_bins + 1, dtype=self.dtype))
        z = z + self.relative(jax.nn.one_hot(apart, 2 * _REACH + 1, dtype=self.dtype))
        held = mask[:, None, :, None].astype(z.dtype)
        mean = (z * held).sum(2) / jnp.maximum(held.sum(2), 1)
        return self.sequence(mean)[:, None], z

    def _passed(
        self, entered: Any, m: Any, z: Any, mask: Bool[Array, "B T"], train: bool
    ) -> tuple[Float[Array, "B 1 T D"], Float[Array, "B T T Z"]]:
        """Return sequence and pairs after all blocks, given those of the pass before, or zeros."""
        said = jax.nn.softmax(at_least_float32(self.distances(z + z.swapaxes(1, 2))))
        m = entered[0] + self.recycled_norm(m)
        z = entered[1] + self.recycled_pair_norm(z) + self.recycled_distances(said)
        for block in self.encoder:
            m, z = block(m, z, mask, train)
        return m, z

    @nn.nowrap
    def stepper(self, params: object) -> None:
        """See Model: it generates nothing."""

    @nn.nowrap
    def example(self) -> Batch:
        """See Model."""
        ones = np.ones((1, 2), np.int32)
        return Batch(Side(-np.ones((1, 2, 2), np.float32), ones - 1, ones), None, {})
